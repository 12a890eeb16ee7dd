"""Commands that move an arm or prepare its motion.

Where to start: `excite` designs an exciting trajectory, `run` runs it on an arm and queues the identification, `guide`
lets the arm be guided by hand. Both motions use `_motion_session`: it records the arm, sends heartbeats, aborts on
Ctrl-C and reports the outcome. `commission` leads an arm from its robot file to a validated model
(`service.commission`).

Checks and stops are the daemon's (`service.motion`); these commands only request motion.
"""

__all__ = ["commission", "excite", "guide", "run"]
