"""State machine of a drive (CiA 402, IEC 61800-7-201): statuswords to controlwords.

`DriveControl` takes one statusword a cycle and returns the next controlword.  It switches a drive on only after
`enable`, and a drive that dropped out stays off until the next `enable`.
"""

from enum import Enum


class DriveState(Enum):
    """State of the drive; the values are published."""

    NOT_READY = "not ready to switch on"
    DISABLED = "switch on disabled"
    READY = "ready to switch on"
    SWITCHED_ON = "switched on"
    ENABLED = "operation enabled"
    QUICK_STOP = "quick stop active"
    FAULT_REACTION = "fault reaction active"
    FAULT = "fault"
    UNKNOWN = "unknown"


class Goal(Enum):
    """Requested state."""

    OFF = "off"  # no torque; the brake closes
    ENABLED = "enabled"
    STOPPED = "stopped"  # quick stop, then off


# Statusword bits 0-3, 5, 6 (mask, value, state), table of the standard.
_STATES = (
    (0x4F, 0x00, DriveState.NOT_READY), (0x4F, 0x40, DriveState.DISABLED), (0x6F, 0x21, DriveState.READY),
    (0x6F, 0x23, DriveState.SWITCHED_ON), (0x6F, 0x27, DriveState.ENABLED), (0x6F, 0x07, DriveState.QUICK_STOP),
    (0x4F, 0x0F, DriveState.FAULT_REACTION), (0x4F, 0x08, DriveState.FAULT),
)  # fmt: skip
_STATE_BITS = 0x6F
_STATE_OF = tuple(
    next((state for mask, value, state in _STATES if bits & mask == value), DriveState.UNKNOWN)
    for bits in range(_STATE_BITS + 1)
)
VOLTAGE_BIT, WARNING_BIT, REMOTE_BIT, INTERNAL_LIMIT_BIT, FOLLOWING_ERROR_BIT = 0x10, 0x80, 0x200, 0x800, 0x2000

DISABLE_VOLTAGE = 0x00
QUICK_STOP = 0x02
SHUTDOWN = 0x06
SWITCH_ON = 0x07
ENABLE_OPERATION = 0x0F
FAULT_RESET = 0x80

#: Controlword in each state on the way to operation.
_ENABLING = {
    DriveState.NOT_READY: DISABLE_VOLTAGE,
    DriveState.DISABLED: SHUTDOWN,
    DriveState.READY: SWITCH_ON,
    DriveState.SWITCHED_ON: ENABLE_OPERATION,
    DriveState.ENABLED: ENABLE_OPERATION,
    DriveState.QUICK_STOP: DISABLE_VOLTAGE,  # after the time to stop
    DriveState.FAULT_REACTION: DISABLE_VOLTAGE,
    DriveState.UNKNOWN: DISABLE_VOLTAGE,
}


def state_of(statusword: int) -> DriveState:
    """Return the state of a statusword."""
    return _STATE_OF[statusword & _STATE_BITS]


class DriveControl:
    """Control of one drive, which has to show the mode of operation `mode` (6060).

    A quick stop lasts at most `stop_cycles`; then the torque is switched off. A fault reset holds each level of bit 7
    of the controlword for `reset_cycles`. `goal` is as requested, and falls back when an enabled drive drops out;
    `state` is from the last statusword; `dropped`: the drive left operation without a request, cleared by `enable`.
    """

    def __init__(self, stop_cycles: int = 500, reset_cycles: int = 20, mode: int = 0) -> None:
        self._stop_cycles, self._reset_cycles, self._mode = stop_cycles, reset_cycles, mode
        self._stopping = 0
        self._resetting = 0
        self.goal = Goal.OFF
        self.state = DriveState.UNKNOWN
        self.dropped = False
        self.right_mode = True  # it shows the requested mode, or none
        self._was_enabled = False
        self._reset_allowed = False

    @property
    def enabled(self) -> bool:
        """Whether operation is enabled and requested, in the right mode: targets take effect."""
        return self.goal is Goal.ENABLED and self.state is DriveState.ENABLED and self.right_mode

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested and the drive is not yet off."""
        return self.goal is Goal.STOPPED

    def enable(self) -> None:
        """Request operation; a fault is reset on the way."""
        self.goal = Goal.ENABLED
        self.dropped = self._was_enabled = False
        self._reset_allowed = True
        self._stopping = self._resetting = 0

    def disable(self) -> None:
        """Request a stop along the quick-stop ramp and then no torque."""
        if self.goal is Goal.ENABLED:
            self.goal = Goal.STOPPED
            self._stopping = 0
        self._was_enabled = self._reset_allowed = False

    def lost(self) -> None:
        """Note that the drive does not answer: its state is unknown, and it stays off."""
        if self.goal is Goal.ENABLED:
            self.dropped = True
        self.goal = Goal.OFF
        self.state = DriveState.UNKNOWN
        self._was_enabled = self._reset_allowed = False

    def inputs_missing(self) -> int:
        """Note that inputs are missing for too long; return the controlword of the next cycle.

        The drive may still receive outputs: it stops along its ramp then, instead of losing torque.
        """
        self._drop_if_enabled()
        self.state = DriveState.UNKNOWN
        return self._stop()

    def step(self, statusword: int, shown_mode: int | None = None) -> int:
        """Return the controlword of the next cycle; `shown_mode` is that of the drive (6061), None if not mapped."""
        self.state = state = state_of(statusword)
        self.right_mode = shown_mode is None or shown_mode == self._mode
        if self._was_enabled and (state is DriveState.QUICK_STOP or not self.right_mode):
            self._drop_if_enabled()  # without a request: let it finish its ramp, or start one
        if self.goal is Goal.STOPPED and state in (DriveState.ENABLED, DriveState.QUICK_STOP):
            return self._stop()
        if self.goal is not Goal.ENABLED:
            self.goal = Goal.OFF
            return DISABLE_VOLTAGE
        if self._was_enabled and state is not DriveState.ENABLED:
            self.lost()
            self.state = state
            return DISABLE_VOLTAGE
        if state is DriveState.FAULT:
            return self._reset()
        self._resetting = 0
        if state is DriveState.QUICK_STOP and self._stopping < self._stop_cycles:
            self._stopping += 1
            return QUICK_STOP
        if state is DriveState.ENABLED:
            self._was_enabled = self.right_mode
            self._reset_allowed = False
        if state is DriveState.SWITCHED_ON and shown_mode:
            # 0 is accepted: some drives show their mode only in operation.
            return ENABLE_OPERATION if self.right_mode else SWITCH_ON
        return _ENABLING[state]

    def _drop_if_enabled(self) -> None:
        if self.goal is Goal.ENABLED:
            self.disable()
            self.dropped = True

    def _stop(self) -> int:
        """Let the drive stop; with some values of 605A it would stay in quick stop forever."""
        self._stopping += 1
        if self.goal is Goal.STOPPED and self._stopping <= self._stop_cycles:
            return QUICK_STOP
        self.goal = Goal.OFF
        return DISABLE_VOLTAGE

    def _reset(self) -> int:
        """Toggle bit 7, whose rising edge resets the fault, until it succeeds."""
        if not self._reset_allowed:
            return DISABLE_VOLTAGE
        high = self._resetting // self._reset_cycles % 2 == 0
        self._resetting += 1
        return FAULT_RESET if high else DISABLE_VOLTAGE
