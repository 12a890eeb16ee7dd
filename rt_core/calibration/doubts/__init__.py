"""Doubts about a calibration: measurements, times and frames that do not belong to the arm as described.

Each module is a test of its own, called by `rt_core.calibration.calibrate` after a fit; start with any.

- `poses`: single measurements that do not fit the others.
- `change`: an instrument, a tool or a joint's zero that changed in the middle of the measurements.
- `causes`: a convention, a frame or columns that were taken for others.
"""

__all__ = ["causes", "change", "poses"]
