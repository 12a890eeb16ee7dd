"""Workspace regions for points of the arm and clearances between bodies.

A point is fixed to a link, link `i` being moved by joint `i`, or to the base (-1).  Regions bound one point each.
Capsules, the points within `radius` of a segment (a sphere if its ends coincide), cover links; two of them must be
`clearance_m` apart.  The check is in `rt_core.excitation._workspace_kernels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.shapes import Box, Capsule, Region
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

#: Maximum number of pairs of capsules, for the time of a design.
MAX_PAIRS = 1000


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
    ) -> "WorkspaceLimits":  # fmt: skip
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
