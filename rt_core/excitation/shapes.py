"""Regions for points of an arm, and bodies that must not touch, as they are given; without the numerics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Len

from rt_core.excitation.errors import ExcitationError

Point: TypeAlias = tuple[float, float, float]
Metres = Annotated[float, Gt(0.0), Le(1e3)]
Link = Annotated[int, Ge(-1), Le(100)]
Name = Annotated[str, Len(1, 40)]
#: What reads a region or a body from a file or a request refuses unknown keys, NaN, infinity and wrong types.
_STRICT: dict[str, Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


def _check_point(what: str, point: Sequence[float]) -> None:
    if len(point) != 3 or not all(math.isfinite(x) for x in point):
        raise ExcitationError(f"{what} must be three finite numbers [m], not {tuple(point)}")


@dataclass(frozen=True)
class Box:
    """Box of the base frame in which a point of the arm must stay."""

    __pydantic_config__: ClassVar = _STRICT
    low: Point  # corner [m]
    high: Point  # corner [m]
    # link the point is fixed to, from 0; None for the tip, or with `point` a point in the last link's frame
    link: Link | None = None
    point: Point | None = None  # in the frame of the link [m]; the tip, or the link's origin, if None
    name: Name = "tip"  # for margins and messages

    def __post_init__(self) -> None:
        """Check the corners and the point; raise `ExcitationError`."""
        for axis, low, high in zip("xyz", self.low, self.high, strict=True):
            if not (low < high and math.isfinite(low) and math.isfinite(high)):
                raise ExcitationError(f"workspace {axis} of {self.name}: {low:g} to {high:g} m is not a range")
        if self.point is not None:
            _check_point(f"the point of box '{self.name}'", self.point)


@dataclass(frozen=True)
class Sphere:
    """Sphere of the base frame in which, or out of which, a point of the arm must stay."""

    __pydantic_config__: ClassVar = _STRICT
    centre: Point  # [m]
    radius: Metres
    side: Literal["inside", "outside"] = "inside"
    link: Link | None = None  # this and the next two as in `Box`
    point: Point | None = None
    name: Name = "tip"

    def __post_init__(self) -> None:
        """Check centre, radius, side and point; raise `ExcitationError`."""
        _check_point(f"the centre of sphere '{self.name}'", self.centre)
        if not (self.radius > 0.0 and math.isfinite(self.radius)):
            raise ExcitationError(f"sphere '{self.name}': radius {self.radius:g} m must be finite and above 0")
        if self.side not in ("inside", "outside"):
            raise ExcitationError(f"sphere '{self.name}': side must be inside or outside, not {self.side!r}")
        if self.point is not None:
            _check_point(f"the point of sphere '{self.name}'", self.point)


Region: TypeAlias = Box | Sphere


@dataclass(frozen=True)
class Capsule:
    """Part of the arm or of its surroundings."""

    __pydantic_config__: ClassVar = _STRICT
    name: Name
    link: Link  # link that it is fixed to, from 0; -1 for the base and fixed surroundings
    start: Point  # one end of its axis in the link's frame [m]
    end: Point  # the other end; the same for a sphere
    radius: Metres
    base: bool = False  # of link -1: it is part of the base, which is always near link 0, and not of the surroundings

    def __post_init__(self) -> None:
        """Check link, ends and radius; raise `ExcitationError`."""
        if self.base and self.link != -1:
            raise ExcitationError(f"capsule '{self.name}': base is for what stands still, on link -1")
        for what, point in (("start", self.start), ("end", self.end)):
            _check_point(f"{what} of capsule '{self.name}'", point)
        if not (self.radius > 0.0 and math.isfinite(self.radius)):
            raise ExcitationError(f"capsule '{self.name}': radius {self.radius:g} m must be finite and above 0")
