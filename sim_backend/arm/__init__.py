"""Simulated arms: forward dynamics, friction, drives and sensors.

Where to start: `settings` (the TOML tables), `trajectory` (set trajectories from `MotionSettings`), then `robot`
(`SimulatedArm`: samples of an arm on such a trajectory) and `driver` (`SimDriver`: its frames in real time).

Below them, in the order in which data flow: `packed` fills the arrays that `layout` describes; `stepper` is the
compiled loop over samples, with the drive's control law and the sensors; `integrate` integrates over one step through
sticking and sliding; `equations` are the equations of motion; `friction` and `temperature` are their friction terms.
`elastic` replaces `stepper` and `integrate` for arms with springs in their joints.  `pace` serves drivers;
`laser_tracker` simulates calibration measurements.
"""

__all__ = [
    "driver", "elastic", "equations", "friction", "integrate", "laser_tracker", "layout", "pace", "packed", "robot",
    "settings", "stepper", "temperature", "trajectory",
]  # fmt: skip
