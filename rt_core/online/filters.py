"""Linear-phase filters: position to `q, dq, ddq`, and torque, all with one and the same group delay.

One windowed-sinc low-pass `g` serves all channels.  Velocity and acceleration are exact consequences
of it: `g` convolved with a sixth-order central difference, once and twice.  So `q, dq, ddq` are the
derivatives of one filtered signal, and the torque, filtered by `g` padded to the same length, stays
aligned with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import signal

from rt_core.types import FloatArray

#: Length of the low-pass, in periods of its cut-off frequency.
_PERIODS = 2.5
_KAISER_BETA = 4.5
#: Sixth-order central difference, taps for x[k-3] ... x[k+3], times the step.
_DIFFERENCE = np.array([-1.0, 9.0, -45.0, 0.0, 45.0, -9.0, 1.0]) / 60.0


def low_pass(cutoff_hz: float, rate_hz: float) -> FloatArray:
    """Symmetric low-pass of odd length and unit gain; -6 dB at the cut-off.

    Raises
    ------
    ValueError
        If the cut-off is not below half the rate.
    """
    if not 0.0 < cutoff_hz < 0.5 * rate_hz:
        raise ValueError(f"cut-off {cutoff_hz:g} Hz must lie between 0 and half the rate ({0.5 * rate_hz:g} Hz)")
    half = max(2, round(0.5 * _PERIODS * rate_hz / cutoff_hz))
    taps = signal.firwin(2 * half + 1, cutoff_hz, fs=rate_hz, window=("kaiser", _KAISER_BETA))
    return np.asarray(taps / taps.sum())


@dataclass(frozen=True)
class FilterBank:
    """Taps of equal length, newest sample last: the output is `taps @ window`.

    Attributes
    ----------
    smooth, first, second : (L,) float64
        Low-pass, and its first [1/s] and second [1/s^2] derivative.
    delay : int
        Group delay in samples, the same for all three.
    """

    smooth: FloatArray
    first: FloatArray
    second: FloatArray

    @property
    def delay(self) -> int:
        """Group delay [samples]."""
        return self.smooth.size // 2


def filter_bank(cutoff_hz: float, rate_hz: float) -> FilterBank:
    """Design the bank for samples at `rate_hz`."""
    g = low_pass(cutoff_hz, rate_hz)
    first = np.convolve(g, _DIFFERENCE) * rate_hz
    second = np.convolve(first, _DIFFERENCE) * rate_hz
    reach = (second.size - g.size) // 2
    return FilterBank(np.pad(g, reach), np.pad(first, reach // 2), second)
