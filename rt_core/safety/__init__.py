"""Every decision on whether an arm may move and when it has to stop, as functions of what they are given.

Nothing here reads a clock, talks to a drive or keeps a sample.  Times are arguments [s], of one clock that never goes
back.  `limits` says what each joint may do, `commands` and `feedback` judge what it is told and what it does, and
`state` who may move the arm, and whether it still may.
"""

from rt_core.safety._commands import (
    Approach,
    brake,
    check_closed,
    check_commands,
    check_path,
    check_positions,
    check_steps,
    check_torque,
    stopping_distance,
)
from rt_core.safety._feedback import FeedbackWatch, check_feedback
from rt_core.safety._limits import PermitError, SafetyError, SafetyLimits, Violation
from rt_core.safety._state import MOVING, Permit, Phase, SafetyState

__all__ = [
    "MOVING",
    "Approach",
    "FeedbackWatch",
    "Permit",
    "PermitError",
    "Phase",
    "SafetyError",
    "SafetyLimits",
    "SafetyState",
    "Violation",
    "brake",
    "check_closed",
    "check_commands",
    "check_feedback",
    "check_path",
    "check_positions",
    "check_steps",
    "check_torque",
    "stopping_distance",
]
