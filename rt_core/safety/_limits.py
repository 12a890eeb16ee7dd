"""Limits of the joints, and their violations."""

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

import numpy as np

from rt_core.types import FloatArray

Quantity: TypeAlias = Literal[
    "value", "position", "jump", "velocity", "acceleration", "room to stop", "torque", "start", "end", "closing",
    "following error", "temperature",
]  # fmt: skip

#: Messages; the others are `joint NAME: WHAT REACHED, at most ALLOWED`.
_WORDS: dict[Quantity, str] = {
    "value": "joint {joint}: {number} is not a number{when}",
    "position": "joint {joint}: position {reached}{when}, the limit is {allowed}",
    "jump": "joint {joint}: its position jumps by {reached}{when}, at most {allowed} a step is allowed",
    "room to stop": "joint {joint}: a stop begun{when} would end at {reached}, the limit is {allowed}",
    "start": "joint {joint}: does not begin at rest but with {reached}, at most {allowed} is allowed",
    "end": "joint {joint}: does not end at rest but with {reached}, at most {allowed} is allowed",
    "closing": "joint {joint}: a period ends {reached} from where it begins, at most {allowed} is allowed",
    "following error": "joint {joint} is {reached} from its command{when}, at most {allowed} is allowed",
}


class SafetyError(ValueError):
    """A motion that is not allowed; the message states the reason and a remedy."""


class PermitError(SafetyError):
    """A request without permission."""


@dataclass(frozen=True)
class Violation:
    """Violation of a limit."""

    joint: str
    what: Quantity  # the quantity; "value" if it is not a finite number
    reached: float
    allowed: float
    unit: str  # of both
    at_s: float | None = None  # time along a trajectory; None for the present cycle

    def __str__(self) -> str:
        """Return the message, in one line."""
        return _WORDS.get(self.what, "joint {joint}: {what} {reached}{when}, at most {allowed} is allowed").format(
            joint=self.joint, what=self.what, number=self.reached, reached=f"{self.reached:.4g} {self.unit}",
            allowed=f"{self.allowed:.4g} {self.unit}", when="" if self.at_s is None else f" at {self.at_s:.6g} s",
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SafetyLimits:
    """Limits of commands and measured values; arrays (n,), infinite where there is no limit.

    Raises `SafetyError` if there is not one value for each joint, or a limit leaves no range.
    """

    joints: tuple[str, ...]  # names
    units: tuple[str, ...]  # "rad" or "m" for each
    lower: FloatArray  # (n,) commanded position
    upper: FloatArray  # (n,)
    velocity: FloatArray  # (n,) of the commands; `velocity` times the cycle is the largest step of a command
    acceleration: FloatArray  # (n,) of the commands
    overspeed: FloatArray  # (n,) measured velocity
    effort: FloatArray  # (n,) torque, predicted and measured [N*m] or [N]
    following_error: FloatArray  # (n,) between command and measured position of one cycle
    temperature: FloatArray  # (n,) [degC]
    # longest time that drives continue at their present speed before a stop begins: by themselves, or along a line of
    # set positions over lost cycles
    blind_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the shapes and ranges."""
        for item in fields(self):
            if item.name == "blind_s":
                continue
            values = getattr(self, item.name)
            if len(values) != self.n:
                raise SafetyError(f"{item.name}: {len(values)} values for {self.n} joints")
            if item.name in ("joints", "units", "lower", "upper"):
                continue
            for joint, value in zip(self.joints, values, strict=True):
                if not value > 0.0:
                    raise SafetyError(f"joint {joint}: {item.name} limit {value:g} is not above 0")
        for joint, low, high in zip(self.joints, self.lower, self.upper, strict=True):
            if not low < high:
                raise SafetyError(f"joint {joint}: lower limit {low:g} is not below the upper limit {high:g}")

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @property
    def missing(self) -> tuple[str, ...]:
        """Required limits that are not set, such as `velocity of joint_2`."""
        return tuple(
            f"{name} of {joint}"
            for name in ("lower", "upper", "velocity", "acceleration", "following_error")
            for joint, value in zip(self.joints, getattr(self, name), strict=True)
            if not np.isfinite(value)
        )

    def violation(
        self, what: Quantity, joint: int, reached: float, allowed: float, at_s: float | None = None
    ) -> Violation:
        """Return the violation of a limit of joint number `joint`."""
        unit = self.units[joint]
        speed = f"{unit}/s"
        shown = {
            "velocity": speed, "start": speed, "end": speed, "acceleration": f"{speed}^2",
            "torque": "N*m" if unit == "rad" else "N", "temperature": "degC",
        }  # fmt: skip
        return Violation(self.joints[joint], what, float(reached), float(allowed), shown.get(what, unit), at_s)
