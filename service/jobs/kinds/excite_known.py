"""Earlier motions of the job `excite`: the new trajectory excites what they leave undetermined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from service.operations.errors import OperationError
from service.operations.kind import Parameters

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.excitation.fourier import FourierSeries
    from rt_core.excitation.settings import ExcitationSettings
    from rt_core.excitation.urdf_capsules import UrdfCapsules
    from rt_core.model.robot import RobotModel
    from rt_core.types import FloatArray

#: Samples per period of the highest harmonic.
_SAMPLES = 100

Row = Annotated[list[float], Field(min_length=1, max_length=100)]


class EarlierMotion(Parameters):
    """A recorded Fourier series; the numbers are those of its `trajectory.json`.

    `robot` and `robot_sha256` are what it was designed for; empty if unknown.
    """

    joints: Annotated[list[str], Field(min_length=1, max_length=100)]
    f0_hz: Annotated[float, Field(ge=1e-4, le=100.0)]
    q0: Row
    a: Annotated[list[Row], Field(min_length=1, max_length=100)]
    b: Annotated[list[Row], Field(min_length=1, max_length=100)]
    periods: int = Field(default=1, ge=1, le=10_000)
    robot: Annotated[str, Field(max_length=200)] = ""
    robot_sha256: Annotated[str, Field(max_length=64)] = ""

    @property
    def seconds(self) -> float:
        """Its recorded duration."""
        return self.periods / self.f0_hz

    def series(self, model: RobotModel) -> FourierSeries:
        """Return it as a series for `model`; raises `ExcitationError`."""
        from rt_core.excitation.errors import ExcitationError
        from rt_core.excitation.fourier import FourierSeries

        mine, its = self.joints, [joint.name for joint in model.joints]
        if mine != its:
            raise ExcitationError(
                f"after: a trajectory of the joints {', '.join(mine)}, robot '{model.name}' has {', '.join(its)}"
            )
        series = FourierSeries.from_dict(self.model_dump())
        if series.n != model.n:
            raise ExcitationError(f"after: coefficients of {series.n} joints, and names of {model.n}")
        return series


def check_earlier(earlier: Sequence[EarlierMotion], robot: RobotFile, *, changed: bool) -> None:
    """Raise `OperationError` if a motion is not of this robot, or, but for `changed`, of its present description."""
    for motion in earlier:
        if motion.robot and motion.robot != robot.model.name:
            raise OperationError(f"after: a trajectory for robot '{motion.robot}', this one is '{robot.model.name}'")
        if motion.robot_sha256 and motion.robot_sha256 != robot.sha256 and not changed:
            raise OperationError(
                f"after: a trajectory that was designed on another version of the description of robot "
                f"'{robot.model.name}' (SHA-256 {motion.robot_sha256[:12]}, now {robot.sha256[:12]}): leave it out, or "
                "set changed_robot (--changed-robot) if the arm that recorded it is the same"
            )


def earlier_information(
    earlier: Sequence[EarlierMotion], model: RobotModel, settings: ExcitationSettings
) -> FloatArray | None:
    """Return the information (p, p) of all `earlier` motions per row of one period of the new one; None without any.

    Old and new rows count alike: they are assumed to have the same rate and noise. `ExcitationError` if a motion is not
    one of this robot.
    """
    import numpy as np

    from rt_core.excitation.fourier import Basis
    from rt_core.excitation.objective import Excitation

    motions = [(motion, motion.series(model)) for motion in earlier]
    if not motions:
        return None
    plain = Excitation(model, settings.objective, scaled=False, columns=settings.columns)
    total = np.zeros((len(plain.layout), len(plain.layout)))
    for motion, series in motions:
        grid = Basis.grid(_SAMPLES * series.harmonics, series.f0_hz, series.harmonics)
        total += motion.seconds * settings.f0_hz * plain.information(grid.states(series))
    return total


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
        raise OperationError(f"urdf_bodies: {error}: correct the URDF, or give bodies in its place") from error
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
