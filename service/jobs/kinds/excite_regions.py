"""Bodies that the job `excite` takes from a robot's URDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.operations.errors import OperationError

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.excitation.urdf_capsules import UrdfCapsules


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
