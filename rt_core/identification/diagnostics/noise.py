"""Noise of the torque sensors in the rows: the residual that a perfect model would leave.

White noise shows above the band of the motion.  Torque that was low-passed before it was recorded has no such floor:
its noise is unknown then, and nothing is concluded from it.
"""

import numpy as np
import scipy

from rt_core.identification.preprocess import Signals
from rt_core.types import FloatArray

#: Bands of the spectrum, as shares of the sample rate: the floor is read from the upper, and is white if the lower one
#: holds at most `_FLAT` times as much (at least a sixteenth of it, or a filter has taken it away).
_UPPER = (0.35, 0.5)
_LOWER = (0.2, 0.35)
_FLAT = 4.0
_SEGMENT = 64
#: A residual is noise up to this many times the noise of the sensors, as its spectrum tells it: of the joints of
#: 340 clean recordings 99 % were below 1.11, and the largest 1.30.
NOISE_RATIO = 1.3


def row_noise(signals: Signals, power_gain: float) -> FloatArray:
    """Return the standard deviation (n,) of the torque noise in the rows [N*m or N], NaN where it is unknown.

    `power_gain` is the rows' share of the variance of white noise.
    """
    rate = signals.rate_hz
    total: FloatArray | None = None
    weight = 0
    for piece in signals.pieces:
        if piece.t.size < _SEGMENT:
            continue
        frequency, density = scipy.signal.welch(
            piece.tau, rate, nperseg=_SEGMENT, axis=0, detrend="constant", average="median"
        )
        total = density * piece.t.size if total is None else total + density * piece.t.size
        weight += piece.t.size
    n = signals.pieces[0].tau.shape[1]
    if total is None:
        return np.full(n, np.nan)
    density = total / weight

    def level(band: tuple[float, float]) -> FloatArray:
        inside = (frequency >= band[0] * rate) & (frequency < band[1] * rate)
        return np.asarray(np.median(density[inside], axis=0))

    upper, lower = level(_UPPER), level(_LOWER)
    variance = upper * 0.5 * rate  # one-sided density
    with np.errstate(divide="ignore", invalid="ignore"):
        white = (upper > 0.0) & (lower / upper < _FLAT) & (upper / lower < _FLAT)
    return np.where(white, np.sqrt(variance * power_gain), np.nan)


def at_noise(sigma: FloatArray, noise: FloatArray) -> bool:
    """Return whether the noise (n,) of every joint is known, and none leaves more than `NOISE_RATIO` times it."""
    known = np.isfinite(noise) & (noise > 0.0)
    return bool(known.all() and (sigma <= NOISE_RATIO * noise).all())
