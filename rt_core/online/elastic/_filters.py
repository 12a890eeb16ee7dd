"""Linear-phase filters of the two encoders and torques of a joint, all with the same group delay.

The samples of the link encoder have a known lag; its filter looks ahead by as much, between samples by Lagrange
interpolation, so that all outputs belong to one instant of the motor encoder's clock.
"""

import numpy as np

from rt_core.online.filters import filter_bank
from rt_core.types import FloatArray

#: Rows of the taps: motor angle, its speed, its acceleration over the wide band and up to the cut-off; link angle and
#: speed; torque.
MOTOR, SPEED, ACCELERATION, SLOW_ACCELERATION, LINK, LINK_SPEED, TORQUE = range(7)
TAPS = 7
_POINTS = 6  # of the interpolation between samples


def elastic_taps(cutoff_hz: float, rate_hz: float, lag_s: float) -> FloatArray:
    """Return taps (TAPS, L), latest sample last; those of the link look ahead by `lag_s`.

    Raises `ValueError` if the cut-off is not below half the rate.
    """
    bank = filter_bank(cutoff_hz, rate_hz)
    difference = np.array([-0.5, 0.0, 0.5]) * rate_hz
    wide_second = np.convolve(bank.first, difference)
    edge = int(np.ceil(abs(lag_s) * rate_hz)) + _POINTS
    length = wide_second.size + 2 * edge
    motor = [bank.smooth, bank.first, wide_second, bank.second]
    out = np.zeros((TAPS, length))
    for k, taps in enumerate(motor):
        out[k] = np.pad(taps, (length - taps.size) // 2)
    out[LINK] = ahead(out[MOTOR], lag_s * rate_hz)
    out[LINK_SPEED] = ahead(out[SPEED], lag_s * rate_hz)
    out[TORQUE] = out[MOTOR]
    return out


def ahead(taps: FloatArray, samples: float) -> FloatArray:
    """Return `taps` (L,) shifted to give their output `samples` earlier; their ends must be zero."""
    whole = int(np.floor(samples))
    nodes = np.arange(_POINTS) - (_POINTS // 2 - 1)
    weights = np.array(
        [np.prod([(samples - whole - m) / (j - m) for m in nodes if m != j]) for j in nodes.tolist()], dtype=np.float64
    )
    moved = np.convolve(taps, weights)[: taps.size]
    return np.roll(moved, whole + int(nodes[0]))
