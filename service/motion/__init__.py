"""Motion of an arm, inside its acquisition: trajectories, hand guiding, and the checks that stop them.

Start with `arm_motion`, which makes what moves an arm. `run_verbs` has the verbs (`arm`, `run_trajectory`,
`zero_force`, ...) and passes each frame to `_motion_controller`, which grants permits, monitors the feedback and
commands the drives. The commands come from an activity: `_trajectory_follower` (a `trajectory_run`) or `_hand_guiding`
(requests in `_hand_guiding_verbs`). `_standing_motion` is the client of the run that `[arm.motion]` configures.

What is allowed is decided by `rt_core.safety`, with the limits of `_safety_limits`.
"""

__all__ = ["arm_motion", "run_verbs", "trajectory_run"]
