"""The drives of one arm as one: enabled together, stopped together, commanded together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drivers.ethercat.cia402 import DriveControl, DriveState, Goal
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import CommandRefusedError
from drivers.ethercat.process_data import ProcessData
from drivers.ethercat.scaling import JointScaling
from rt_core.types import FloatArray


class Arm:
    """Controlwords and targets of all drives, stepped once a cycle after decoding.

    Before all drives are enabled the target position follows the actual one, so that nothing jumps; afterwards it
    stays where it is until a command.

    Parameters
    ----------
    config : EthercatConfig
    scaling : JointScaling
    data : ProcessData

    Attributes
    ----------
    images : list of bytes
        To be sent with the next exchange.
    setpoint : (n,) float64 or None
        Commanded position that `images` hold [rad], csp only; None before it is known.
    """

    def __init__(self, config: EthercatConfig, scaling: JointScaling, data: ProcessData) -> None:
        self._config = config
        self._scaling = scaling
        self._data = data
        n = len(config.drive)
        stop_cycles = config.cycle_hz // 2
        self._controls = [DriveControl(stop_cycles) for _ in range(n)]
        self._targets = [0] * n
        self._enabling_until_ns: int | None = None
        self._failure = ""
        self._commanded_at: int | None = None
        self._goal_setpoint: FloatArray | None = None
        self._step: FloatArray | None = None  # of the commanded position in a cycle
        self._controlwords = [0] * n
        self.images = data.idle_images
        self.setpoint: FloatArray | None = None
        drives = config.drive
        self._low = np.array([-np.inf if d.position_min_rad is None else d.position_min_rad for d in drives])
        self._high = np.array([np.inf if d.position_max_rad is None else d.position_max_rad for d in drives])
        self._velocity = np.array([d.velocity_max_rad_s or np.inf for d in drives])
        self._torque = np.array([d.torque_max_nm or np.inf for d in drives])

    @property
    def enabled(self) -> bool:
        """Whether every drive is enabled."""
        return all(control.enabled for control in self._controls)

    @property
    def stopped(self) -> bool:
        """Whether no drive is enabled or stopping."""
        return not any(
            control.goal is not Goal.OFF or control.state in (DriveState.ENABLED, DriveState.QUICK_STOP)
            for control in self._controls
        )

    def enable(self, at_ns: int) -> None:
        """Ask all drives for operation; raises `CommandRefusedError` if no mode is configured."""
        if self._config.mode == "none":
            raise CommandRefusedError('drives cannot be enabled with mode = "none": set a mode in the configuration')
        for control in self._controls:
            control.enable()
        self._failure = ""
        self._enabling_until_ns = at_ns + round(self._config.enable_timeout_ms * 1e6)

    def disable(self) -> None:
        """Stop all drives and switch them off."""
        self._enabling_until_ns = None
        for control in self._controls:
            control.disable()

    def lost(self, joint: int) -> None:
        """Take note that a drive is not in OP."""
        self._controls[joint].lost()

    def command(self, target: FloatArray, cycle: int) -> None:
        """Set the target (n,) of all joints; `cycle` is the number of the cycle now, to judge steps.

        Raises
        ------
        CommandRefusedError
            Not enabled, or not a target that the limits allow.
        """
        if not self.enabled:
            states = ", ".join(
                f"{drive.joint} {control.state.value}"
                for drive, control in zip(self._config.drive, self._controls, strict=True)
                if not control.enabled
            )
            raise CommandRefusedError(f"command refused, drives are not enabled: {states}")
        wanted = np.asarray(target, dtype=np.float64)
        if wanted.shape != self._low.shape or not np.all(np.isfinite(wanted)):
            raise CommandRefusedError(f"command refused: {wanted} is not {len(self._low)} finite numbers")
        mode = self._config.mode
        if mode == "csp":
            self._check_position(wanted, cycle)
            self._targets = self._scaling.position_counts(wanted)
            if self._goal_setpoint is not None and self._commanded_at is not None and cycle > self._commanded_at:
                self._step = (wanted - self._goal_setpoint) / (cycle - self._commanded_at)
            self._goal_setpoint = wanted.copy()
        elif mode == "csv":
            self._refuse(np.abs(wanted) > self._velocity, wanted, "velocity_max_rad_s")
            self._targets = self._scaling.velocity_digits(wanted)
        else:
            self._refuse(np.abs(wanted) > self._torque, wanted, "torque_max_nm")
            self._targets = self._scaling.torque_digits(wanted)
        self._commanded_at = cycle
        self.setpoint = self._goal_setpoint
        self.images = self._data.encode(self._controlwords, self._targets)  # so that the next exchange has it

    def _check_position(self, wanted: FloatArray, cycle: int) -> None:
        self._refuse(wanted < self._low, wanted, "position_min_rad")
        self._refuse(wanted > self._high, wanted, "position_max_rad")
        if self._goal_setpoint is not None:
            cycles = 1 if self._commanded_at is None else max(cycle - self._commanded_at, 1)
            step = self._velocity * cycles / self._config.cycle_hz
            self._refuse(np.abs(wanted - self._goal_setpoint) > step * (1.0 + 1e-9), wanted, "velocity_max_rad_s")

    def _refuse(self, outside: np.ndarray[Any, np.dtype[np.bool_]], wanted: FloatArray, limit: str) -> None:
        if np.any(outside):
            joint = int(np.argmax(outside))
            drive = self._config.drive[joint]
            raise CommandRefusedError(
                f"command refused: joint {drive.joint!r} to {wanted[joint]:.6g} exceeds {limit} = "
                f"{getattr(drive, limit):g}"
            )

    def step(self, at_ns: int, valid: Sequence[bool] | None) -> None:
        """Take the decoded inputs and make the next outputs; `valid` says whose inputs can be believed."""
        words = self._data.statuswords
        controlwords = []
        for joint, (control, word) in enumerate(zip(self._controls, words, strict=True)):
            if valid is not None and not valid[joint] and control.goal is Goal.OFF:
                controlwords.append(0)
            else:
                # One cycle without inputs is bridged by the last ones: it is no reason to stop an arm.
                controlwords.append(control.step(word))
        if self._config.stop_all_on_fault and any(control.dropped for control in self._controls):
            self._stop_others()
        if self._enabling_until_ns is not None:
            self._watch_enabling(at_ns)
        if not self.enabled:
            self._follow()
        self.setpoint = self._goal_setpoint
        self._controlwords = controlwords
        self.images = self._data.encode(controlwords, self._targets)

    def images_at(self, cycle: int) -> list[bytes]:
        """Images to be sent in cycle number `cycle`: of a late loop, with set positions extrapolated to the present."""
        late = 0 if self._commanded_at is None else cycle - self._commanded_at - 1
        if not 0 < late <= self._config.bridge_cycles or self._step is None or self._goal_setpoint is None:
            return self.images
        wanted = np.clip(self._goal_setpoint + late * self._step, self._low, self._high)
        return self._data.encode(self._controlwords, self._scaling.position_counts(wanted))

    def _stop_others(self) -> None:
        for control in self._controls:
            if not control.dropped and control.goal is Goal.ENABLED:
                control.disable()
        self._enabling_until_ns = None

    def _watch_enabling(self, at_ns: int) -> None:
        if self.enabled:
            self._enabling_until_ns = None
        elif self._enabling_until_ns is not None and at_ns > self._enabling_until_ns:
            left = [
                f"{drive.joint} is in {control.state.value!r}"
                for drive, control in zip(self._config.drive, self._controls, strict=True)
                if not control.enabled
            ]
            self._failure = f"not enabled within {self._config.enable_timeout_ms:g} ms: {', '.join(left)}"
            self.disable()

    def _follow(self) -> None:
        """Let targets be where the drives are, except of drives that are braking to a stop by themselves."""
        self._commanded_at = self._step = None
        if self._config.mode == "csp":
            self._targets = self._data.position_counts
            counts = np.array(self._targets, dtype=np.float64)
            self._goal_setpoint = counts * self._scaling.position - self._scaling.position_zero
        else:
            self._targets = [0] * len(self._targets)

    def report(self, joint: int) -> dict[str, Any]:
        """State of one drive as plain values."""
        control = self._controls[joint]
        error_code = self._data.value(joint, "error_code")
        return {
            "state": control.state.value,
            "enabled": control.enabled,
            "dropped_out": control.dropped,
            "error_code": error_code,
        }

    @property
    def failure(self) -> str:
        """Why the last `enable` did not succeed; empty if it did."""
        return self._failure
