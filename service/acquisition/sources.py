"""Driver of an arm by its configuration, and the check that it suits the robot."""

from importlib import import_module

import numpy as np

from drivers.driver import Driver, DriverConfigError, DriverInfo
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import load_robot
from rt_core.model.robot import RobotModel
from service.config.arm_tables import ReplayConfig, SimConfig
from service.config.load import ArmConfig, BusConfig


def make_driver(arm: ArmConfig, model: RobotModel) -> Driver:
    """Make the configured driver, not yet open; raises `DriverConfigError`, `SpanError` and others."""
    if isinstance(arm.driver, ReplayConfig):
        from drivers.files.recordings.span import Span
        from drivers.replay import ReplayDriver

        span = None if arm.driver.span is None else Span.parse(arm.driver.span)
        return ReplayDriver(arm.driver.recording, speed=arm.driver.speed, span=span, loop=arm.driver.loop)
    if not isinstance(arm.driver, SimConfig):
        module, _, name = arm.driver.made_by.partition(":")
        package = type(arm.driver).__module__.rpartition(".")[0]
        driver: Driver = getattr(import_module(module, package), name)(arm.driver)
        return driver
    sim = arm.driver
    if sim.robot is not None:
        model = _simulated(sim.robot, model)
    if sim.mode is not None and sim.pace != "max":
        from sim_backend.drive.commanded_driver import CommandedDriver

        return CommandedDriver(model, sim.settings, sim.mode, sim.pace, sim.start, sim.enable, sim.faults, sim.wiring)
    from sim_backend.arm.driver import SimDriver

    return SimDriver(model, sim.settings, sim.motion, pace=sim.pace)


def _simulated(ref: str, model: RobotModel) -> RobotModel:
    """Load the robot that is simulated in place of `model`; raises `DriverConfigError` if it has other joints."""
    truth = load_robot(ref).model
    its, names = ([joint.name for joint in m.joints] for m in (truth, model))
    if its != names:
        raise DriverConfigError(
            f"{ref}: the robot that is simulated has joints {', '.join(its)}, the arm "
            f"{', '.join(names)}: they must be the same"
        )
    return truth


def check_source(arm: ArmConfig, model: RobotModel, info: DriverInfo) -> None:
    """Check that an open driver delivers what `model` needs; raises `DriverConfigError`."""
    if info.n != model.n:
        raise DriverConfigError(
            f"arm {arm.name}: the source has {info.n} joints ({', '.join(info.joint_names)}) and "
            f"robot {model.name!r} has {model.n}; choose the robot that was recorded"
        )
    if arm.torque_range is not None and len(arm.torque_range) != model.n:
        raise DriverConfigError(
            f"arm {arm.name}: torque_range has {len(arm.torque_range)} numbers and robot {model.name!r} has {model.n} "
            "joints; give one for each, in the robot's order"
        )
    names = tuple(joint.name for joint in model.joints)
    motors = np.flatnonzero(np.count_nonzero(model.coupling, axis=1) > 1)
    turning = ", ".join(names[motor] for motor in motors)
    if arm.torque_range is not None and "tau" not in info.channels and turning:
        raise DriverConfigError(
            f"arm {arm.name}: torque_range: the source gives currents, and motors of robot {model.name!r} turn with "
            f"more than one joint ({turning}): which joint's torque is at its limit when a motor's current is, is not "
            "known; leave torque_range out, or record the joints' torques"
        )
    if isinstance(arm.driver, BusConfig) and info.joint_names != names:
        raise DriverConfigError(
            f"arm {arm.name}: the drives are those of joints {', '.join(info.joint_names)}, and robot {model.name!r} "
            f"has {', '.join(names)}; list one drive or axis a joint, in the robot's order"
        )
    if isinstance(arm.driver, BusConfig) and turning:
        if isinstance(arm.driver, EthercatConfig):
            raise DriverConfigError(
                f"arm {arm.name}: motors of robot {model.name!r} turn with more than one joint ({turning}), and on "
                "EtherCAT each drive is one joint: put a controller that decouples them in between"
            )
        if not arm.driver.decoupled:
            raise DriverConfigError(
                f"arm {arm.name}: motors of robot {model.name!r} turn with more than one joint ({turning}): if the "
                "PLC's axes are joints, not motors, say decoupled = true in [arm.driver]; if not, the PLC has to "
                "decouple them"
            )
    positions = {"q"} if model.transmission is None else {"q", "q_motor"}
    torques = {"tau"} if model.transmission is None else {"tau", "current"}
    for wanted, what in ((positions, "position"), (torques, "torque")):
        if not wanted & set(info.channels):
            raise DriverConfigError(
                f"arm {arm.name}: the source has no {what} ({' or '.join(sorted(wanted))}); "
                f"it has {', '.join(info.channels) or 'no channels'}"
            )


def pace_of(arm: ArmConfig) -> float:
    """Return the seconds of the source's clock that pass in a second; 1 for a source without a pace."""
    driver = arm.driver
    pace = driver.speed if isinstance(driver, ReplayConfig) else getattr(driver, "pace", 1.0)
    return 1.0 if pace == "max" else float(pace)
