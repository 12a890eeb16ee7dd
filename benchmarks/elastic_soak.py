"""The online estimate of an elastic joint over hours: rich motion, at rest, at one speed, rich motion again.

The information has to stay positive definite and never fall below that of the start, and what was learned must not be
lost at rest.  What an hour at one speed has told outweighs minutes of better motion: some values stay withheld then,
and those that are not must be right.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rt_core.elastic.rows import Drive
from rt_core.online.elastic import ElasticJointEstimator, ElasticOnlineSettings
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, measured, one_after_the_other, record
from tests.lab.arms.poor_motion import Frames, one_speed, standing

CHUNK = 50_000
AT_REST, AT_ONE_SPEED = 2_000_000, 3_000_000  # frames
RICH_AGAIN = 5  # times
RULES: dict[str, float | None] = {"variable": None, "0.99": 0.99}
LIMIT_ERROR = 0.05
_ROUNDING = 1e-2


def phases(seed: int) -> Iterator[tuple[str, Frames]]:
    """Name of the phase and its next frames."""
    rng = np.random.default_rng(seed)
    clean = record(None)
    r = measured(one_after_the_other(clean, clean), seed)
    rich = (r.t, r.theta_in, r.theta_out, r.motor_torque, r.sensor_torque)
    yield "rich", rich
    for first in range(0, AT_REST, CHUNK):
        yield "at rest", standing(r, first, CHUNK, rng)
    for first in range(AT_REST, AT_REST + AT_ONE_SPEED, CHUNK):
        yield "one speed", one_speed(r, first, CHUNK, rng)
    length = r.t[-1] + 1.0
    for k in range(RICH_AGAIN):
        later = (AT_REST + AT_ONE_SPEED) / RATE + (k + 1) * length
        yield "rich again", (r.t + later, *rich[1:])


def soak(rule: float | None, on_progress: Callable[[str], None], seed: int = 1) -> dict[str, Any]:
    """Worst relative error of a parameter that has a value, at the end of each phase; and what went wrong."""
    start = {name: (0.7 if k % 2 else 1.3) * value for k, (name, value) in enumerate(TRUTH.items())}
    estimator = ElasticJointEstimator(Drive(N, J_IN), start, RATE, ElasticOnlineSettings(constant=rule))
    problems: list[str] = []
    errors: dict[str, float] = {}
    open_: dict[str, list[str]] = {}
    frames, before = 0, ""
    for phase, channels in phases(seed):
        if phase != before:
            on_progress(f"elastic joint: {phase}, after {frames} frames")
            before = phase
        estimator.take(*channels)
        frames += channels[0].size
        root = estimator.information_root
        if not (np.isfinite(root).all() and np.isfinite(estimator.theta).all()):
            problems.append(f"{frames} frames, {phase}: the estimate is not finite")
            break
        if not np.linalg.eigvalsh(root.T @ root).min() > 1.0 - _ROUNDING:
            problems.append(f"{frames} frames, {phase}: less is known than at the start")
        said = estimator.report().parameters
        errors[phase] = max((abs(p.value / TRUTH[p.name] - 1.0) for p in said if p.value is not None), default=0.0)
        open_[phase] = [p.name for p in said if p.value is None]
    if rule is None:
        problems += [f"{phase}: off by {100 * e:.1f} %" for phase, e in errors.items() if not e < LIMIT_ERROR]
        problems += [
            f"{phase}: {', '.join(o)} lost" for phase, o in open_.items() if o and phase in ("rich", "at rest")
        ]
    return {"frames": frames, "error": errors, "undetermined": open_, "problems": problems}


def run(on_progress: Callable[[str], None]) -> dict[str, Any]:
    """All rules; `problems` lists what is worse than allowed."""
    results = {name: soak(rule, on_progress) for name, rule in RULES.items()}
    problems = [f"lambda {name}: {problem}" for name, found in results.items() for problem in found["problems"]]
    return {"rules": results, "problems": problems}


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = []
    for name, found in result["rules"].items():
        lines.append(f"elastic joint, lambda {name}: {found['frames']} frames")
        for phase, error in found["error"].items():
            missing = ", ".join(found["undetermined"][phase]) or "nothing"
            lines.append(f"  {phase:12} worst error {100 * error:.2f} %, undetermined: {missing}")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"][:20]])
