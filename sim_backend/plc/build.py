"""Build a PLC from its description: arm, axes, program, faults."""

import time

from drivers.files.robots.file import RobotError, load_robot
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS
from sim_backend.errors import SimulationConfigError
from sim_backend.faults import FaultSchedule
from sim_backend.plc._faults import check_axes
from sim_backend.plc._machine import Machine
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc.settings import PlcFileError, PlcSettings


def build_plc(settings: PlcSettings, now_ns: int, wall_ns: int | None = None, origin: str = "PLC") -> SimulatedPlc:
    """Build a PLC whose first cycle begins at `now_ns` of CLOCK_MONOTONIC [ns].

    `wall_ns` is the host's time then [ns since 1970], by default now; `origin` that of `settings`, for messages.
    Raises `PlcFileError`: robot, axes or faults do not fit together.
    """
    try:
        model = load_robot(settings.robot).model
        noise = {"torque_noise": settings.torque_noise, "velocity_noise": settings.velocity_noise}
        sim = DRIVE_ARM_SETTINGS.model_copy(update={"seed": settings.seed} | noise)
        machine = Machine(model, settings.axis, sim, settings.start, settings.enable_ms * 1e-3)
        check_axes(settings.fault, [axis.joint for axis in settings.axis])
    except (RobotError, SimulationConfigError) as error:
        raise PlcFileError(f"{origin}: {error}") from error
    wall_ns = time.time_ns() - (time.monotonic_ns() - now_ns) if wall_ns is None else wall_ns
    wall_ns += round(settings.clock_offset_ms * 1e6)
    schedule = FaultSchedule(settings.fault, settings.cycle_ns)
    return SimulatedPlc(settings, model, machine, schedule, now_ns, wall_ns)
