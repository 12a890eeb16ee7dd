"""The state machine of a drive (CiA 402, IEC 61800-7-201): from the statusword to the next controlword.

`DriveControl` is fed with statuswords, one a cycle, and answers with controlwords.  It never switches a drive on unless
it was told to, and a drive that dropped out stays out until it is told again.
"""

from __future__ import annotations

from enum import Enum


class DriveState(Enum):
    """State of the drive; the values are what is published."""

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
    """What the drive is asked for."""

    OFF = "off"  # no torque; the brake closes
    ENABLED = "enabled"
    STOPPED = "stopped"  # quick stop, then off


# Statusword bits 0-3, 5, 6 (mask, value, state), table of the standard.
_STATES = (
    (0x4F, 0x00, DriveState.NOT_READY),
    (0x4F, 0x40, DriveState.DISABLED),
    (0x6F, 0x21, DriveState.READY),
    (0x6F, 0x23, DriveState.SWITCHED_ON),
    (0x6F, 0x27, DriveState.ENABLED),
    (0x6F, 0x07, DriveState.QUICK_STOP),
    (0x4F, 0x0F, DriveState.FAULT_REACTION),
    (0x4F, 0x08, DriveState.FAULT),
)
VOLTAGE_BIT, WARNING_BIT, REMOTE_BIT, INTERNAL_LIMIT_BIT, FOLLOWING_ERROR_BIT = 0x10, 0x80, 0x200, 0x800, 0x2000

DISABLE_VOLTAGE = 0x00
QUICK_STOP = 0x02
SHUTDOWN = 0x06
SWITCH_ON = 0x07
ENABLE_OPERATION = 0x0F
FAULT_RESET = 0x80

#: What to write in each state on the way to operation.
_ENABLING = {
    DriveState.NOT_READY: DISABLE_VOLTAGE,
    DriveState.DISABLED: SHUTDOWN,
    DriveState.READY: SWITCH_ON,
    DriveState.SWITCHED_ON: ENABLE_OPERATION,
    DriveState.ENABLED: ENABLE_OPERATION,
    DriveState.QUICK_STOP: DISABLE_VOLTAGE,
    DriveState.FAULT_REACTION: DISABLE_VOLTAGE,
    DriveState.UNKNOWN: DISABLE_VOLTAGE,
}


def state_of(statusword: int) -> DriveState:
    """State that a statusword says."""
    for mask, value, state in _STATES:
        if statusword & mask == value:
            return state
    return DriveState.UNKNOWN


class DriveControl:
    """One drive on its way to where it is wanted.

    Parameters
    ----------
    stop_cycles : int
        How long a drive may take to stop; after that its torque is switched off.

    Attributes
    ----------
    goal : Goal
        What was asked for last; falls back to OFF when an enabled drive drops out.
    state : DriveState
        By the last statusword.
    dropped : bool
        The drive left operation without being told to; cleared by `enable`.
    """

    def __init__(self, stop_cycles: int = 500) -> None:
        self._stop_cycles = stop_cycles
        self._stopping = 0
        self.goal = Goal.OFF
        self.state = DriveState.UNKNOWN
        self.dropped = False
        self._was_enabled = False
        self._reset_allowed = False
        self._reset_high = False

    @property
    def enabled(self) -> bool:
        """Operation is enabled and wanted: targets count."""
        return self.goal is Goal.ENABLED and self.state is DriveState.ENABLED

    def enable(self) -> None:
        """Ask for operation; a fault is reset on the way."""
        self.goal = Goal.ENABLED
        self.dropped = self._was_enabled = False
        self._reset_allowed = True

    def disable(self, quick_stop: bool = True) -> None:
        """Ask for a stop along the quick-stop ramp and then no torque, or for no torque at once."""
        if not quick_stop:
            self.goal = Goal.OFF
        elif self.goal is Goal.ENABLED:
            self.goal = Goal.STOPPED
            self._stopping = 0
        self._was_enabled = self._reset_allowed = False

    def lost(self) -> None:
        """Take note that the drive does not answer: its state is unknown, and it is to stay off."""
        if self.goal is Goal.ENABLED:
            self.dropped = True
        self.goal = Goal.OFF
        self.state = DriveState.UNKNOWN
        self._was_enabled = self._reset_allowed = False

    def step(self, statusword: int) -> int:
        """Take the statusword of this cycle; return the controlword of the next."""
        self.state = state = state_of(statusword)
        if self.goal is Goal.STOPPED:
            self._stopping += 1
            # With some values of 605A a drive stays in quick stop for good.
            if state in (DriveState.ENABLED, DriveState.QUICK_STOP) and self._stopping <= self._stop_cycles:
                return QUICK_STOP
            self.goal = Goal.OFF
        if self.goal is Goal.OFF:
            return DISABLE_VOLTAGE
        if self._was_enabled and state is not DriveState.ENABLED:
            self.lost()
            self.state = state
            return DISABLE_VOLTAGE
        if state is DriveState.ENABLED:
            self._was_enabled = True
            self._reset_allowed = False
        if state is DriveState.FAULT:
            # The reset is the rising edge of bit 7; without success it is given again.
            self._reset_high = self._reset_allowed and not self._reset_high
            return FAULT_RESET if self._reset_high else DISABLE_VOLTAGE
        self._reset_high = False
        return _ENABLING[state]
