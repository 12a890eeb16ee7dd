"""Fit a robot's model to a recording in a job of the daemon: python submit_job.py RECORDING ROBOT [ENDPOINT]."""

import sys
from pathlib import Path

from service.client import CONTROL, Control, Jobs


def main(recording: str, robot: str, endpoint: str = CONTROL) -> int:
    with Control(endpoint) as control:
        jobs = Jobs(control)
        queued = jobs.submit("identify", {"recording": Path(recording), "robot": robot, "method": "iwls"})
        print(f"job {queued.id} is queued")
        job = jobs.wait(queued.id, timeout_s=600.0)
    outcome = job.outcome
    print(f"{job.state}: {job.summary or job.reason}")
    if outcome is None or job.state != "succeeded":
        return 1
    for parameter in outcome.metrics["parameters"]:
        if parameter["value"] is not None and parameter["std"] is not None:
            half = 1.96 * parameter["std"]
            print(f"{parameter['name']} = {parameter['value']:.5g} ± {half:.2g} {parameter['unit']}")
    print(f"model file: {outcome.results['model.yaml'].path}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
