"""Driver of a simulated arm: frames in real time, at a multiple of it, or as fast as they are read."""

import math
import time
from collections.abc import Callable
from typing import Literal

from drivers.driver import DriverClosedError, DriverConfigError, DriverError, DriverInfo, EndOfStream, OpenedInWith
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from sim_backend.arm.pace import Pace
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from sim_backend.arm.trajectory import Motion
from sim_backend.errors import SimulationConfigError, SimulationDivergedError


class SimDriver(OpenedInWith):
    """Frames of a `SimulatedArm` of `model` (with inertial parameters); by default an endless Fourier motion.

    Sample `k` is due `k * period / pace` after the first `read`, on absolute deadlines of CLOCK_MONOTONIC: a late
    reader gets all missed samples at once.  With pace `"max"` a sample is computed when it is read.  The stream ends
    after the last sample of a finite motion.
    """

    def __init__(
        self, model: RobotModel, settings: SimSettings | None = None, motion: Motion | MotionSettings | None = None,
        pace: float | Literal["max"] = 1.0,
    ) -> None:  # fmt: skip
        self._model = model
        self._settings = SimSettings() if settings is None else settings
        self._motion = motion
        self._pace = pace
        self._arm: SimulatedArm | None = None
        self._seq = 0
        self._last = math.inf
        self._wait: Callable[[int, float], None] | None = None

    @property
    def arm(self) -> SimulatedArm:
        """The simulated arm; raises `DriverClosedError` unless open."""
        if self._arm is None:
            raise DriverClosedError(f"simulated arm '{self._model.name}' is not open")
        return self._arm

    @property
    def info(self) -> DriverInfo:
        """Description of the frames; raises `DriverClosedError` unless open."""
        return DriverInfo(
            source="sim", joint_names=tuple(joint.name for joint in self._model.joints), channels=self.arm.channels,
            rate_hz=self._settings.rate_hz, clock="sim", lossless=self._pace == "max",
        )  # fmt: skip

    def open(self) -> None:
        """Build the arm and compile its kernels; raises `DriverConfigError` if it cannot be simulated."""
        if self._arm is not None:
            raise DriverConfigError(f"simulated arm '{self._model.name}' is already open: close it first")
        if self._pace != "max" and not (math.isfinite(self._pace) and self._pace > 0.0):
            raise DriverConfigError(
                f"pace of simulated arm '{self._model.name}' is {self._pace}, must be > 0 or \"max\""
            )
        try:
            arm = SimulatedArm(self._model, self._settings, self._motion)
            arm.simulate(2.0 / self._settings.rate_hz)
            arm.reset()
        except (SimulationConfigError, SimulationDivergedError) as error:
            raise DriverConfigError(str(error)) from error
        self._arm = arm
        self._seq = 0
        self._wait = None if self._pace == "max" else Pace(self._model.name, arm.settings.rate_hz, self._pace).wait
        self._last = math.inf
        if math.isinf(arm.motion.period_s) and math.isfinite(arm.motion.duration_s):
            self._last = math.floor(arm.motion.duration_s * self._settings.rate_hz + 1e-9)

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Wait for the next frame and return it.

        Raises `EndOfStream` after the motion, `DriverTimeoutError` if the next sample is due later than `timeout_s`
        from now, `DriverClosedError` unless open, and `DriverError` if the simulation diverged.
        """
        arm = self.arm
        if self._seq > self._last:
            raise EndOfStream(f"the motion of simulated arm '{self._model.name}' has ended after {self._seq} samples")
        if self._wait is not None:
            self._wait(self._seq, timeout_s)
        try:
            frame = arm.step()
        except SimulationDivergedError as error:
            raise DriverError(str(error)) from error
        frame.t_host_ns = time.monotonic_ns()
        self._seq += 1
        return frame

    def close(self) -> None:
        """Release the arm; may be called more than once."""
        self._arm = None
