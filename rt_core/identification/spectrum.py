"""Power spectral density by Welch's method (1967), in windows that span no gap."""

import itertools

import numpy as np
import scipy

from rt_core.types import BoolArray, FloatArray, IntArray

_MAX = 512  # rows in a window
_MIN = 16
_MIN_SHARE = 0.3  # of the rows in use that the windows must cover


def runs(use: BoolArray, piece: IntArray) -> list[slice]:
    """Return the runs of consecutive rows of one piece with `use` (K,) True; `piece` (K,)."""
    edge = np.flatnonzero(np.diff(use.astype(np.int64)) | np.diff(piece)) + 1
    bounds = [0, *edge.tolist(), use.size]
    return [slice(a, b) for a, b in itertools.pairwise(bounds) if b > a and use[a]]


def power_spectrum(x: FloatArray, use: BoolArray, piece: IntArray, rate_hz: float) -> tuple[FloatArray, FloatArray]:
    """Return the one-sided density of `x` (K,) over the rows in use.

    The window is the longest, up to 512 rows, for which runs of that length or more hold 30 % of the rows.

    Returns
    -------
    frequency, density : (F,) float64
        [Hz] and [unit of `x` squared per Hz], without the frequency zero; empty if the runs are shorter than 16 rows.
    """
    stretches = runs(use, piece)
    lengths = np.array([s.stop - s.start for s in stretches], dtype=np.int64)
    width = _MAX
    while width >= _MIN and lengths[lengths >= width].sum() < max(_MIN_SHARE * lengths.sum(), 1.0):
        width //= 2
    if width < _MIN:
        return np.zeros(0), np.zeros(0)
    total, windows = np.zeros(width // 2 + 1), 0
    for stretch, length in zip(stretches, lengths, strict=True):
        if length < width:
            continue
        count = 1 + (int(length) - width) // (width // 2)
        # without detrending: a constant error must show at low frequencies
        frequency, density = scipy.signal.welch(x[stretch], rate_hz, "hann", width, width // 2, detrend=False)
        total += count * density
        windows += count
    return frequency[1:], total[1:] / windows
