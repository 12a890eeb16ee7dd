"""Settings whose bounds are stated once, in annotations; those of hand guiding, which configurations contain, too.

    @dataclass(frozen=True)
    class Filters(Bounded):
        cutoff_hz: Positive = 10.0

`Bounded` checks the values of a direct call. Pydantic reads the same annotations where values come from a file.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval

#: Marks a number that may be infinite.
INFINITE = "may be infinite"
Finite = Annotated[float, Interval()]
Positive = Annotated[float, Gt(0.0)]
NonNegative = Annotated[float, Ge(0.0)]
Magnitude = Annotated[float, Interval(gt=0.0, lt=1e9)]  # whose squares and products do not overflow
Share = Annotated[float, Interval(gt=0.0, le=1.0)]
AnyShare = Annotated[float, Interval(ge=0.0, le=1.0)]
Count = Annotated[int, Ge(0)]
AtLeastOne = Annotated[int, Ge(1)]

#: Largest share of the model's friction that is ever compensated: the rest stops the arm, and allows for friction that
#: is lower than the model's.
MAX_SHARE = 0.85
#: Longest delay from a measurement to its torque that the torque history covers [cycles].
MAX_DELAY = 3
_UNITS = {"hz": " Hz", "m": " m", "s": " s"}  # by the last part of a name
_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


class Bounded:
    """Base of frozen dataclasses whose numbers are finite and within the bounds of their annotations."""

    #: Raised for a value that is not allowed.
    refusal: ClassVar[type[ValueError]] = ValueError
    __dataclass_fields__: ClassVar[dict[str, Any]]
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    def __post_init__(self) -> None:
        """Check every value; raise `refusal`."""
        kind: Any = type(self)
        for name, (ends, infinite, known, optional, whole) in _limits(kind).items():
            value = getattr(self, name)
            if known and value not in known and not (optional and value is None):
                raise self.refusal(f"unknown {name} {value!r}; known: {', '.join(known)}")
            if ends is None or (value is None and optional):
                continue
            several = isinstance(value, Iterable) and not isinstance(value, str)
            for number in value if several else (value,):
                if not isinstance(number, Real) or (whole and number % 1 != 0):
                    raise self.refusal(f"{name} must be a {'whole ' * whole}number, not {value}")
                within = all(getattr(operator, sign)(number, end) for sign, end in ends.items())
                if not within or not (infinite or math.isfinite(number)):
                    only = "" if infinite or isinstance(number, int) else "finite"
                    text = _text(ends, only, _UNITS.get(name.rpartition("_")[2], "")) + " for each joint" * several
                    raise self.refusal(f"{name} must be {text}, not {value}")


@cache
def _limits(kind: Any) -> dict[str, tuple[dict[str, float] | None, bool, tuple[str, ...], bool, bool]]:
    """Return for each field the bounds of its numbers, whether they may be infinite, and the words that it may be.

    Further whether it may be None, and whether its numbers are whole.
    """
    hints, found = get_type_hints(kind, include_extras=True), {}
    for field in fields(kind):
        hint = hints[field.name]
        optional = type(None) in get_args(hint)
        while (inner := get_args(hint)) and (get_origin(hint) not in (Annotated, Literal) or get_args(inner[0])):
            hint = inner[0]  # of `X | None`, of `tuple[X, ...]` and of an annotated one
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else None
        ends = {s: end for mark in marks or () for s in _WORDS if (end := getattr(mark, s, None)) is not None}
        known = get_args(hint) if get_origin(hint) is Literal else ()
        whole = marks is not None and get_args(hint)[0] is int
        found[field.name] = (None if marks is None else ends, INFINITE in (marks or ()), known, optional, whole)
    return found


def _text(ends: dict[str, float], only: str, unit: str) -> str:
    """Return bounds as words; `only` is what a number with one bound or none must be besides."""
    if set(ends) == {"ge", "le"}:
        low, high = ends["ge"], ends["le"]
        return "a share from 0 to 1" if (low, high) == (0.0, 1.0) else f"from {low:g} to {high:g}{unit}"
    texts = [f"{_WORDS[sign]} {end:g}{unit if end else ''}" for sign, end in ends.items()]
    return " and ".join([only] * (bool(only) and len(ends) < 2) + texts)


@dataclass(frozen=True)
class ZeroForceSettings(Bounded):
    """Settings of hand guiding, and the table `[arm.guiding]`.  Torque is in N*m or N, by the kind of each joint."""

    friction_share: AnyShare = 0.75  # share of the model's friction that is compensated; limited to `MAX_SHARE`
    damping_time_s: Positive = 0.15  # damping, as the time in which it slows the smallest inertia of a joint to 1/e [s]
    speed_share: Share = 0.25  # speed limit as a share of each joint's velocity limit
    # speed limit of each joint [rad/s or m/s], where it is below that of `speed_share`
    speed_limit: tuple[Positive, ...] | None = None
    # damping above 70 % of the speed limit, as `damping_time_s`; less where delay does not allow so much, which the
    # controller checks
    braking_time_s: Annotated[float, Interval(ge=0.004, le=1.0)] = 0.005
    torque_share: Share = 0.9  # torque limit as a share of each joint's effort limit
    # torque limit of each joint, in place of `torque_share`; needed where a joint has no effort limit
    torque_limit: tuple[Positive, ...] | None = None
    torque_rise_s: Positive = 0.05  # minimum time of the torque from zero to its limit [s]
    limited_s: Positive = 0.1  # a hold is requested if a joint's torque is limited for this long [s]
    # share of a joint's range, at either end, with a spring and a damper
    wall_share: Annotated[float, Interval(gt=0.0, lt=0.5)] = 0.05
    # time from hold to guiding, and from guiding to hold on request [s]
    ramp_s: Annotated[float, Interval(gt=0.0, le=10.0)] = 1.0
    alarm_ramp_s: Share = 0.1  # time from guiding to hold after an alarm [s]
    hold_hz: Annotated[float, Interval(ge=0.1, le=10.0)] = 3.0  # natural frequency of the hold
    # time above the friction margin from which the residual shows that the model is not valid [s]
    residual_time_s: Positive = 4.0
    takeover_residual_s: Positive = 0.3  # the same while the arm is taken over and must not be pushed [s]
    # time after the ramp during which this applies [s]: an arm that moves by itself does so then
    takeover_watch_s: NonNegative = 1.0
    residual_filter_s: Positive = 0.05  # time constant of the torque residual [s]
    # residual that is always allowed, as a share of the torque limit
    residual_floor: Annotated[float, Interval(ge=0.0, lt=1.0)] = 0.002
    missing_s: Positive = 0.005  # a hold is requested after this time without a usable sample [s]
    # time for which measured torque may be constant to the bit in all joints [s]; infinite for drives whose torque has
    # no noise
    frozen_s: Annotated[float, Gt(0.0), INFINITE] = 0.02
    # whole cycles from a sample until its torque begins to act
    delay_cycles: Annotated[int, Interval(ge=0, le=MAX_DELAY)] = 1
    observer_hz: Positive = 60.0  # bandwidth of the velocity observer, where velocity is not measured

    @property
    def compensated_share(self) -> float:
        """Share of the friction that is actually compensated."""
        return min(self.friction_share, MAX_SHARE)
