"""Points on spherical layers of a half-space, each a Fibonacci spiral (KIN).

Layers have equidistant radii `r_k = r_max - k (r_max - r_min) / m` for `k = 0 ... m - 1`, and each has 0.7 times as
many points as the one around it.  On a layer the azimuth advances by the golden ratio and the cosine of the inclination
decreases evenly, for a uniform density.
"""

from __future__ import annotations

import math

import numpy as np

from rt_core.types import FloatArray

GOLDEN = (1.0 + math.sqrt(5.0)) / 2.0
#: Ratio of the number of points of a layer to that of the one around it.
DECAY = 0.7


def layer_counts(count: int, layers: int, decay: float = DECAY) -> tuple[int, ...]:
    """Divide points among layers, the outermost first: shares are rounded up, the innermost has the rest.

    If that leaves it without points, the layers furthest above their share give some.

    Raises
    ------
    ValueError
        If there are fewer points than layers, or no layer.
    """
    if layers < 1 or count < layers:
        raise ValueError(f"{count} points are too few for {layers} layers")
    weights = decay ** np.arange(layers)
    shares = count * weights / weights.sum()
    counts = np.maximum(np.ceil(shares), 1.0).astype(np.int64)
    counts[-1] = count - counts[:-1].sum()
    while counts[-1] < 1:
        counts[np.argmax(np.where(counts > 1, counts - shares, -np.inf))] -= 1
        counts[-1] += 1
    return tuple(int(k) for k in counts)


def layer_radii(r_max: float, r_min: float, layers: int) -> FloatArray:
    """Return the radii (m,) [m], the largest first; `r_min` is not among them."""
    if not 0.0 < r_min < r_max < math.inf:
        raise ValueError(f"0 < r_min < r_max must hold, not {r_min} and {r_max}")
    return np.asarray(r_max - np.arange(layers) * (r_max - r_min) / layers)


def spiral(count: int, turn: float = 0.0) -> FloatArray:
    """Return unit vectors (count, 3) evenly over the half-space z > 0, rotated by `turn` [rad] about z."""
    k = np.arange(count)
    z = 1.0 - (k + 0.5) / count
    azimuth = turn + 2.0 * np.pi * k / GOLDEN
    rim = np.sqrt(1.0 - z * z)
    return np.column_stack((rim * np.cos(azimuth), rim * np.sin(azimuth), z))
