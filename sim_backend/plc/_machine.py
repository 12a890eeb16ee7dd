"""The machine behind the PLC: axes, each on a joint of one simulated arm."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray
from sim_backend.arm.settings import SimSettings
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.drive.drive_arm import DriveArm
from sim_backend.drive.modes import BRAKED, CSP
from sim_backend.drive.sample import DriveSample
from sim_backend.errors import SimulationConfigError
from sim_backend.plc._axes import Axes
from sim_backend.plc.settings import AxisSettings

#: Speed below which an axis is at standstill, as a share of its largest.
_STANDSTILL = 0.005


@dataclass(slots=True)
class Measured:
    """Values of all axes at one instant, (n,) in the axes' units; where not `valid`, the last ones."""

    position: FloatArray
    velocity: FloatArray
    motor_position: FloatArray
    torque: FloatArray
    current: FloatArray
    temperature: FloatArray
    valid: BoolArray


class Machine:
    """Axes in the order of the joints that they move, on a `model` with `inertial`.

    `start` are joint positions at the beginning [rad or m], by default mid-range; `enable_s` is the time from power to
    enabled axes [s].  Raises `SimulationConfigError` if there is not one axis for each joint, or the arm cannot be
    simulated.

    The program sets `power`, `follow` (the set positions) and `target` (n,), those of the next cycle in the axes'
    units.  Of the axes (n,), `enabled` are on; `failing` have the cause of a fault, `faulty` a reported one until it is
    reset; `silent` have no values.  `sample` is the arm at this instant.
    """

    def __init__(
        self, model: RobotModel, axes: Sequence[AxisSettings], settings: SimSettings,
        start: Sequence[float] | None = None, enable_s: float = 0.1,
    ) -> None:  # fmt: skip
        names = [joint.name for joint in model.joints]
        if [axis.joint for axis in axes] != names:
            raise SimulationConfigError(
                f"the axes are those of {', '.join(axis.joint for axis in axes)}, and robot '{model.name}' has "
                f"{', '.join(names)}: list one axis for each, in this order"
            )
        self.arm = DriveArm(model, settings, start=start)
        self.axes = Axes(axes)
        self.sample: DriveSample = self.arm.sample()
        n = model.n
        self.power = self.follow = False
        self.enabled = np.zeros(n, np.bool_)
        self.failing, self.faulty, self.silent = (np.zeros(n, np.bool_) for _ in range(3))
        self._enable_s = enable_s
        self._powered_s = 0.0
        self._standstill = _STANDSTILL * self.axes.speed(MotionLimits.of(model).velocity)
        self.measured = self._measure(self.sample)
        self.target = self.measured.position.copy()

    def advance(self, period_s: float) -> None:
        """Move the arm by a cycle, and measure; raises `SimulationDivergedError`."""
        self.faulty |= self.failing
        self._powered_s = self._powered_s + period_s if self.power else 0.0
        powered = np.full(self.faulty.shape, self.power) & ~self.faulty
        self.enabled = powered & (self._powered_s > self._enable_s)
        mode = np.where(powered, CSP, BRAKED)
        x = self.axes.joint_position(self.target)
        brake = ~(powered & self.follow)
        self.sample = self.arm.step(mode, x, None, period_s, brake=brake)
        measured = self._measure(self.sample)
        if self.silent.any():
            measured = self._without_silent(measured)
        self.measured = measured

    def reset(self) -> None:
        """Reset the faults whose cause is gone."""
        self.faulty &= self.failing

    def switch_off(self) -> None:
        self.power = self.follow = False

    @property
    def standing(self) -> bool:
        return bool(np.all(np.abs(self.measured.velocity) <= self._standstill))

    def _measure(self, sample: DriveSample) -> Measured:
        axes = self.axes
        angle = axes.angle(sample.x)
        return Measured(
            axes.position(angle), axes.velocity(sample.v), axes.motor_position(angle), axes.torque(sample.u),
            axes.current(sample.u), sample.temperature, ~self.silent,
        )  # fmt: skip

    def _without_silent(self, measured: Measured) -> Measured:
        names = (item.name for item in fields(Measured) if item.name != "valid")
        kept = {name: np.where(self.silent, getattr(self.measured, name), getattr(measured, name)) for name in names}
        return Measured(**kept, valid=~self.silent)
