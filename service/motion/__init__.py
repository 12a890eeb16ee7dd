"""Motion of an arm, inside its acquisition: trajectories, hand guiding, and the checks that stop them.

Start with `run_verbs`: it has the verbs (`arm`, `run_trajectory`, `zero_force`, ...) and passes each frame to
`_motion_controller`, which grants permits, monitors the feedback and commands the drives. The commands come from an
activity: `_trajectory_follower` (a `trajectory_run` that was checked before it moves) or `_hand_guiding` (requests in
`_hand_guiding_verbs`).

`motion_player` is separate: it follows the motion that `[arm.motion]` configures. What is allowed is decided by
`rt_core.safety`, with the limits of `_safety_limits`.
"""

__all__ = ["motion_player", "run_verbs", "trajectory_run"]
