"""Reports of a change of the arm: kind, text and plain data."""

from dataclasses import dataclass
from typing import Any, Literal

from rt_core.online._state import PAYLOAD
from rt_core.online.monitors.change_hypotheses import Fit, Pace, Verdict
from rt_core.types import FloatArray, IntArray

ArmChangeKind = Literal[
    "change", "payload_attached", "payload_released", "payload_moved", "friction_changed", "friction_drift",
    "sensor_fault", "sensor_recovered", "ambiguous",
]  # fmt: skip

_MAX_NAMED = 4  # causes of an ambiguous change
_CAUSES = {
    "payload": "the payload", "friction": "friction of {}", "friction_of_all": "friction of all joints",
    "sensor_gain": "the gain of the torque sensor of {}", "gain_of_all": "the gain of all torque sensors",
    "sensor_offset": "the offset of the torque sensor of {}",
}  # fmt: skip
_VERBS = {"payload_attached": "attached", "payload_released": "released", "payload_moved": "moved"}


@dataclass(frozen=True)
class ArmChange:
    """Change of an arm: its kind, a text for people, and plain data."""

    kind: ArmChangeKind
    text: str
    data: dict[str, Any]


def alarm(joints: list[str], since_ns: int) -> ArmChange:
    """Report a change whose cause is not known yet."""
    text = f"the residual of {', '.join(joints)} is larger than usual"
    return ArmChange("change", text, {"since": since_ns * 1e-9, "joints": joints})


def friction_change(
    fit: Fit, pace: Pace, joints: list[str], names: tuple[str, ...], places: IntArray, since_ns: int
) -> ArmChange:
    """Report a change of friction of these joints; `places` is from `friction_columns`."""
    own = sorted({int(c) for c in places[fit.hypothesis.select[:, PAYLOAD:-2].any(axis=2)]})
    moved: list[dict[str, Any]] = [
        {"name": names[c], "change": float(value), "std": float(std)}
        for c, value, std in zip(own, fit.values, fit.std, strict=True)
    ]
    clearest = sorted(moved, key=lambda p: -abs(p["change"]) / max(p["std"], 1e-300))[:_MAX_NAMED]
    changes = ", ".join(f"{p['name']} {p['change']:+.3g}" for p in clearest)
    gradual = pace == "gradual"
    return ArmChange(
        "friction_drift" if gradual else "friction_changed",
        f"friction of {', '.join(joints)} {'changes slowly' if gradual else 'has changed'}: {changes}",
        {"since": since_ns * 1e-9, "joints": joints, "parameters": moved, "pace": pace},
    )


def sensor_change(fit: Fit, joint: str, total: float, recovered: bool, since_ns: int) -> ArmChange:
    """Report a change of a torque sensor, its `total` change, and whether it has recovered."""
    gain, change = fit.hypothesis.cause == "sensor_gain", float(fit.values[0])
    size = f"{change:+.1%}" if gain else f"{change:+.3g}"
    what = f"the {'gain' if gain else 'offset'} of the torque sensor of {joint}"
    return ArmChange(
        "sensor_recovered" if recovered else "sensor_fault",
        f"{what} is as before" if recovered else f"{what} has changed by {size}",
        {
            "since": since_ns * 1e-9, "joints": [joint], "cause": fit.hypothesis.cause, "change": change,
            "std": float(fit.std[0]), "total": total,
        },
    )  # fmt: skip


def payload_change(
    kind: ArmChangeKind, change: FloatArray, std: float, payload: dict[str, Any] | None, since_ns: int
) -> ArmChange:
    """Report a payload attached, released or moved: `change` (10,) of its parameters, and the present payload."""
    mass = float(change[0])
    size = "" if kind == "payload_moved" else f"of {abs(mass):.3g} kg "
    return ArmChange(
        kind,
        f"a payload {size}was {_VERBS[kind]}",
        {"since": since_ns * 1e-9, "joints": [], "change": mass, "std": std, "payload": payload},
    )


def ambiguous_change(
    verdict: Verdict, joints: tuple[str, ...], least_explained: float, since_ns: int, doubt: str = ""
) -> ArmChange:
    """Report the possible causes of a change; `least_explained` is the share that a cause has to explain.

    `doubt` is what speaks against the first of them.
    """
    named = [
        {
            "cause": f.hypothesis.cause, "joint": None if f.hypothesis.joint is None else joints[f.hypothesis.joint],
            "score": float(f.score), "explained": verdict.share(f),
        }
        for f in verdict.fits[:_MAX_NAMED]
    ]  # fmt: skip
    text = "the arm has changed: " + " or ".join(_CAUSES[str(c["cause"])].format(c["joint"]) for c in named)
    if verdict.explained < least_explained:
        text += f"; the first explains {max(verdict.explained, 0.0):.0%} of it"
    elif verdict.left > 1.0:
        text += "; the first leaves much more than is usual"
    if doubt:
        text += f"; but {doubt}"
    concerned = list(dict.fromkeys(str(c["joint"]) for c in named if c["joint"] is not None))
    data = {"since": since_ns * 1e-9, "joints": concerned, "candidates": named, "doubt": doubt}
    return ArmChange("ambiguous", text, data)
