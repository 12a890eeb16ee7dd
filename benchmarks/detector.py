"""The detector of changes: rate of false alarms over 1,000 hours of streams, delay and mass of payloads, and how often
a change of friction is told from a fault of a sensor.

python benchmarks/detector.py [--hours 1000] [--seeds 100] [--only streams drift payload classes] [--json]

A stream holds ten times a second what the residual of each joint is: correlated noise of a level of its own; or, for
the detector of slow drift, an estimate of all parameters (`benchmarks/drift_streams.py`).  What is not told, or told as
something else, is wrong; ambiguous is only what is called so.  The exit code is 1 if a target is missed.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.stats import chi2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import drift_streams
from benchmarks.detector_cases import CAPACITY, WATCH_S, Alteration, Outcome, arm, run
from rt_core.online.monitors.residual_cusum import ResidualCusum

STREAM_HZ = 10.0
JOINTS = 6
SHIPPED_HOURS = 10_000.0
BETTER, ALIKE = 0.1, 1.0  # standard deviations of the model, in those of the estimate
BLOCK_S = 0.5
NEED, MEMORY = 60, 1200  # blocks, as for the detector's settings
CORRELATION = float(np.exp(-1.0 / (STREAM_HZ * 0.05)))  # of neighbouring samples: noise with 50 ms
DETECTION_S = 3.0
MASS_ERROR = 0.05
TOLD_APART = 0.95


def interval(count: int) -> tuple[float, float]:
    """95 % interval of a Poisson rate of which `count` were seen."""
    return (float(chi2.ppf(0.025, 2 * count) / 2.0) if count else 0.0), float(chi2.ppf(0.975, 2 * count + 2) / 2.0)


def false_alarms(hours: float, stated_hours: float, excess: float, seed: int = 1) -> dict[str, Any]:
    """Count alarms of the watch in `hours` of motion of an arm that does not change."""
    per_block = round(STREAM_HZ * BLOCK_S)
    watch = ResidualCusum(JOINTS, stated_hours * 3600.0 / BLOCK_S, NEED, MEMORY, excess)
    rng = np.random.default_rng(seed)
    level = 10.0 ** rng.uniform(-2.0, 1.0, JOINTS)
    last = CORRELATION * rng.standard_normal((1, JOINTS))
    alarms = 0
    for _ in range(round(hours)):
        white = np.sqrt(1.0 - CORRELATION**2) * rng.standard_normal((round(3600.0 * STREAM_HZ), JOINTS))
        residual, last = lfilter([1.0], [1.0, -CORRELATION], white, axis=0, zi=last)
        blocks = ((level * residual) ** 2).reshape(-1, per_block, JOINTS).mean(axis=1)
        alarms += int(watch.take_all(blocks).sum())
    low, high = interval(alarms)
    expected = hours / stated_hours
    return {
        "hours": hours, "stated_hours": stated_hours, "excess": excess, "alarms": alarms, "expected": expected,
        "lower": low, "upper": high, "within": low <= expected <= high,
    }  # fmt: skip


def drift_alarms(hours: float, stated_hours: float, model_std: float, seed: int = 1) -> dict[str, Any]:
    """Count events of the detector of slow drift in `hours` of estimates that do not drift.

    `model_std` is how well the model is known, in standard deviations of the estimate.  Where it is known much better,
    alarms come at the stated rate; otherwise less often.
    """
    parameters, residuals = drift_streams.alarms(hours, stated_hours, model_std, 1.0 / STREAM_HZ, seed)
    alarms, expected = parameters + residuals, hours / stated_hours
    low, high = interval(alarms)
    return {
        "hours": hours, "stated_hours": stated_hours, "model_std": model_std, "alarms": alarms, "residuals": residuals,
        "expected": expected, "lower": low, "upper": high, "within": low <= expected <= high,
        "no_more": low <= expected,
    }  # fmt: skip


def payloads(seeds: int) -> dict[str, Any]:
    """Attach a tenth of the capacity; delay until it is told, and the mass after 20 s."""
    delays, errors, covered, missed = [], [], [], []
    robots = tuple(CAPACITY)
    for seed in range(seeds):
        robot = robots[seed % len(robots)]
        mass = 0.1 * CAPACITY[robot]
        at_s = WATCH_S + float(np.random.default_rng(seed).uniform(0.0, 5.0))
        outcome = run(robot, 100 + seed, [Alteration("payload", mass, at_s=at_s)], at_s + 20.5)
        found = outcome.first("change")
        carried = outcome.detector.payload()
        if found is None or found[1].kind != "payload_attached" or carried is None:
            missed.append({"robot": robot, "seed": seed, "told": [change.text for _, change in outcome.told]})
            continue
        delays.append(found[0] - at_s)
        figure = carried["mass"]
        errors.append(abs(figure["value"] / mass - 1.0))
        covered.append(figure["lower"] <= mass <= figure["upper"])
    return {
        "cases": seeds, "missed": missed, "delay_median_s": float(np.median(delays)), "delay_max_s": max(delays),
        "mass_error_median": float(np.median(errors)), "mass_error_max": max(errors),
        "intervals_hold": float(np.mean(covered)),
    }  # fmt: skip


def drawn(seed: int) -> tuple[str, Alteration]:
    """Return an arm and a change of it: friction 20 to 100 % up, or a sensor's gain 5 to 30 % off, of any joint."""
    rng = np.random.default_rng(seed)
    robot = str(rng.choice(list(CAPACITY)))
    joint = int(rng.integers(arm(robot)[0].n))
    at_s = WATCH_S + float(rng.uniform(0.0, 5.0))
    if seed % 2:
        return robot, Alteration("friction", 1.0 + float(rng.uniform(0.2, 1.0)), joint, at_s)
    return robot, Alteration("sensor_gain", float(rng.choice([-1.0, 1.0]) * rng.uniform(0.05, 0.3)), joint, at_s)


