"""Driver of a simulated arm that follows commands, with drives that are enabled and disabled."""

import math
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from drivers.driver import (
    CommandRefusedError,
    DriverClosedError,
    DriverConfigError,
    DriverError,
    DriverInfo,
    DriverTimeoutError,
    Mode,
    OpenedInWith,
)
from drivers.frame import CHANNELS, JointFrame
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.layout import OUT_SETPOINT
from sim_backend.arm.pace import Pace
from sim_backend.arm.settings import DriveSettings, FaultSettings, SimSettings, WiringSettings
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.drive._commanded_faults import Disturbance, Wiring
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import BRAKED, CSP, CST
from sim_backend.drive.sample import DriveSample
from sim_backend.errors import SimulationConfigError, SimulationDivergedError

State = Literal["off", "enabling", "enabled", "stopping", "fault"]

#: Statuswords of CiA 402 by state: switch on disabled, switched on, operation enabled, quick stop active, fault.
STATUS = {"off": 0x0250, "enabling": 0x0233, "enabled": 0x0237, "stopping": 0x0217, "fault": 0x0218}
#: Time from the command to operation, and of that with closed brake; it closes as long before torque ends.
ENABLE_S = 0.15
BRAKE_S = 0.05
#: Time without a set value after which drives stop: in cst always, in csp when the bus is silent.
WATCHDOG_S = 0.1
#: Deceleration of a quick stop over the velocity limit [1/s]: twice the default acceleration limit of motions.
_QUICK_STOP = 10.0
_ROUNDING = 1e-9


