"""Decisions on whether an arm may move and when it must stop, as pure functions and one state machine.

Nothing here reads a clock, talks to a drive or keeps a sample.  Times are arguments [s] of one monotonic clock.

Start with `SafetyLimits`, the limits of each joint.  The `check_*` functions judge a planned path, each command, or the
measured feedback of a cycle and return a `Violation` or None; `brake` and `Approach` give the commands of a stop and of
the way to the start of a trajectory.  `FeedbackWatch` adds the time that a torque may exceed its limit.  `SafetyState`
holds the permit, the heartbeat and the phases from disarmed to motion.
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
    "MOVING", "Approach", "FeedbackWatch", "Permit", "PermitError", "Phase", "SafetyError", "SafetyLimits",
    "SafetyState", "Violation", "brake", "check_closed", "check_commands", "check_feedback", "check_path",
    "check_positions", "check_steps", "check_torque", "stopping_distance",
]  # fmt: skip
