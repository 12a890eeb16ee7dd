"""Kolmogorov-Arnold network of two layers with cubic B-splines, trained by L-BFGS on all samples at once.

Every edge carries a function `w silu(x) + sum_k c_k B_k(x)`, every node adds up its edges (Liu et al., arXiv
2404.19756, eqs. 2.10 and 2.11). There, the splines' grids follow the activations; here they are fixed, and hidden nodes
pass through tanh, which keeps them on the grid: the cost is a smooth function with an exact gradient.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from rt_core.types import FloatArray
from service.operations.comparators._stopping import EarlyStopping

HIDDEN = 10
INTERVALS = 6
ITERATIONS = 300
_BASES = INTERVALS + 3
_RANGE = 2.5  # of the grid over standardised inputs; beyond it the splines stay at their end values
_WEIGHT_DECAY = 1e-4
_PATIENCE = 60  # iterations without progress on the held-out samples before training ends


def basis(x: FloatArray, half_width: float) -> tuple[FloatArray, FloatArray]:
    """Return cubic B-splines on a uniform grid over `[-half_width, half_width]`, and their derivatives.

    `x` (...) to (..., INTERVALS + 3) each. Outside the grid the values are those at its end, with derivative zero.
    """
    per_unit = INTERVALS / (2.0 * half_width)
    inside = np.abs(x) <= half_width
    at = (np.clip(x, -half_width, half_width) + half_width) * per_unit
    cell = np.minimum(at.astype(np.int64), INTERVALS - 1)
    u = at - cell
    v = 1.0 - u
    local = np.stack((v**3, 3 * u**3 - 6 * u**2 + 4, 3 * v**3 - 6 * v**2 + 4, u**3), axis=-1) / 6.0
    slope = np.stack((-(v**2), 3 * u**2 - 4 * u, 4 * v - 3 * v**2, u**2), axis=-1) * 0.5
    slope *= np.where(inside, per_unit, 0.0)[..., None]
    columns = cell[..., None] + np.arange(4)
    values, derivatives = np.zeros((*x.shape, _BASES)), np.zeros((*x.shape, _BASES))
    np.put_along_axis(values, columns, local, axis=-1)
    np.put_along_axis(derivatives, columns, slope, axis=-1)
    return values, derivatives


def edges(x: FloatArray, half_width: float) -> tuple[FloatArray, FloatArray]:
    """Return the functions on edges from `x` (N, d), `silu` first, and slopes: (N, d, INTERVALS + 4) each."""
    sigmoid = 0.5 * (1.0 + np.tanh(0.5 * x))
    silu, slope = x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))
    values, derivatives = basis(x, half_width)
    return np.concatenate((silu[..., None], values), axis=-1), np.concatenate((slope[..., None], derivatives), axis=-1)


@dataclass(frozen=True)
class KolmogorovArnoldNetwork:
    """Coefficients of the two layers: `first` (d * (INTERVALS + 4), HIDDEN), `second` (HIDDEN * (INTERVALS + 4), m)."""

    first: FloatArray
    second: FloatArray

    def predict(self, x: FloatArray) -> FloatArray:
        """Return the outputs (N, m) at inputs (N, d)."""
        return self.from_edges(edges(x, _RANGE)[0].reshape(x.shape[0], -1))

    def from_edges(self, A: FloatArray) -> FloatArray:
        """Return outputs (N, m) from the first layer's edge values `A` (N, d * (INTERVALS + 4))."""
        hidden = np.tanh(A @ self.first)
        return np.asarray(edges(hidden, 1.0)[0].reshape(A.shape[0], -1) @ self.second)


def cost(weights: FloatArray, A: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """Return the mean squared error with weight decay, and its gradient; `weights` are both layers', flattened."""
    count, outputs = y.shape
    split = A.shape[1] * HIDDEN
    first, second = weights[:split].reshape(-1, HIDDEN), weights[split:].reshape(-1, outputs)
    hidden = np.tanh(A @ first)
    values, slopes = edges(hidden, 1.0)
    flat = values.reshape(count, -1)
    error = flat @ second - y
    scaled = (2.0 / error.size) * error
    inward = ((scaled @ second.T).reshape(values.shape) * slopes).sum(axis=-1) * (1.0 - hidden**2)
    gradient = np.concatenate(((A.T @ inward).ravel(), (flat.T @ scaled).ravel()))
    return float(np.mean(error**2) + _WEIGHT_DECAY * (weights @ weights)), gradient + 2.0 * _WEIGHT_DECAY * weights


def train(
    x: FloatArray, y: FloatArray, x_held: FloatArray, y_held: FloatArray, rng: np.random.Generator,
    callback: Callable[[int, float], bool | None] | None,
) -> tuple[KolmogorovArnoldNetwork, float]:  # fmt: skip
    """Train on `x` (N, d), `y` (N, m); return the network with the least held-out error, and that error."""
    A = edges(x, _RANGE)[0].reshape(x.shape[0], -1)
    A_held = edges(x_held, _RANGE)[0].reshape(x_held.shape[0], -1)
    split, outputs = A.shape[1] * HIDDEN, y.shape[1]

    def network(weights: FloatArray) -> KolmogorovArnoldNetwork:
        return KolmogorovArnoldNetwork(weights[:split].reshape(-1, HIDDEN), weights[split:].reshape(-1, outputs))

    start = np.concatenate(
        (
            rng.normal(0.0, 1.0 / np.sqrt(x.shape[1]), split),
            rng.normal(0.0, 1.0 / np.sqrt(HIDDEN), HIDDEN * (_BASES + 1) * outputs),
        )
    )

    def error(weights: FloatArray) -> float:
        return float(np.mean((network(weights).from_edges(A_held) - y_held) ** 2))

    stopping = EarlyStopping(_PATIENCE, callback, start, error(start))
    iteration = itertools.count(1)

    def look(intermediate_result: OptimizeResult) -> None:
        weights = np.array(intermediate_result.x)
        if not stopping.look(next(iteration), error(weights), lambda: weights):
            raise StopIteration

    minimize(
        cost, start, args=(A, y), jac=True, method="L-BFGS-B", callback=look,
        options={"maxiter": ITERATIONS, "maxcor": 20, "maxfun": 2 * ITERATIONS},
    )  # fmt: skip
    assert stopping.best is not None
    return network(stopping.best), stopping.least
