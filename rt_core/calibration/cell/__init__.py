"""Calibration of a cell: several arms measured by one instrument.

Start with `arms`: `together` takes the calibrations of single arms and returns their relative bases, or the reason why
there are none.

`_base_network` adjusts the bases seen from all stations of the instrument, tests whether they agree, and finds the
station that may have been moved.
"""

__all__ = ["arms"]