def told(outcome: Outcome, alteration: Alteration, joint: str) -> str:
    """Return "right", "ambiguous" or "wrong": what was told first after the alarm, and of which joint.

    Nothing is wrong, too.
    """
    found = outcome.first("change")
    if found is None:
        return "wrong"
    expected = "friction_changed" if alteration.what == "friction" else "sensor_fault"
    if found[1].kind == expected and found[1].data["joints"] == [joint]:
        return "right"
    return "ambiguous" if found[1].kind == "ambiguous" else "wrong"


def classes(seeds: int) -> dict[str, Any]:
    """Tell friction from sensors."""
    cases: dict[str, list[dict[str, Any]]] = {"right": [], "ambiguous": [], "wrong": []}
    for seed in range(seeds):
        robot, alteration = drawn(seed)
        outcome = run(robot, 1000 + seed, [alteration], alteration.at_s + 25.0)
        joint = arm(robot)[0].joints[alteration.joint].name
        found = outcome.first("change")
        case = {"robot": robot, "seed": seed, "what": alteration.what, "size": alteration.size, "joint": joint,
                "told": "nothing" if found is None else found[1].kind,
                "delay_s": None if found is None else found[0] - alteration.at_s,
                "text": "" if found is None else found[1].text}  # fmt: skip
        cases[told(outcome, alteration, joint)].append(case)
    delays = [case["delay_s"] for case in cases["right"]]
    return {"cases": seeds, "right": len(cases["right"]), "ambiguous": cases["ambiguous"], "wrong": cases["wrong"],
            "delay_median_s": float(np.median(delays)) if delays else None}  # fmt: skip


Section = tuple[dict[str, Any], list[str], list[str]]


