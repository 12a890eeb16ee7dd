"""Commands of the kinematic calibration, in the order of their use.

Where to start: `poses` plans where to measure, and rehearses the measurement with a simulated tracker. `calibrate`
runs the calibration of one arm, `_calibrate_arms` of several arms that one instrument measured; both take their tables
and parameters from `_inputs`. `compensate` uses the result: joint commands that bring the calibrated arm to Cartesian
targets.

The work itself is in `service.operations.calibration` and `rt_core.calibration`.
"""

__all__ = ["calibrate", "compensate", "poses"]
