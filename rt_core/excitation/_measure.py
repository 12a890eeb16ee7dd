"""Measures of an information matrix, and their derivatives.

With the eigenvalues `l_1 <= .. <= l_p` of the information `M`, of columns scaled to unit norm or not:

    condition     sqrt(l_p / l_1)              derivative (v_p v_p'/l_p - v_1 v_1'/l_1) condition/2
    d_optimal     -sum(log l_i)                -M^-1
    e_optimal     -log l_1                     -v_1 v_1'/l_1

The first and the last are not smooth where eigenvalues cross, and good motions are near such points.  Of order `k`,

    condition     log( (sum l_i^k sum l_i^-k)^(1/2k) ),    e_optimal   log( (sum l_i^-k)^(1/k) )

are smooth for all positive definite `M`, and above the logarithm of the measure by less than `log(p)/k`.
"""

import numpy as np

from rt_core.excitation._extremes import extremes
from rt_core.excitation.settings import Objective
from rt_core.types import FloatArray

#: Smallest eigenvalue of the information, as a share of the largest, that is used.
FLOOR = 1e-15


def scaled_to_unit(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `information` (p, p) of columns scaled to unit norm, and their norms (p,); zero columns stay."""
    length = np.sqrt(information.diagonal())
    length[length == 0.0] = 1.0
    return np.asarray(information / (length[:, None] * length)), length


def measure(information: FloatArray, kind: Objective, scaled: bool) -> float:
    """Return measure `kind` of `information` (p, p); infinite if that is zero."""
    if scaled:
        information = scaled_to_unit(information)[0]
    low, high, logarithm = extremes(information.copy())
    if not high > 0.0:
        return float("inf")
    if low <= FLOOR * high:
        return from_eigenvalues(np.asarray(np.linalg.eigvalsh(information), dtype=np.float64), kind)
    if kind == "condition":
        return float(np.sqrt(high / low))
    return -logarithm if kind == "d_optimal" else float(-np.log(low))


def from_eigenvalues(eigenvalues: FloatArray, kind: Objective) -> float:
    """Return measure `kind` from ascending eigenvalues (p,); finite even if a direction is not determined."""
    top = float(eigenvalues[-1])
    if not top > 0.0:
        return float("inf")
    eigenvalues = np.maximum(eigenvalues, FLOOR * top)
    if kind == "condition":
        return float(np.sqrt(top / eigenvalues[0]))
    if kind == "d_optimal":
        return float(-np.log(eigenvalues).sum())
    return float(-np.log(eigenvalues[0]))


def measure_gradient(
    information: FloatArray, kind: Objective, scaled: bool, order: float | None = None
) -> tuple[float, FloatArray]:
    """Return measure `kind` of `information` (p, p), smooth with `order`, and its symmetric derivative (p, p)."""
    M, length = scaled_to_unit(information) if scaled else (information, np.ones(information.shape[0]))
    values, vectors = np.linalg.eigh(M)
    top = float(values[-1])
    values = np.maximum(values, FLOOR * top)
    logs = np.log(values)
    weights = np.zeros(values.size)
    if kind == "d_optimal":
        value = -float(logs.sum())
        weights = -1.0 / values
    elif order is None:
        low, high = values[0], values[-1]
        weights[0] = -1.0 / low
        value = -float(logs[0])
        if kind == "condition":
            value = float(np.sqrt(high / low))
            weights[0] *= 0.5 * value
            weights[-1] += 0.5 * value / high
    else:
        small = np.exp(order * (logs[0] - logs))
        value = float(-logs[0] + np.log(small.sum()) / order)
        weights = -small / small.sum() / values
        if kind == "condition":
            large = np.exp(order * (logs - logs[-1]))
            value = 0.5 * (value + float(logs[-1] + np.log(large.sum()) / order))
            weights = 0.5 * (weights + large / large.sum() / values)
    bar = (vectors * weights) @ vectors.T
    if scaled:
        # Of M_ij = G_ij / (l_i l_j), with l_i the square root of G_ii.
        along = (bar * M).sum(axis=1)
        bar = bar / (length[:, None] * length)
        bar[np.diag_indices_from(bar)] -= along / length**2
    return value, bar