def streams_section(hours: float) -> Section:
    result, lines, problems = [], [], []
    for stated, excess in ((2.0, 0.0), (10.0, 0.0), (SHIPPED_HOURS, 0.5)):
        found = false_alarms(hours, stated, excess)
        result.append(found)
        lines.append(
            f"streams: {found['alarms']} false alarms in {hours:g} h (95 %: {found['lower']:.1f} to "
            f"{found['upper']:.1f}), stated {found['expected']:.2f}, tolerated rise {excess:g}"
        )
        if not found["within"]:
            problems.append(f"the stated rate, one in {stated:g} h, lies outside the interval of what was seen")
    return {"streams": result}, lines, problems


def drift_section(hours: float) -> Section:
    result, lines, problems = [], [], []
    for model_std, model in ((BETTER, "better"), (ALIKE, "no better")):
        for stated in (2.0, 10.0, SHIPPED_HOURS):
            found = drift_alarms(hours, stated, model_std)
            result.append(found)
            lines.append(
                f"drift, a model {model} known than the estimate: {found['alarms']} false alarms in {hours:g} h "
                f"({found['residuals']} of residuals; 95 %: {found['lower']:.1f} to {found['upper']:.1f}), stated "
                f"{found['expected']:.2f}"
            )
            if not found["within" if model_std == BETTER else "no_more"]:
                problems.append(f"drift: the stated rate, one in {stated:g} h, does not fit what was seen")
    return {"drift": result}, lines, problems


def payload_section(seeds: int) -> Section:
    found = payloads(seeds)
    line = (
        f"payload, 10 % of the capacity, {found['cases']} cases: told after {found['delay_median_s']:.2f} s "
        f"(at most {found['delay_max_s']:.2f} s), mass after 20 s within {found['mass_error_median']:.2%} "
        f"(at most {found['mass_error_max']:.2%}), {found['intervals_hold']:.0%} of the 95 % intervals hold it, "
        f"missed: {len(found['missed'])}"
    )
    bad = found["missed"] or found["delay_max_s"] > DETECTION_S or found["mass_error_max"] > MASS_ERROR
    return {"payload": found}, [line], [f"a payload was missed, late or wrong: {found['missed']}"] if bad else []


def classes_section(seeds: int) -> Section:
    found = classes(seeds)
    lines = [
        f"friction or sensor, {found['cases']} cases: {found['right']} right, {len(found['ambiguous'])} ambiguous, "
        f"{len(found['wrong'])} wrong; told after {found['delay_median_s']} s"
    ]
    lines += [f"  {case}" for case in (*found["ambiguous"], *found["wrong"])]
    bad = found["right"] < TOLD_APART * found["cases"] or found["wrong"]
    problem = "friction and sensor faults are not told apart as often as stated"
    return {"classes": found}, lines, [problem] if bad else []


PARTS = ("streams", "drift", "payload", "classes")


def sections(hours: float, seeds: int, wanted: Sequence[str] = PARTS) -> Iterator[Section]:
    """Result, lines and problems of each part."""
    if "streams" in wanted:
        yield streams_section(hours)
    if "drift" in wanted:
        yield drift_section(hours)
    if "payload" in wanted:
        yield payload_section(max(4, seeds // 5))
    if "classes" in wanted:
        yield classes_section(seeds)


def run_all(quick: bool = False) -> Section:
    """Result, lines and problems, as a section of `benchmarks/run.py`."""
    result: dict[str, Any] = {}
    lines: list[str] = []
    problems: list[str] = []
    for part, more, missed in sections(50.0 if quick else 1000.0, 6 if quick else 100):
        result |= part
        lines += more
        problems += missed
    return result, lines, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--hours", type=float, default=1000.0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    problems: list[str] = []
    for part, lines, missed in sections(args.hours, args.seeds, args.only):
        result |= part
        problems += missed
        print("\n".join(lines), file=sys.stderr if args.json else sys.stdout, flush=True)
    if args.json:
        print(json.dumps(result | {"problems": problems}))
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
