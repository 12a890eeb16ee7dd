"""Runs of a simulated arm, frame by frame on a virtual clock."""

from typing import Any

import numpy as np
import pytest

from drivers.driver import DriverTimeoutError
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.safety import PermitError
from rt_core.types import FloatArray
from service.config.arm_tables import SafetyConfig
from service.io.trajectory_file import Trajectory
from service.motion._motion_controller import MotionController
from sim_backend.arm.settings import FaultSettings, SimSettings
from sim_backend.drive.commanded_driver import CommandedDriver

ROBOT = load_robot("arm7")
MODEL = ROBOT.model
N = MODEL.n
PERIOD_S = 0.001
JOINTS = tuple(joint.name for joint in MODEL.joints)
START = np.array([0.2, 0.4, -0.3, 0.8, 0.1, 0.5, -0.2])
ACCELERATION = 5.0 * np.array([joint.velocity for joint in MODEL.joints])
QUIET = SimSettings(torque_noise=0.0, velocity_noise=0.0)


def series(size: float = 0.5, f0_hz: float = 0.5, harmonics: int = 4, seed: int = 1) -> FourierSeries:
    """A series from rest to rest; `size` is about its largest velocity [rad/s]."""
    rng = np.random.default_rng(seed)
    k = np.arange(1.0, harmonics + 1)
    a = rng.normal(size=(N, harmonics - 1)) @ rest_basis(np.ones(harmonics)).T
    b = rng.normal(size=(N, harmonics - 1)) @ rest_basis(k).T
    shape = FourierSeries(f0_hz, START, a, b)
    speed = np.abs(shape.sample(np.arange(0.0, 1.0 / f0_hz, 0.001))[1]).max(axis=0)
    return shape.shrunk(size / speed)


def trajectory(**changes: Any) -> Trajectory:
    given: dict[str, Any] = {"joints": JOINTS, "units": ("rad",) * N, "series": series()}
    return Trajectory(**given | changes)


class Bench:
    """An arm, its motion controller, and a clock that advances with the frames."""

    def __init__(self, *faults: dict[str, Any], **safety: Any) -> None:
        self.driver = CommandedDriver(
            MODEL, QUIET, pace=1e6, start=START, faults=[FaultSettings.model_validate(fault) for fault in faults]
        )
        self.driver.open()
        self.controller = MotionController(MODEL, ROBOT.sha256, SafetyConfig(**safety), PERIOD_S)
        self.now = 100.0
        self.frames: list[JointFrame] = []
        self.beats = True
        self.token = "a"

    @property
    def phase(self) -> str:
        return self.controller.state.phase

    @property
    def reason(self) -> str:
        return self.controller.state.reason

    def turn(self) -> None:
        """Run one cycle, or one step of time while there is no frame."""
        run = self.controller.run
        if self.beats and run is not None and run.outcome in ("checked", "moving", "stopping"):
            self.controller.heartbeat(self.token, self.now)
        try:
            frame = self.driver.read(0.0)
        except DriverTimeoutError:
            self.now += PERIOD_S
            self.controller.silent(self.driver, self.now)
            return
        self.now = 100.0 + frame.t_bus_ns * 1e-9
        self.frames.append(frame)
        self.controller.step(frame, self.driver, self.now)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()

    def until(self, *phases: str, cycles: int = 20_000) -> None:
        for _ in range(cycles):
            if self.phase in phases:
                return
            self.turn()
        pytest.fail(f"{self.phase}: {self.reason}")

    def arm(self, for_s: float = 60.0) -> None:
        self.controller.arm(self.token, self.now, for_s, self.driver)
        self.until("armed", "disarmed")

    def start(self, what: Trajectory | None = None, periods: int = 2, *, hold: bool = False) -> None:
        what = trajectory() if what is None else what
        self.controller.start(what, self.token, self.now, periods=periods, hold=hold, name="x", changed=False)

    def run(self, what: Trajectory | None = None, periods: int = 2, *, hold: bool = False) -> None:
        """Arm and start, until the trajectory itself is being followed."""
        self.arm()
        self.start(what, periods, hold=hold)
        self.until("running", "disarmed")

    @property
    def outcome(self) -> tuple[str, str]:
        run = self.controller.run
        return run.outcome, run.reason

    def stops(self, words: str, *, commanded: bool = True) -> None:
        """Go on until the run has been stopped for this reason, by command or by the drives; nothing moves it again."""
        self.until("disarmed")
        outcome, reason = self.outcome
        assert outcome == "stopped"
        assert words in reason
        if commanded:
            self.commanded_within_limits()
        self.stays_off()

    def setpoints(self) -> FloatArray:
        return np.array([frame.setpoint for frame in self.frames])

    def commanded_within_limits(self) -> None:
        """Check that set positions with drives on kept the acceleration limits and ended at rest."""
        on = np.array([frame.status_word is not None and frame.status_word[0] == 0x0237 for frame in self.frames])
        q = self.setpoints()[on]
        change = np.abs(np.diff(q, 2, axis=0)) / PERIOD_S**2
        assert (change <= ACCELERATION * (1.0 + 1e-5)).all(), change.max(axis=0) / ACCELERATION
        if len(q) > 1:
            assert (np.abs(q[-1] - q[-2]) <= ACCELERATION * PERIOD_S**2).all()

    def stays_off(self) -> None:
        """Check that nothing moves the arm until it is armed again."""
        assert self.phase == "disarmed"
        self.turns(500)
        assert not self.driver.enabled
        here = len(self.frames)
        with pytest.raises(PermitError):
            self.start()
        self.turns(200)
        assert np.abs(np.diff([frame.q for frame in self.frames[here:]], axis=0)).max() < 1e-5
        self.arm()
        assert self.phase == "armed"
