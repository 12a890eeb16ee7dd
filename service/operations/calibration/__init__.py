"""Kinematic calibration: its table of measurements, its results as documents, and its exports.

Start with `table`, which reads the measurements and targets. `nominal_geometry` gives the calibration
(`rt_core.calibration`) the robot's geometry and gravity loads; `document` turns its result into plain data, and
`export` writes the calibrated arm as a URDF or as Denavit-Hartenberg rows. `service.jobs.kinds.calibrate` has the
chain.
"""

__all__ = ["document", "export", "nominal_geometry", "table"]
