"""Steps `identify` and `validate`: run as jobs of the daemon, so that the model is kept and traceable."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.commission._site import fetch
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.commission.steps._run import measured_robot
from service.protocol.job_replies import FINISHED, JobDetail

_IDENTIFY_S, _VALIDATE_S = 20.0, 12.0


def _identify(context: Context) -> tuple[str, dict[str, Any]]:
    recording = context.found("run")["excitation"]["recording"]
    parameters: dict[str, Any] = {"recording": Path(recording), "method": context.settings.method}
    if (robot := measured_robot(context)) is not context.robot:
        parameters["robot"] = json.dumps(robot.source)
    job = context.place.site().job("identify", parameters, _follow(context))
    outcome = job.outcome
    assert outcome is not None
    folder = context.folder.path / "identification"
    files = fetch(job, folder)
    found = {
        "job": job.id, "verdict": outcome.verdict, "relative_error": outcome.metrics.get("relative_error"),
        "reasons": outcome.metrics.get("reasons", []), "recording": recording,
        "model": str(files["model.yaml"]) if "model.yaml" in files else None,
        "model_id": outcome.results["model.yaml"].sha256[:12] if "model.yaml" in files else None,
        "report": str(files["report.html"]),
    }  # fmt: skip
    if "model.yaml" not in files:
        reasons = "; ".join(found["reasons"]) or outcome.summary
        raise StepFailedError(f"the motion is not explained by the description: {reasons}", found)
    return outcome.summary, found


def _validate(context: Context) -> tuple[str, dict[str, Any]]:
    identified, settings = context.found("identify"), context.settings
    recording = context.found("run")["validation"]["recording"]
    parameters = {"model": f"job:{identified['job']}", "recording": Path(recording)}
    site = context.place.site()
    job = site.job("validate", parameters, _follow(context))
    outcome = job.outcome
    assert outcome is not None
    files = fetch(job, context.folder.path / "validation")
    metrics = outcome.metrics
    joints = [
        {"name": name} | {key: metrics[key][j] for key in ("R", "rmse", "mae", "max", "explained")}
        for j, name in enumerate(context.names)
    ]
    weak = [row["name"] for row in joints if row["R"] is None or not row["R"] > settings.least_R]
    reasons = [f"R of {name} is not above {settings.least_R:g}" for name in weak] + list(metrics["reasons"])
    validated = not weak and outcome.verdict != "not_explained"
    found = {
        "job": job.id, "validated": validated, "verdict": outcome.verdict, "reasons": reasons,
        "least_R": settings.least_R, "relative_error": metrics["relative_error"], "joints": joints,
        "recording": recording, "report": str(files["report.html"]), "promotion": None,
    }  # fmt: skip
    if not validated:
        raise StepFailedError(f"not validated: {'; '.join(reasons)}", found)
    least = min(row["R"] for row in joints)
    summary = f"R of {least:.5g} and more on each joint, relative torque error {100 * metrics['relative_error']:.2f} %"
    if settings.promote:
        context.report(0.7, "promotion")
        promoted = site.job("promote", parameters, _follow(context))
        found["promotion"] = {"job": promoted.id, "state": promoted.state, "summary": promoted.summary}
        summary += f"; {'promoted' if promoted.state == 'succeeded' else 'not promoted'}: {promoted.summary}"
    return summary, found


def _follow(context: Context) -> Callable[[JobDetail], None]:
    def told(job: JobDetail) -> None:
        context.report(1.0 if job.state in FINISHED else job.share or 0.0, job.doing or job.state)

    return told


IDENTIFY = Step("identify", "the parameters, from the recorded run", _identify, lambda _: _IDENTIFY_S)
VALIDATE = Step("validate", "torque of the other run, predicted by the model", _validate, lambda _: _VALIDATE_S)
