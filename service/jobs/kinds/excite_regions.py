"""Regions and bodies of the job `excite`, as `rt_core.excitation.workspace_regions` explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from service.operations.errors import OperationError
from service.operations.kind import Parameters

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.excitation.urdf_capsules import UrdfCapsules
    from rt_core.excitation.workspace_regions import Box, Capsule, Sphere

Point = tuple[float, float, float]
Metres = Annotated[float, Field(gt=0.0, le=1e3)]
Link = Annotated[int, Field(ge=-1, le=100)]
Name = Annotated[str, Field(min_length=1, max_length=40)]


class BoxRegion(Parameters):
    """A point of the arm must stay in a box of the base frame [m]; the tip without `link` and `point`."""

    low: Point
    high: Point
    link: Link | None = None
    point: Point | None = None
    name: Name = "tip"

    def place(self) -> Box:
        """Return it for the design; raises `ExcitationError`."""
        from rt_core.excitation.workspace_regions import Box

        return Box(self.low, self.high, self.link, self.point, self.name)


class SphereRegion(Parameters):
    """A point of the arm must stay in a sphere of the base frame [m], or out of it."""

    centre: Point
    radius: Metres
    side: Literal["inside", "outside"] = "inside"
    link: Link | None = None
    point: Point | None = None
    name: Name = "tip"

    def place(self) -> Sphere:
        """Return it for the design; raises `ExcitationError`."""
        from rt_core.excitation.workspace_regions import Sphere

        return Sphere(self.centre, self.radius, self.side, self.link, self.point, self.name)


class Body(Parameters):
    """A capsule on a link, from 0, or fixed in the base frame (-1); ends in the link's frame [m].

    `base` marks the arm's support, which link 0 need not keep away from.
    """

    name: Name
    link: Link
    start: Point
    end: Point
    radius: Metres
    base: bool = False

    def place(self) -> Capsule:
        """Return it for the design; raises `ExcitationError`."""
        from rt_core.excitation.workspace_regions import Capsule

        return Capsule(self.name, self.link, self.start, self.end, self.radius, self.base)


def urdf_capsules(robot: RobotFile) -> UrdfCapsules:
    """Cover the collision shapes of the robot's URDF with capsules; `OperationError` if there are none."""
    from rt_core.excitation.urdf_capsules import capsules_from_urdf
    from rt_core.model.urdf import UrdfError

    text = robot.source.get("urdf_text")
    if text is None:
        raise OperationError(
            f"urdf_bodies: robot '{robot.model.name}' is not described by a URDF: give bodies in its place"
        )
    try:
        found = capsules_from_urdf(text, base_link=robot.source.get("base_link"), tip_link=robot.source.get("tip_link"))
    except UrdfError as error:
        raise OperationError(f"urdf_bodies: {error}: mend the URDF, or give bodies in its place") from error
    if not found.capsules:
        kind = "only meshes, which are not read" if found.unread else "no collision shapes"
        raise OperationError(
            f"urdf_bodies: the URDF of robot '{robot.model.name}' has {kind}: give bodies in their place"
        )
    return found


def not_compared(robot: RobotFile, *, wanted: bool) -> tuple[str, ...]:
    """Return the collision shapes of the robot's URDF that are not checked, in words: some, or all unless `wanted`."""
    if wanted:
        found = urdf_capsules(robot)
        unread = [f"collision shape {name}: meshes are not read" for name in found.unread]
        loose = [f"collision shapes of {name}: it moves on a joint off the arm, and counts as at its zero position"
                 for name in found.moving]  # fmt: skip
        return (*unread, *loose)
    if "<collision" in robot.source.get("urdf_text", ""):
        return ("collision shapes of the URDF: urdf_bodies=true compares them",)
    return ()
