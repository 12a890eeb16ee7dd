"""The axes of one arm as a group, commanded by heartbeat and set positions.  No I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.axes.setpoints import Buffer, SetpointStream
from drivers.ads.config import AdsConfig
from drivers.ads.layout import ENABLED, ENABLING, FAULT, OFF, REASONS, STATES, Sizes
from drivers.ads.link.program import Head
from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame
from rt_core.types import FloatArray


class _Phase(Enum):
    IDLE = "nothing is written"
    ARMING = "disabled, with a heartbeat"
    ON = "enabled"
    LEAVING = "disabled until the axes are off"


@dataclass(frozen=True)
class AxisCommand:
    """What to write to the PLC."""

    enable: bool
    buffer: Buffer | None


class AxisGroup:
    """Commands to the axes.

    Nothing is written before `enable`, so that another program may command the axes while this one only reads.  Axes
    that the PLC has switched off stay off until the next `enable`.  `places` is the index of each joint's axis in the
    PLC's list.
    """

    def __init__(
        self, config: AdsConfig, scaling: AxisScaling, places: Sequence[int], sizes: Sizes, cycle_ns: int
    ) -> None:
        self._config = config
        self._scaling = scaling
        self._places = list(places)
        self._axes = sizes.axes
        self._cycle_s = cycle_ns * 1e-9
        # The PLC's state is at most one poll old, and what is written goes out with the next one.
        margin = math.ceil(2.0 * config.poll_ms * 1e6 / cycle_ns) + 1
        self._stream = SetpointStream(round(config.lead_ms * 1e6 / cycle_ns), sizes.setpoints, margin)
        self._phase = _Phase.IDLE
        self._head: Head | None = None
        self.failure = ""  # why the axes could not be enabled, or were switched off
        self._seen_on = False
        self._on_cycle = 0  # first cycle known with axes on
        self._enabling_until_ns = 0
        self._target: FloatArray | None = None  # last one [SI]
        self._target_cycle = 0
        self._frame: tuple[int, FloatArray | None] | None = None  # cycle and set position of the current frame
        self._commanded = False  # for the current frame
        low = [-np.inf if axis.position_min_rad is None else axis.position_min_rad for axis in config.axis]
        high = [np.inf if axis.position_max_rad is None else axis.position_max_rad for axis in config.axis]
        self._low, self._high = np.array(low), np.array(high)
        self._velocity = np.array([axis.velocity_max_rad_s or np.inf for axis in config.axis])

    # ------------------------------------------------------------ state

    @property
    def enabled(self) -> bool:
        """Whether the axes are on and follow this program, and the current frame was sampled since then."""
        on = self._phase is _Phase.ON and self._head is not None and self._head.state == ENABLED
        return on and self._frame is not None and self._frame[0] >= self._on_cycle

    @property
    def active(self) -> bool:
        """Whether heartbeats are written."""
        return self._phase is not _Phase.IDLE

    @property
    def state(self) -> str:
        """State of the axes in the PLC."""
        return STATES.get(self._head.state, "unknown") if self._head is not None else "unknown"

    def enable(self) -> None:
        """Start enabling; raises `CommandRefusedError` if it is not possible."""
        if self._config.mode == "none":
            raise CommandRefusedError('axes cannot be enabled with mode = "none": set mode = "csp"')
        if self._head is None:
            raise CommandRefusedError("axes cannot be enabled: the PLC does not answer")
        if self._phase is _Phase.ON:
            return
        if self._phase is _Phase.LEAVING:  # a requested stop is completed
            raise CommandRefusedError("axes cannot be enabled: they are still stopping; try again in a moment")
        if self._phase is _Phase.IDLE and self._head.state in (ENABLING, ENABLED):
            raise CommandRefusedError(
                "axes cannot be enabled: they are on, so another program commands them; stop it first"
            )
        self._phase = _Phase.ARMING
        self.failure = ""
        self._seen_on = False

    def disable(self) -> None:
        """Stop the axes and switch them off."""
        if self._phase is not _Phase.IDLE:
            self._phase = _Phase.LEAVING
        self._forget()

    def lost(self, why: str) -> None:
        """Note that the PLC is gone or restarted: the axes stay off until the next `enable`."""
        if self._phase is not _Phase.IDLE and not self.failure:
            self.failure = why
        self._phase = _Phase.IDLE
        self._head = self._frame = None
        self._forget()

    def _forget(self) -> None:
        self._target = None
        self._stream.forget()

    def observe(self, head: Head, at_ns: int) -> None:
        """Update the state from the PLC's head."""
        self._head = head
        if self._phase is _Phase.ON:
            if head.state == ENABLED:
                if not self._seen_on:
                    self._on_cycle = head.samples - 1
                self._seen_on = True
            elif self._seen_on:
                why = REASONS.get(head.reason, "") or f"reason {head.reason}"
                self._fail(f"the PLC switched the axes off: {why}")
            elif at_ns > self._enabling_until_ns:
                self._fail(f"not enabled within {self._config.enable_timeout_ms:g} ms: the axes are {self.state!r}")
        elif self._phase is _Phase.LEAVING and head.state in (OFF, FAULT):
            self._phase = _Phase.IDLE

    def _fail(self, why: str) -> None:
        self.failure = why
        self._phase = _Phase.LEAVING
        self._forget()

    # ------------------------------------------------------------ commands

    def frame(self, frame: JointFrame, cycle: int) -> None:
        """Note the frame that is returned; `cycle` is that of the PLC."""
        self._finish_frame()
        self._frame = (cycle, frame.setpoint)
        self._commanded = False

    def _finish_frame(self) -> None:
        """Repeat the last target for a frame without one: after a motion the axes hold its end."""
        if self._frame is None or self._commanded or self._target is None or not self.enabled:
            return
        self._commanded = True
        if self._stream.last >= self._now:
            self._add(self._frame[0], self._target, self._target)

    @property
    def _now(self) -> int:
        """Last cycle that the PLC is known to have reached."""
        return self._head.samples - 1 if self._head is not None else 0

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) [rad] for the current frame.

        Raises `CommandRefusedError`: not enabled, not within the limits, or too late.
        """
        if not self.enabled:
            raise CommandRefusedError(f"command refused: the axes are {self.state!r}, not enabled by this program")
        wanted = np.array(target, dtype=np.float64)
        if wanted.shape != self._low.shape or not np.all(np.isfinite(wanted)):
            raise CommandRefusedError(f"command refused: {wanted} is not {len(self._low)} finite numbers")
        cycle, held = self._frame or (0, None)
        if held is None:
            raise CommandRefusedError("command refused: no frame has been read that says where the axes are")
        if self._target is None:
            self._check(wanted, held, self._stream.approach(cycle, self._now))
        else:
            self._check(wanted, self._target, max(cycle - self._target_cycle, 1))
        self._add(cycle, wanted, held)
        self._target, self._target_cycle, self._commanded = wanted, cycle, True

    def _add(self, cycle: int, target: FloatArray, held: FloatArray) -> None:
        self._stream.add(cycle, self._axes_of(target), self._axes_of(held), self._now)

    def _axes_of(self, q: FloatArray) -> FloatArray:
        points = np.zeros(self._axes)
        points[self._places] = self._scaling.axis_position(q)
        return points

    def _check(self, wanted: FloatArray, before: FloatArray, cycles: int) -> None:
        self._refuse(wanted < self._low, wanted, "position_min_rad")
        self._refuse(wanted > self._high, wanted, "position_max_rad")
        step = self._velocity * cycles * self._cycle_s
        self._refuse(np.abs(wanted - before) > step * (1.0 + 1e-9) + 1e-12, wanted, "velocity_max_rad_s")

    def _refuse(self, outside: np.ndarray[Any, np.dtype[np.bool_]], wanted: FloatArray, limit: str) -> None:
        if np.any(outside):
            joint = int(np.argmax(outside))
            axis = self._config.axis[joint]
            raise CommandRefusedError(
                f"command refused: joint {axis.joint!r} to {wanted[joint]:.6g} exceeds {limit} = "
                f"{getattr(axis, limit):g}"
            )

    # ------------------------------------------------------------ to the PLC

    def next_command(self, late_cycles: int, at_ns: int) -> AxisCommand | None:
        """Return what to write now, at `at_ns`; None for nothing.  The next call may be `late_cycles` later."""
        self._finish_frame()
        if self._phase is _Phase.IDLE or self._head is None:
            return None
        if self._phase is _Phase.ARMING:
            # First a heartbeat without enable: the PLC requires the change.
            self._phase = _Phase.ON
            self._enabling_until_ns = at_ns + round(self._config.enable_timeout_ms * 1e6)
            self._stream.begin(self._head.sequence, self._head.start)
            return AxisCommand(False, None)
        if self._phase is _Phase.LEAVING:
            return AxisCommand(False, None)
        buffer = self._stream.due(self._now, late_cycles) if self.enabled else None
        return AxisCommand(True, buffer)

    @property
    def buffers(self) -> int:
        """Number of buffers of set positions written."""
        return self._stream.written
