"""Workspace regions for points of the arm and clearances between bodies.

A point is fixed to a link, link `i` being moved by joint `i`, or to the base (-1).  Regions bound one point each.
Capsules, the points within `radius` of a segment (a sphere if its ends coincide), cover links; two of them must be
`clearance_m` apart.  The check is in `rt_core.excitation._workspace_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

Point: TypeAlias = tuple[float, float, float]
#: Maximum number of pairs of capsules, for the time of a design.
MAX_PAIRS = 1000


def _check_point(what: str, point: Sequence[float]) -> None:
    if len(point) != 3 or not all(math.isfinite(x) for x in point):
        raise ExcitationError(f"{what} must be three finite numbers [m], not {tuple(point)}")


@dataclass(frozen=True)
class Box:
    """Box of the base frame in which a point of the arm must stay."""

    low: Point  # corner [m]
    high: Point  # corner [m]
    # link the point is fixed to, from 0; None for the tip, or with `point` a point in the last link's frame
    link: int | None = None
    point: Point | None = None  # in the frame of the link [m]; the tip, or the link's origin, if None
    name: str = "tip"  # for margins and messages

    def __post_init__(self) -> None:
        """Check the corners and the point; raise `ExcitationError`."""
        for axis, low, high in zip("xyz", self.low, self.high, strict=True):
            if not (low < high and math.isfinite(low) and math.isfinite(high)):
                raise ExcitationError(f"workspace {axis} of {self.name}: {low:g} to {high:g} m is no range")
        if self.point is not None:
            _check_point(f"the point of box '{self.name}'", self.point)


@dataclass(frozen=True)
class Sphere:
    """Sphere of the base frame in which, or out of which, a point of the arm must stay."""

    centre: Point  # [m]
    radius: float  # [m]
    side: Literal["inside", "outside"] = "inside"
    link: int | None = None  # this and the next two as in `Box`
    point: Point | None = None
    name: str = "tip"

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

    name: str
    link: int  # link that it is fixed to, from 0; -1 for the base and fixed surroundings
    start: Point  # one end of its axis in the link's frame [m]
    end: Point  # the other end; the same for a sphere
    radius: float  # [m]
    base: bool = False  # of link -1: it is part of the base, which is always near link 0, and not of the surroundings

    def __post_init__(self) -> None:
        """Check link, ends and radius; raise `ExcitationError`."""
        if self.base and self.link != -1:
            raise ExcitationError(f"capsule '{self.name}': base is for what stands still, on link -1")
        for what, point in (("start", self.start), ("end", self.end)):
            _check_point(f"{what} of capsule '{self.name}'", point)
        if not (self.radius > 0.0 and math.isfinite(self.radius)):
            raise ExcitationError(f"capsule '{self.name}': radius {self.radius:g} m must be finite and above 0")


def neighbours(one: Capsule, other: Capsule) -> bool:
    """Check whether two bodies are connected by a joint, so that they are always near each other."""
    links = sorted((one.link, other.link))
    carried = one.base or other.base or links[0] >= 0
    return links[1] - links[0] == 1 and carried


def compared_pairs(
    bodies: Sequence[Capsule], pairs: Sequence[tuple[str, str]] | None, skip_pairs: Sequence[tuple[str, str]] = ()
) -> list[tuple[Capsule, Capsule]]:
    """Return the pairs of bodies to compare: those named, or all that are not neighbours; without `skip_pairs`.

    Raises `ExcitationError` if a body does not exist, or both of a pair are on the same link.
    """
    by_name = {body.name: body for body in bodies}
    for name in (name for pair in (*(pairs or ()), *skip_pairs) for name in pair):
        if name not in by_name:
            raise ExcitationError(f"no capsule is named '{name}'; known: {', '.join(by_name) or 'none'}")
    if pairs is None:
        chosen = [
            (one, other)
            for k, one in enumerate(bodies)
            for other in bodies[:k]
            if one.link != other.link and not neighbours(one, other)
        ]
    else:
        chosen = [(by_name[one], by_name[other]) for one, other in pairs]
        for one, other in chosen:
            if one.link == other.link:
                raise ExcitationError(f"capsules '{one.name}' and '{other.name}' are on the same link: leave out")
    skipped = {frozenset(pair) for pair in skip_pairs}
    return [pair for pair in chosen if frozenset(body.name for body in pair) not in skipped]


@dataclass(frozen=True, eq=False)
class WorkspaceLimits:
    """Regions and pairs of capsules as arrays."""

    link: IntArray  # (K,) links of the points, -1 for the base
    local: FloatArray  # (K, 3) positions of the points in the link's frame
    region_point: IntArray  # (r,) point of each region
    region_kind: IntArray  # (r,) 0 for a box, 1 for inside a sphere, -1 for outside
    region_shape: FloatArray  # (r, 6) low and high corner, or centre and radius
    pairs: IntArray  # (P, 4) points at start and end of one axis, and of the other
    reach: FloatArray  # (P,) sum of both radii and the clearance [m]
    pair_names: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of shares per sample: six for a box, one for a sphere, one for a pair."""
        return int(np.where(self.region_kind == 0, 6, 1).sum()) + len(self.pair_names)

    @property
    def arrays(self) -> tuple[IntArray, IntArray, FloatArray, IntArray, FloatArray]:
        """Arrays of regions and pairs, for the kernels."""
        return self.region_point, self.region_kind, self.region_shape, self.pairs, self.reach

    @classmethod
    def of(
        cls, model: RobotModel, regions: Sequence[Region], bodies: Sequence[Capsule], clearance_m: float = 0.0,
        pairs: Sequence[tuple[str, str]] | None = None, skip_pairs: Sequence[tuple[str, str]] = (),
    ) -> WorkspaceLimits:  # fmt: skip
        """Return the arrays for `regions`, and for the pairs of `bodies` by `compared_pairs`.

        Raises `ExcitationError` if a link or body does not exist, a name is used twice, or there are too many pairs.
        """
        links: list[int] = []
        local: list[Sequence[float]] = []

        def place(link: int, point: Sequence[float], what: str) -> int:
            if not -1 <= link < model.n:
                raise ExcitationError(
                    f"{what}: link {link} does not exist, robot '{model.name}' has links 0 to {model.n - 1}, "
                    "and -1 for its base"
                )
            links.append(link)
            local.append(point)
            return len(links) - 1

        shapes, kinds, points = [], [], []
        for region in regions:
            point = region.point
            if point is None:
                point = tuple(model.tip_translation.tolist()) if region.link is None else (0.0, 0.0, 0.0)
            points.append(place(model.n - 1 if region.link is None else region.link, point, f"region '{region.name}'"))
            if isinstance(region, Box):
                kinds.append(0)
                shapes.append([*region.low, *region.high])
            else:
                kinds.append(1 if region.side == "inside" else -1)
                shapes.append([*region.centre, region.radius, 0.0, 0.0])
        names = [region.name for region in regions]
        for k, name in enumerate(names):
            if name in names[:k]:
                raise ExcitationError(f"two regions are named '{name}': give each its own name")
        if len({body.name for body in bodies}) < len(bodies):
            raise ExcitationError("two capsules have the same name: give each its own")
        if not (clearance_m >= 0.0 and math.isfinite(clearance_m)):
            raise ExcitationError(f"clearance_m must be finite and not negative, not {clearance_m:g}")
        ends = {
            body.name: [place(body.link, end, f"capsule '{body.name}'") for end in (body.start, body.end)]
            for body in bodies
        }
        chosen = compared_pairs(bodies, pairs, skip_pairs)
        if len(chosen) > MAX_PAIRS:
            raise ExcitationError(
                f"{len(chosen)} pairs of bodies are to be compared, {MAX_PAIRS} at most: name those that matter under "
                "pairs"
            )
        return cls(
            np.array(links, dtype=np.int64), np.array(local, dtype=np.float64).reshape(-1, 3),
            np.array(points, dtype=np.int64), np.array(kinds, dtype=np.int64),
            np.array(shapes, dtype=np.float64).reshape(-1, 6),
            np.array([ends[one.name] + ends[other.name] for one, other in chosen], dtype=np.int64).reshape(-1, 4),
            np.array([one.radius + other.radius + clearance_m for one, other in chosen]),
            tuple(f"{one.name} to {other.name}" for one, other in chosen),
        )  # fmt: skip
