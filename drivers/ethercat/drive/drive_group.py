"""The drives of one arm as a group: enabled, stopped and commanded together."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from drivers.driver import CommandRefusedError
from drivers.ethercat.config import MODES, EthercatConfig
from drivers.ethercat.drive.cia402 import DriveControl, DriveState, Goal
from drivers.ethercat.drive.process_data import ProcessData
from drivers.ethercat.drive.scaling import JointScaling
from rt_core.types import FloatArray

#: Time for which invalid inputs are bridged, and duration of each level of a fault reset [s].
_BRIDGED_S = 0.02


class _Ahead(NamedTuple):
    """Set position (n,) sent instead of the commanded one, `late` cycles after it, and its speed (n,) [rad a cycle]."""

    late: int
    position: FloatArray
    speed: FloatArray
    counts: list[int]


class DriveGroup:
    """Controlwords and targets of all drives, stepped once a cycle after decoding.

    Until a drive is enabled its target position follows the actual one, to avoid a jump; then it stays constant until a
    command. `images` are the outputs of the next exchange; `setpoint` (n,) is the commanded position sent last or next
    [rad], csp only, None before it is known; `failure` says why the last `enable` failed, empty if it did not.
    """

    def __init__(self, config: EthercatConfig, scaling: JointScaling, data: ProcessData) -> None:
        self._config, self._scaling, self._data = config, scaling, data
        n = len(config.drive)
        stop_cycles = math.ceil(config.stop_timeout_ms * 1e-3 * config.cycle_hz)
        bridged_cycles = math.ceil(_BRIDGED_S * config.cycle_hz)
        mode = MODES[config.mode]
        self._controls = [DriveControl(stop_cycles, bridged_cycles, mode) for _ in range(n)]
        self.enabled = False  # every drive
        self._missed = [0] * n  # consecutive cycles without valid inputs
        self._all_received = True
        self._missed_limit = max(config.bridge_cycles, bridged_cycles)
        self._targets = [0] * n
        self._enabling_until_ns: int | None = None
        self.failure = ""
        self._commanded_at: int | None = None  # cycle before that of the set position
        self._step: FloatArray | None = None  # of the commanded position in one cycle
        self._stands = False  # a set position has been sent twice, so drives make the next step in one cycle
        self._pace: FloatArray | None = None  # the step before, with which drives go on that the last has not reached
        self._ahead: _Ahead | None = None
        self._answered = False  # a cycle was answered since the last command
        self._controlwords = [0] * n
        self.images = data.idle_images
        self.setpoint: FloatArray | None = None
        drives = config.drive
        reach = scaling.position_reach()
        self._low = np.array([-np.inf if d.position_min_rad is None else d.position_min_rad for d in drives])
        self._low = np.maximum(self._low, reach[0])
        self._high = np.array([np.inf if d.position_max_rad is None else d.position_max_rad for d in drives])
        self._high = np.minimum(self._high, reach[1])
        self._velocity = np.array([d.velocity_max_rad_s or np.inf for d in drives])
        self._torque = np.array([d.torque_max_nm or np.inf for d in drives])

    @property
    def stopped(self) -> bool:
        """Whether no drive is enabled or stopping."""
        return not any(
            control.goal is not Goal.OFF or control.state in (DriveState.ENABLED, DriveState.QUICK_STOP)
            for control in self._controls
        )

    def enable(self, at_ns: int) -> None:
        """Start enabling all drives; raises `CommandRefusedError` without a mode, or while they are stopping."""
        if self._config.mode == "none":
            raise CommandRefusedError('drives cannot be enabled with mode = "none": set a mode in the configuration')
        if any(control.stopping for control in self._controls):  # a requested stop is completed
            raise CommandRefusedError("drives cannot be enabled: they are still stopping; try again in a moment")
        for control in self._controls:
            control.enable()
        self._update_enabled()
        self.failure = ""
        self._enabling_until_ns = at_ns + round(self._config.enable_timeout_ms * 1e6)

    def disable(self) -> None:
        """Stop all drives and switch them off."""
        self._take_ahead()
        self._enabling_until_ns = None
        for control in self._controls:
            control.disable()
        self._update_enabled()

    def lost(self, joint: int) -> None:
        """Note that a drive is not in OP."""
        self._controls[joint].lost()
        self._update_enabled()

    def _update_enabled(self) -> None:
        self.enabled = all([control.enabled for control in self._controls])

    def command(self, target: FloatArray, cycle: int) -> None:
        """Set the target (n,) of all joints; `cycle` is the index of the present cycle, for the check of steps.

        Raises `CommandRefusedError` if not enabled, or the target is not within the limits.
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
            if self.setpoint is not None and self._commanded_at is not None and cycle > self._commanded_at:
                step = (wanted - self.setpoint) / (1 if self._stands else cycle - self._commanded_at)
                self._pace, self._step, self._stands = step if self._step is None else self._step, step, False
            self.setpoint = wanted.copy()
            self._ahead = None
        elif mode == "csv":
            self._refuse(np.abs(wanted) > self._velocity, wanted, "velocity_max_rad_s")
            self._targets = self._scaling.velocity_digits(wanted)
        else:
            self._refuse(np.abs(wanted) > self._torque, wanted, "torque_max_nm")
            self._targets = self._scaling.torque_digits(wanted)
        self._commanded_at = cycle
        self._answered = False
        self.images = self._data.encode(self._controlwords, self._targets)  # for the next exchange

    def _check_position(self, wanted: FloatArray, cycle: int) -> None:
        self._refuse(wanted < self._low, wanted, "position_min_rad")
        self._refuse(wanted > self._high, wanted, "position_max_rad")
        if self.setpoint is not None:
            passed = 1 if self._commanded_at is None else max(cycle - self._commanded_at, 1)
            # After the cycles that the drives bridge they have held their position.
            cycles = min(passed, 1 + self._config.bridge_cycles)
            step = self._velocity * cycles / self._config.cycle_hz
            self._refuse(np.abs(wanted - self.setpoint) > step * (1.0 + 1e-9), wanted, "velocity_max_rad_s")

    def _refuse(self, outside: np.ndarray[Any, np.dtype[np.bool_]], wanted: FloatArray, limit: str) -> None:
        if np.any(outside):
            joint = int(np.argmax(outside))
            drive = self._config.drive[joint]
            most = getattr(drive, limit)
            raise CommandRefusedError(
                f"command refused: joint {drive.joint!r} to {wanted[joint]:.6g} exceeds "
                + ("what 32 bits of its drive's counts hold" if most is None else f"{limit} = {most:g}")
            )

    def step(self, at_ns: int, valid: Sequence[bool] | None) -> None:
        """Make the next outputs from the decoded inputs; `valid` (n,): which inputs are valid, None: all."""
        words = self._data.statuswords
        modes = self._data.shown_modes
        if valid is None:
            if not self._all_received:
                self._missed = [0] * len(words)
            controlwords = [
                control.step(word, mode) for control, word, mode in zip(self._controls, words, modes, strict=True)
            ]
        else:
            controlwords = [
                self._step_partly(*each) for each in zip(range(len(words)), words, modes, valid, strict=True)
            ]
        self._all_received = valid is None
        if self._config.stop_all_on_fault and any(control.dropped for control in self._controls):
            self._stop_others()
        self._update_enabled()
        if self._enabling_until_ns is not None:
            self._watch_enabling(at_ns)
        if not self.enabled:
            self._follow()
        else:
            self._take_ahead()
        self._answered = True
        self._controlwords = controlwords
        self.images = self._data.encode(controlwords, self._targets)

    def _take_ahead(self) -> None:
        """Note what was sent instead of the commanded set position: there the drives are, or go."""
        if self._ahead is not None:
            late, self.setpoint, self._step, self._targets = self._ahead
            self._commanded_at = None if self._commanded_at is None else self._commanded_at + late
            self._ahead = None
            self.images = self._data.encode(self._controlwords, self._targets)

    def _step_partly(self, joint: int, word: int, mode: int | None, heard: bool) -> int:
        control = self._controls[joint]
        self._missed[joint] = cycles = 0 if heard else self._missed[joint] + 1
        if cycles and control.goal is Goal.OFF:
            return 0
        # The last inputs bridge a few cycles, so that these do not stop an arm.
        return control.inputs_missing() if cycles > self._missed_limit else control.step(word, mode)

    def images_at(self, cycle: int) -> list[bytes]:
        """Return the outputs for cycle number `cycle`; if the loop is late, with extrapolated set positions.

        The drives have gone on at the speed that they know, which is that before the set position that was late, and
        make its step now. After the cycles that they bridge they hold, and so does the set position.
        """
        if self._commanded_at is None or self._step is None or self.setpoint is None or not self.enabled:
            return self.images
        if self._answered:  # they are sent the same once more
            self._stands, self._step = True, np.zeros_like(self._step)
        if self._answered or self._pace is None:
            return self.images
        late, bridged = cycle - self._commanded_at - 1, self._config.bridge_cycles
        if late <= 0 or not bridged:
            return self.images
        last = self.setpoint - self._step  # that they know
        # after `bridged` cycles they hold, without the step that was late
        wanted = self.setpoint + late * self._pace if late <= bridged else last + bridged * self._pace
        wanted = np.clip(wanted, self._low, self._high)
        speed = (wanted - last) / (1 + late)  # as the drives count it
        self._ahead = _Ahead(late, wanted, speed, self._scaling.position_counts(wanted))
        return self._data.encode(self._controlwords, self._ahead.counts)

    @property
    def sent_setpoint(self) -> FloatArray | None:
        """Set position sent last: `setpoint`, or its extrapolation."""
        return self.setpoint if self._ahead is None else self._ahead.position

    def _stop_others(self) -> None:
        if self._enabling_until_ns is not None:
            self._enabling_until_ns = None
            out = [
                f"{drive.joint} is in {control.state.value!r}"
                for drive, control in zip(self._config.drive, self._controls, strict=True)
                if control.dropped
            ]
            self.failure = f"dropped out again before all drives were enabled: {', '.join(out)}"
        for control in self._controls:
            if not control.dropped and control.goal is Goal.ENABLED:
                control.disable()

    def _watch_enabling(self, at_ns: int) -> None:
        if self.enabled:
            self._enabling_until_ns = None
        elif self._enabling_until_ns is not None and at_ns > self._enabling_until_ns:
            left = []
            for joint, (drive, control) in enumerate(zip(self._config.drive, self._controls, strict=True)):
                if not control.right_mode:
                    shown, wanted = self._data.shown_modes[joint], MODES[self._config.mode]
                    left.append(f"{drive.joint} shows mode of operation {shown} (6061) instead of {wanted}")
                elif not control.enabled:
                    left.append(f"{drive.joint} is in {control.state.value!r}")
            self.failure = f"not enabled within {self._config.enable_timeout_ms:g} ms: {', '.join(left)}"
            self.disable()

    def _follow(self) -> None:
        """Set targets to the actual positions, except of drives that already hold while others are switched on."""
        self._commanded_at = self._step = self._ahead = None
        if self._config.mode == "csp":
            here = self._data.position_counts
            self._targets = [
                target if control.state is DriveState.ENABLED and control.goal is not Goal.OFF else count
                for control, target, count in zip(self._controls, self._targets, here, strict=True)
            ]
            counts = np.array(self._targets, dtype=np.float64)
            self.setpoint = counts * self._scaling.position - self._scaling.position_zero
        else:
            self._targets = [0] * len(self._targets)

    def report(self, joint: int) -> dict[str, Any]:
        """Return the state of one drive as plain values."""
        control = self._controls[joint]
        error_code = self._data.value(joint, "error_code")
        return {
            "state": control.state.value, "enabled": control.enabled, "dropped_out": control.dropped,
            "error_code": error_code,
        }  # fmt: skip
