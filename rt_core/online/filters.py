"""Linear-phase filters from position to `q, dq, ddq`, and for torque, all with the same group delay.

Position and velocity keep a band well above the cut-off, so that friction changes sign where the joint does;
acceleration, which differencing makes noisy, is limited to the cut-off.  The low-pass at the cut-off itself follows
later, on both sides of the regression; until then torque is only delayed, because a filter would smear its step at a
reversal over samples that still move.  Derivatives are the low-pass convolved with a sixth-order central difference;
all kernels are padded to one length, hence one delay.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rt_core.types import FloatArray

#: Band of position and velocity, in cut-off frequencies.
STATE_BAND = 4.0
#: Length of the low-pass, in periods of its cut-off frequency.
_PERIODS = 2.5
_KAISER_BETA = 4.5
#: Sixth-order central difference, taps for x[k-3] ... x[k+3], times the step.
_DIFFERENCE = np.array([-1.0, 9.0, -45.0, 0.0, 45.0, -9.0, 1.0]) / 60.0


def low_pass(cutoff_hz: float, rate_hz: float) -> FloatArray:
    """Design a symmetric low-pass of odd length and unit gain, -6 dB at the cut-off.

    Raises
    ------
    ValueError
        If the cut-off is not below half the rate.
    """
    if not 0.0 < cutoff_hz < 0.5 * rate_hz:
        raise ValueError(f"cut-off {cutoff_hz:g} Hz must lie between 0 and half the rate ({0.5 * rate_hz:g} Hz)")
    half = max(2, round(0.5 * _PERIODS * rate_hz / cutoff_hz))
    # The windowed ideal low-pass; importing `scipy.signal` for it would add a second to each start.
    ideal = np.sinc(2.0 * cutoff_hz / rate_hz * np.arange(-half, half + 1))
    taps = ideal * np.kaiser(2 * half + 1, _KAISER_BETA)
    return np.asarray(taps / taps.sum())


@dataclass(frozen=True)
class FilterBank:
    """Taps of equal odd length (L,), latest sample last: an output is `taps @ window`."""

    # smooth, first: (L,) wide low-pass, and its derivative [1/s]
    smooth: FloatArray
    first: FloatArray
    # slope, second: (L,) first [1/s] and second [1/s^2] derivative of the low-pass at the cut-off: acceleration from a
    # measured velocity, or from position
    slope: FloatArray
    second: FloatArray

    @property
    def delay(self) -> int:
        """Group delay [samples], the same for all."""
        return self.smooth.size // 2


class Sampling(NamedTuple):
    """How frames become rows."""

    rate_hz: float  # of the frames
    has_dq: bool  # frames have a measured velocity
    bank: FilterBank
    parallel: FloatArray  # taps of the filter on both sides of the rows
    factor: int  # frames a row


def filter_bank(cutoff_hz: float, rate_hz: float) -> FilterBank:
    """Design the bank for samples at `rate_hz`; `ValueError` if the cut-off is not below half of it."""
    narrow = low_pass(cutoff_hz, rate_hz)
    band = STATE_BAND * cutoff_hz
    wide = low_pass(band, rate_hz) if band < 0.45 * rate_hz else np.ones(1)
    difference = _DIFFERENCE * rate_hz
    kernels = [wide, np.convolve(wide, difference), np.convolve(narrow, difference)]
    kernels.append(np.convolve(kernels[2], difference))
    length = kernels[3].size
    return FilterBank(*(np.pad(k, (length - k.size) // 2) for k in kernels))
