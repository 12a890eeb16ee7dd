"""The machine behind a segment: drives, each on a joint of one simulated arm.

A cycle ends the period under the commands of the cycle before, passes the sample to the drives, and takes their
commands for the next period.  Inputs are thus the sample at the instant of the cycle, and outputs act from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.settings import SimSettings
from sim_backend.canopen.dictionary import ObjectDictionary
from sim_backend.drive.drive import Cia402Drive, DriveOptions, Emergency
from sim_backend.drive.drive_arm import DriveArm
from sim_backend.drive.modes import BRAKED, MODES
from sim_backend.drive.sample import DriveSample
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat._axis import Axis, JointDemand, Mounting
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._profile import DeviceProfile
from sim_backend.ethercat.registers import AL_OP

_AT_REST = JointDemand(BRAKED, 0.0, 0.0, 0.0, True)


@dataclass(frozen=True)
class DriveFitting:
    """A drive of the machine: profile, object dictionary, mounting on its joint, options."""

    profile: DeviceProfile
    dictionary: ObjectDictionary
    mounting: Mounting = field(default_factory=Mounting)
    options: DriveOptions = field(default_factory=DriveOptions)


class Machine:
    """Drives in the order of the joints that they move; slave `k` of the segment is drive `k`.

    The model needs `inertial`; `settings` are those of `DriveArm`, without quantisation, as the drives quantise.
    `start` are the joint positions (n,) at the beginning [rad or m], by default mid-range.  Raises
    `SimulationConfigError` for an arm that cannot be simulated, or without one drive for each joint. `sample` is the
    arm at the last cycle; `emergencies` are those of that cycle, with the slaves that sent them.
    """

    def __init__(
        self, model: RobotModel, fittings: Sequence[DriveFitting], settings: SimSettings | None = None,
        start: FloatArray | Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        if len(fittings) != model.n:
            raise SimulationConfigError(
                f"robot '{model.name}' has {model.n} joints, but there are {len(fittings)} drives: give one for each"
            )
        self.arm = DriveArm(model, settings, start=start)
        self.drives: list[Cia402Drive] = []
        self.axes: list[Axis] = []
        for fitting in fittings:
            modes = tuple(MODES[name] for name in fitting.profile.drive.modes)
            drive = Cia402Drive(fitting.dictionary, replace(fitting.options, modes=modes))
            axis = Axis(fitting.profile, fitting.dictionary, drive.objects, fitting.mounting)
            drive.options = replace(drive.options, units_per_motor_rev=axis.units_per_motor_rev)
            self.drives.append(drive)
            self.axes.append(axis)
        self.sample: DriveSample = self.arm.sample()
        self.emergencies: list[tuple[int, Emergency]] = []
        self._powered = [True] * model.n
        self._buses: list[SlaveController] | None = None
        self._motions = [_AT_REST] * model.n

    def connect(self, buses: Sequence[SlaveController]) -> None:
        """Set the controllers of the slaves; without them process data count as valid in every cycle."""
        if len(buses) != len(self.drives):
            raise SimulationConfigError(f"{len(buses)} controllers for {len(self.drives)} drives: give one for each")
        self._buses = list(buses)

    def cycle(self, period_s: float) -> None:
        """Move the arm by `period_s` and run a cycle of each drive; raises `SimulationDivergedError`."""
        mode, target, offset, limit, brake = zip(*self._motions, strict=True)
        self.sample = sample = self.arm.step(mode, target, offset, period_s, brake=brake, torque_limit=limit)
        x, v, u = sample.x.tolist(), sample.v.tolist(), sample.u.tolist()
        limited, temperature = sample.limited.tolist(), sample.temperature.tolist()
        self.emergencies = []
        for k, (drive, axis) in enumerate(zip(self.drives, self.axes, strict=True)):
            motion = _AT_REST
            if self._powered[k]:
                feedback = axis.feedback(x[k], v[k], u[k], limited[k], temperature[k])
                bus = None if self._buses is None else self._buses[k]
                online = bus is None or bus.al_state == AL_OP
                fresh = bus is None or bus.fresh
                motion = axis.motion(drive.cycle(feedback, period_s, online, fresh))
                for emergency in drive.take_emergencies():
                    self.emergencies.append((k, emergency))
                    if bus is not None:
                        bus.emergency(emergency.code, emergency.register, emergency.data)
            self._motions[k] = motion

    def power_off(self, slave: int) -> None:
        """Cut the power of a drive: its motor has no torque, its brake closes."""
        self._powered[slave] = False

    def power_on(self, slave: int) -> None:
        """Restore the power of a drive; it starts from "Not ready to switch on"."""
        if not self._powered[slave]:
            self._powered[slave] = True
            self.drives[slave].power_on()
            self.axes[slave].power_on()

    def stuck_encoder(self, slave: int, stuck: bool = True) -> None:
        """Freeze a drive's encoder reading, or release it."""
        self.axes[slave].stuck = stuck

    def encoder_jump(self, slave: int, counts: int) -> None:
        """Shift a drive's encoder reading."""
        self.axes[slave].jump(counts)

    def drive_fault(self, slave: int, code: int) -> None:
        """Trip a drive with an error code."""
        self.drives[slave].fault(code)

    def safe_torque_off(self, slave: int, active: bool = True) -> None:
        """Set a drive's safe-torque-off input."""
        self.drives[slave].safe_torque_off = active

    def mains(self, slave: int, on: bool) -> None:
        """Switch the motor power of a drive; its electronics keep running."""
        self.drives[slave].mains = on
