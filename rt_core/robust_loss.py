"""Losses of M-estimation: Huber's, and Tukey's bisquare."""

from typing import Literal

import numpy as np

from rt_core.types import FloatArray

Loss = Literal["squares", "huber", "bisquare"]
#: Weight below which an observation counts as an outlier.
OUTLYING_WEIGHT = 0.25


def loss_weights(u: FloatArray, loss: Loss, limit: float) -> FloatArray:
    """Return `psi(u) / u` of standardised sizes `u`; `limit` is where a loss leaves the squares, or rejects."""
    if loss == "squares":
        return np.ones_like(u)
    if loss == "huber":
        return 1.0 / np.maximum(u / limit, 1.0)
    return np.where(u < limit, (1.0 - (u / limit) ** 2) ** 2, 0.0)


def loss_slopes(u: FloatArray, loss: Loss, limit: float) -> FloatArray:
    """Return `psi'(u)` of standardised sizes `u`."""
    if loss == "squares":
        return np.ones_like(u)
    if loss == "huber":
        return (u <= limit).astype(np.float64)
    y = (u / limit) ** 2
    return np.where(u < limit, (1.0 - y) * (1.0 - 5.0 * y), 0.0)