class CommandedDriver(OpenedInWith):
    """A simulated arm that fulfils `Driver`, `ModeChanging` and `Reporting`.

    Each `read` moves the arm by one sample period under the latest command.  In `"csp"` a command is the position of
    the joints at the end of the period, and the last one is held; in `"cst"` it is their torque, and until the first
    one the drives hold.  `change_mode` changes the mode while they are on.  All drives are enabled and stopped
    together: a drive that trips loses its torque and closes its brake, the others stop along their quick-stop ramps.

    `model` has inertial parameters.  Settings with the default `drive` have that of
    `sim_backend.drive.drive_arm.DRIVE_ARM_SETTINGS`.  `mode` is that of the drives after enabling, `pace` the simulated
    seconds a second, `start` (n,) the initial position of the joints [rad or m], by default mid-range; `enable` has
    `open` enable the drives.  `wiring` lists the channels that are wired or scaled wrongly.
    """

    def __init__(
        self, model: RobotModel, settings: SimSettings | None = None, mode: Mode = "csp", pace: float = 1.0,
        start: Sequence[float] | None = None, enable: bool = False, faults: Sequence[FaultSettings] = (),
        wiring: Sequence[WiringSettings] = (),
    ) -> None:  # fmt: skip
        given = SimSettings() if settings is None else settings
        if given.drive == DriveSettings():
            given = given.model_copy(update={"drive": DRIVE_ARM_SETTINGS.drive})
        self._model, self._settings = model, given
        self._first_mode = self.mode = mode
        self._pace, self._start, self._enable_at_start = pace, start, enable
        self._faults, self._wires = tuple(faults), tuple(wiring)
        self._arm: DriveArm | None = None

    # ------------------------------------------------------------ the protocol Driver

    @property
    def info(self) -> DriverInfo:
        """Description of the frames; raises `DriverClosedError` unless open."""
        self._checked()
        return DriverInfo(
            source="sim", joint_names=tuple(joint.name for joint in self._model.joints), channels=self._channels,
            rate_hz=self._settings.rate_hz, clock="sim", lossless=False,
        )  # fmt: skip

    def open(self) -> None:
        """Build the arm, at rest with closed brakes, and compile its kernels.

        Raises `DriverConfigError`: the configuration cannot be simulated, or the driver is already open.
        """
        name = self._model.name
        if self._arm is not None:
            raise DriverConfigError(f"simulated arm '{name}' is already open: close it first")
        if not (math.isfinite(self._pace) and self._pace > 0.0):
            raise DriverConfigError(f"pace of simulated arm '{name}' is {self._pace}, must be above 0 to be commanded")
        limits = MotionLimits.of(self._model)
        start = 0.5 * (limits.lower + limits.upper) if self._start is None else np.array(self._start, dtype=np.float64)
        try:
            DriveArm(self._model, self._settings, start=start).step([CSP] * self._model.n, start)  # compiles
            arm = DriveArm(self._model, self._settings, start=start)
            self._disturbance = Disturbance(self._faults, arm)
            self._wiring = Wiring(self._wires, self._model)
        except (SimulationConfigError, SimulationDivergedError) as error:
            raise DriverConfigError(str(error)) from error
        geared = self._model.transmission is not None
        asked = self._settings.channels
        self._channels = tuple(c for c in CHANNELS if c in asked and (geared or c not in ("current", "q_motor")))
        self._coupling = self._model.coupling
        self._period_s = 1.0 / self._settings.rate_hz
        self._wait = Pace(name, self._settings.rate_hz, self._pace).wait
        self._quick_stop = _QUICK_STOP * limits.velocity
        self._seq = 0
        self._state: State = "off"
        self._since_s = 0.0  # in this state
        self._failure = ""
        self._tripped = np.zeros(arm.n, np.bool_)
        self._sample = arm.sample()
        self._x = self._sample.x.copy()  # set position, drive side, and its velocity
        self._v = np.zeros(arm.n)
        self._target: FloatArray | None = None  # as commanded, joint side
        self._command_age_s = 0.0  # since the last command
        self._disable_requested = False
        self._arm = arm
        if self._enable_at_start:
            self.enable()

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Move the arm to its next sample and return that.

        Raises `DriverTimeoutError` if the next sample is due later than `timeout_s` from now or the bus does not
        answer, `DriverClosedError` unless open, and `DriverError` if the simulation diverged.
        """
        self._checked()
        until = time.monotonic() + timeout_s
        while True:
            self._wait(self._seq, max(0.0, until - time.monotonic()))
            try:
                self._advance()
            except SimulationDivergedError as error:
                raise DriverError(str(error)) from error
            seq, self._seq = self._seq, self._seq + 1
            if not self._disturbance.silent:
                return self._frame(seq)
            if time.monotonic() >= until:
                raise DriverTimeoutError(f"simulated arm '{self._model.name}' has not answered for {timeout_s:g} s")

    def close(self) -> None:
        """Release the arm; may be called more than once."""
        self._arm = None

    # ------------------------------------------------------------ the protocols Commandable and Reporting

    @property
    def enabled(self) -> bool:
        """Whether all drives are switched on and follow commands."""
        heard = not (self._disable_requested or self._disturbance.silent) if self._arm is not None else False
        return heard and self._state == "enabled"

    def enable(self) -> None:
        """Enable all drives, over the next samples; faults whose cause is gone are reset.

        Raises `CommandRefusedError`: the bus does not answer, or the drives are still stopping; `DriverClosedError`:
        not open.
        """
        self._checked()
        if self._disturbance.silent:
            raise CommandRefusedError("drives cannot be enabled: no slave answers")
        if self._disable_requested or self._state == "stopping":  # a requested stop is not cancelled
            raise CommandRefusedError("drives cannot be enabled: they are still stopping; try again in a moment")
        if self._state in ("enabling", "enabled"):
            return
        self._disturbance.restart()
        self._tripped[:] = False
        self._failure = ""
        self.mode = self._first_mode
        self._enter("enabling")
        self._take_position()

    def disable(self) -> None:
        """Stop all drives along their quick-stop ramps and disable them, over the next samples."""
        self._checked()
        if self._state in ("enabling", "enabled"):
            self._disable_requested = True  # takes effect when the bus answers

    def change_mode(self, mode: Mode) -> None:
        """Change the mode from the next sample on; the drives hold until a command comes.

        Raises `CommandRefusedError`: not enabled; `DriverClosedError`: not open.
        """
        self._checked()
        if not self.enabled:
            raise CommandRefusedError(f"mode {mode} refused: the drives are in state '{self._state}', not enabled")
        if mode == self.mode:
            return
        self.mode, self._target, self._command_age_s = mode, None, 0.0
        self._v = np.zeros(self._model.n)

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) of the next sample: [rad or m], or [N*m or N] in `"cst"`.

        Raises `CommandRefusedError`: not enabled, not finite, outside the robot's limits, or too large a step;
        `DriverClosedError`: not open.
        """
        self._checked()
        if not self.enabled:
            raise CommandRefusedError(f"command refused: the drives are in state '{self._state}', not enabled")
        wanted = np.array(target, dtype=np.float64)
        if wanted.shape != (self._model.n,) or not np.all(np.isfinite(wanted)):
            raise CommandRefusedError(f"command refused: {wanted} is not {self._model.n} finite numbers")
        here = np.linalg.solve(self._coupling, self._x)
        for goal, step, joint in zip(wanted, np.abs(wanted - here), self._model.joints, strict=True):
            problem = ""
            if self.mode == "cst":
                if abs(goal) > joint.effort:
                    problem = f"to {goal:.6g} exceeds its effort limit {joint.effort:g}"
            elif not joint.lower - _ROUNDING <= goal <= joint.upper + _ROUNDING:
                problem = f"to {goal:.6g} is outside {joint.lower:g} to {joint.upper:g}"
            elif step > joint.velocity * self._period_s * (1.0 + 1e-6):
                problem = f"by {step:.6g} in a cycle exceeds its velocity limit {joint.velocity:g}"
            if problem:
                raise CommandRefusedError(f"command refused: joint '{joint.name}' {problem}")
        self._target = wanted
        self._command_age_s = 0.0

    def report(self) -> dict[str, Any]:
        """Return the state of the drives, as JSON values."""
        self._checked()
        state = "unknown" if self._disturbance.silent else self._state
        return {
            "state": "no answer" if self._disturbance.silent else "operational", "enabled": self.enabled,
            "enable_failure": self._failure,
            "drives": [
                {
                    "joint": joint.name, "state": "fault" if tripped and state != "unknown" else state,
                    "enabled": self.enabled and not tripped, "dropped_out": bool(tripped),
                }
                for joint, tripped in zip(self._model.joints, self._tripped, strict=True)
            ],
        }  # fmt: skip

    def _checked(self) -> DriveArm:
        if self._arm is None:
            raise DriverClosedError(f"simulated arm '{self._model.name}' is not open")
        return self._arm

    # ------------------------------------------------------------ one sample

    def _advance(self) -> None:
        arm = self._checked()
        self._since_s += self._period_s
        self._command_age_s += self._period_s
        moves = self._state == "enabled" and self._target is not None and bool(self._v.any() or self.mode == "cst")
        self._disturbance.advance(self._period_s, moves)
        if self._disable_requested and not self._disturbance.silent:
            self._disable_requested = False
            self._stop()
        if self._state in ("enabling", "enabled") and (tripped := self._disturbance.tripped).any():
            self._tripped |= tripped
            self._failure = f"drive of {self._model.joints[int(np.argmax(tripped))].name} in state 'fault'"
            self._stop()
        guarded = self._target is not None and (self._disturbance.silent or self.mode == "cst")
        if self._state == "enabled" and guarded and self._command_age_s > WATCHDOG_S:
            self._failure = f"no set value for {WATCHDOG_S:g} s"
            self._tripped[:] = True
            self._stop()
        mode, brake = self._step()
        torque = mode == CST
        target = np.zeros(self._model.n) if self._target is None else self._target
        wanted = np.where(torque, np.linalg.solve(self._coupling.T, target), self._x)
        self._sample = arm.step(mode, wanted, brake=brake)
        if torque.any():
            self._take_position()

    def _step(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return modes and brakes of the next period, and advance the set position."""
        n, before = self._model.n, self._x
        mode = np.full(n, CSP)
        closed = np.zeros(n, np.bool_)
        if self._state == "enabling":
            closed[:] = self._since_s < BRAKE_S
            if self._since_s >= ENABLE_S:
                self._enter("enabled")
        if self._state == "enabled" and self._target is not None:
            if self.mode == "cst":
                mode[:] = CST
            else:
                self._x = self._coupling @ self._target
                self._v = (self._x - before) / self._period_s
        elif self._state == "stopping":
            self._v = np.sign(self._v) * np.maximum(np.abs(self._v) - self._quick_stop * self._period_s, 0.0)
            self._x = before + self._v * self._period_s
            if self._v.any():
                self._since_s = 0.0
            closed[:] = not self._v.any()
            if self._since_s >= BRAKE_S:
                self._enter("fault" if self._tripped.any() else "off")
        off = self._state in ("off", "fault")
        mode[self._tripped if self._state == "stopping" else np.full(n, off)] = BRAKED
        closed |= mode == BRAKED
        if off:
            self._take_position()
        return mode, closed

    def _enter(self, state: State) -> None:
        self._state, self._since_s = state, 0.0
        self._target = None
        self._command_age_s = 0.0

    def _take_position(self) -> None:
        """Set the set position to that of the arm."""
        self._x = self._sample.x.copy()
        self._v = self._sample.v.copy() if self._state == "enabled" else np.zeros(self._model.n)

    def _stop(self) -> None:
        if self._state in ("enabling", "enabled"):
            self._enter("stopping")

    def _frame(self, seq: int) -> JointFrame:
        t_ns = round(seq * 1e9 / self._settings.rate_hz)
        frame = JointFrame(seq, t_ns, time.monotonic_ns())
        sample: DriveSample = self._sample
        for channel in self._channels:
            values = sample.out[OUT_SETPOINT] if channel == "setpoint" else getattr(sample, channel)
            setattr(frame, channel, values.copy())
        frame.status_word = np.where(self._tripped, STATUS["fault"], STATUS[self._state])
        self._wiring.apply(frame)
        self._disturbance.distort(frame)
        return frame
