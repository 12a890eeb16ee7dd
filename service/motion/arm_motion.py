"""The motion of an arm by its configuration: runs by request, hand guiding, or `[arm.motion]`."""

from drivers.ads.config import AdsConfig
from drivers.driver import Commandable, Driver, ModeChanging
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import RobotFile
from rt_core.safety import SafetyError
from service.config.load import ArmConfig
from service.motion._safety_limits import CommandBounds, command_bounds
from service.motion.run_verbs import RunRequests
from service.worker.worker import FatalError, Worker
from sim_backend.errors import SimulationConfigError


def make_runs(
    worker: Worker, arm: ArmConfig, robot: RobotFile, driver: Driver, rate_hz: float, bridged: int = 0,
    lead_s: float = 0.0,
) -> RunRequests | None:  # fmt: skip
    """Return the handlers of an arm's runs, or of `[arm.motion]`; None if its drives do not follow set positions.

    Raises `FatalError` if `[arm.safety]` or `[arm.motion]` does not suit the robot.
    """
    if not isinstance(driver, Commandable) or getattr(arm.driver, "mode", None) != "csp":
        return None
    from service.motion._motion_controller import MotionController  # other arms start without it

    pace = getattr(arm.driver, "pace", 1.0)
    if not isinstance(pace, (int, float)):  # as fast as possible: the source refuses commands
        pace = 1.0
    guiding, safety = None, arm.safety
    try:
        bounds = bounds_of(arm.driver)
        if arm.motion is not None:
            from service.motion._standing_motion import StandingMotion, standing_safety  # imports kernels

            safety = standing_safety(robot.model, safety, arm.motion)
        controller = MotionController(robot.model, robot.sha256, safety, 1.0 / rate_hz, bridged, lead_s, pace, bounds)
        if arm.motion is not None:
            return StandingMotion(worker, arm, robot.model, driver, controller)
        if arm.guiding is not None and isinstance(driver, ModeChanging):
            from service.motion._hand_guiding import HandGuiding  # imports the kernels of a controller

            model, period_s = robot.model, 1.0 / rate_hz
            guiding = HandGuiding(model, controller.limits, controller.state, arm.guiding, period_s, pace)
            controller.guiding = guiding
    except (SafetyError, SimulationConfigError) as error:
        raise FatalError(f"arm {arm.name}: {error}") from error
    if worker.restarts:
        controller.state.reason = "the acquisition was restarted"
    if guiding is None:
        return RunRequests(worker, arm, driver, controller)
    from service.motion._hand_guiding_verbs import HandGuidingRequests

    requests = HandGuidingRequests(worker, arm, robot.model, driver, controller, guiding)
    return RunRequests(worker, arm, driver, controller, requests)


def bounds_of(driver: object) -> CommandBounds | None:
    """Return the command limits in a driver's configuration; None if it has none."""
    if isinstance(driver, EthercatConfig):
        return command_bounds(driver.drive)
    return command_bounds(driver.axis) if isinstance(driver, AdsConfig) else None
