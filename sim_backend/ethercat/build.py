"""Build a segment from its description: arm, drives, slave controllers, faults."""

from collections.abc import Callable
from functools import partial

from drivers.files.robots.file import RobotError, load_robot
from rt_core.model.robot import RobotModel
from sim_backend.canopen.dictionary import ObjectDictionary
from sim_backend.drive.drive import DriveOptions
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat import _faults as faults
from sim_backend.ethercat._axis import Mounting
from sim_backend.ethercat._clock import ClockSettings
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._faults import Fault, slave_number
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.registers import AL_OP, UInt8Array
from sim_backend.ethercat.settings import DriveSettings, SegmentFileError, SegmentSettings
from sim_backend.faults import FaultSchedule


def apply_fault(fault: faults.Fault, slave: int, segment: Segment, machine: Machine) -> None:
    """Apply a fault to segment and machine; `slave` is ignored where the fault is the segment's."""
    match fault:
        case faults.LostFrame(after="slaves"):
            segment.drop_replies(fault.count)
        case faults.LostFrame():
            segment.drop_frames(fault.count)
        case faults.Cut():
            segment.cut(fault.after)
        case faults.Mend():
            segment.mend()
        case faults.PowerOff():
            segment.power_off(slave)
        case faults.PowerOn():
            segment.power_on(slave)
        case faults.WorkingCounterDrop():
            segment.deaf(slave, fault.frames)
        case faults.AlError():
            segment.al_error(slave, fault.code)
        case faults.EmergencyMessage():
            segment.emergency(slave, fault.code)
        case faults.StuckEncoder():
            machine.stuck_encoder(slave, fault.stuck)
        case faults.EncoderJump():
            machine.encoder_jump(slave, fault.counts)
        case faults.ClockDrift():
            segment.drift_clock(slave, fault.ppm)
        case faults.ClockStep():
            segment.step_clock(slave, fault.ns)
        case faults.SlowReply():
            segment.delay_replies(fault.ns, fault.frames)
        case faults.RefuseOp():
            controller = segment.controllers[slave]
            controller.refuse_op, controller.refuse_op_code = fault.refuse, fault.code
        case faults.DriveFault():
            machine.drive_fault(slave, fault.code)
        case faults.SafeTorqueOff():
            machine.safe_torque_off(slave, fault.active)
        case faults.Mains():
            machine.mains(slave, fault.on)


RATED_TORQUE, RATED_CURRENT = 0x6076, 0x6075


class SimulatedSegment:
    """A segment with its machine and its faults; faults count from the first time that all slaves are in OP.

    `now_ns` is CLOCK_MONOTONIC at power-on.  Raises `SimulationConfigError` or `RobotError` if robot, drives or faults
    do not fit together.
    """

    def __init__(self, settings: SegmentSettings, now_ns: int) -> None:
        self.model: RobotModel = load_robot(settings.robot).model
        names = [joint.name for joint in self.model.joints]
        if [drive.joint for drive in settings.drive] != names:
            raise SegmentFileError(
                f"the drives are those of {', '.join(drive.joint for drive in settings.drive)}, and robot "
                f"'{self.model.name}' has {', '.join(names)}: list one drive for each, in this order"
            )
        options = DriveOptions(extrapolated=settings.bridge_cycles)
        fittings = [_fitting(drive, options) for drive in settings.drive]
        sim = DRIVE_ARM_SETTINGS.model_copy(update={"seed": settings.seed, "torque_noise": settings.torque_noise})
        self.machine = Machine(self.model, fittings, sim, settings.start)
        factories: list[Callable[[UInt8Array], SlaveController]] = [
            partial(
                SlaveController, profile=fitting.profile, dictionary=fitting.dictionary, alias=drive.alias,
                serial=drive.serial,
            )
            for drive, fitting in zip(settings.drive, fittings, strict=True)
        ]  # fmt: skip
        clocks = [ClockSettings(drive.clock_ppm, drive.clock_start_ns) for drive in settings.drive]
        self.segment = Segment(
            factories, self.machine, ring=settings.ring, hop_ns=settings.hop_ns, clocks=clocks, now_ns=now_ns
        )
        for place, fault in enumerate(settings.fault):
            slave_number(fault, names, place)  # raises where there is none
        self._names = names
        self.faults: FaultSchedule[Fault] = FaultSchedule(settings.fault)

    def turn(self, now_ns: int) -> None:
        """Apply the faults due at host time `now_ns` (CLOCK_MONOTONIC)."""
        if not self.faults.left:
            return
        steps = self.segment.steps
        if all(controller.al_state == AL_OP for controller in self.segment.controllers):
            self.faults.begin(steps, now_ns)
        for fault in self.faults.due(steps, now_ns):
            apply_fault(fault, slave_number(fault, self._names), self.segment, self.machine)


def _fitting(drive: DriveSettings, options: DriveOptions) -> DriveFitting:
    profile = load_profile(drive.device)
    dictionary = build_dictionary(profile, drive.serial)
    constants = {}
    if drive.rated_torque_nm is not None:
        constants["rated_torque_mnm"] = _rate(dictionary, RATED_TORQUE, drive.rated_torque_nm, drive)
    if drive.rated_current_a is not None:
        constants["rated_current_ma"] = _rate(dictionary, RATED_CURRENT, drive.rated_current_a, drive)
    if constants:
        profile = profile.model_copy(update={"drive": profile.drive.model_copy(update=constants)})
    return DriveFitting(profile, dictionary, Mounting(drive.gear_ratio, drive.sign, drive.offset_rad), options)


def _rate(dictionary: ObjectDictionary, index: int, value: float, drive: DriveSettings) -> int:
    """Set a rated value, in thousandths, and return it."""
    entry = dictionary.find(index)
    thousandths = round(1000.0 * value)
    if entry is None or thousandths < 1:
        what = "has no such object" if entry is None else "cannot be so small"
        raise SegmentFileError(f"joint {drive.joint}: 0x{index:04X} of device {drive.device} {what}")
    entry.value = entry.default = thousandths  # also after a power cycle
    return thousandths


def build_segment(settings: SegmentSettings, now_ns: int, origin: str = "segment") -> SimulatedSegment:
    """Build a segment; raises `SegmentFileError`, which names the `origin` of the settings."""
    try:
        return SimulatedSegment(settings, now_ns)
    except (RobotError, SimulationConfigError) as error:
        raise SegmentFileError(f"{origin}: {error}") from error
