"""Tables of shaped columns: a column at any value of its constant from few columns at fixed values.

As functions of speed, the columns of all constants lie close to a space of low dimension.  A pivoted QR over a grid of
constants picks a skeleton that spans all the others (Cheng, Gimbutas, Martinsson and Rokhlin 2005, "On the compression
of low rank matrices").  This holds at each speed separately, hence for any data and after any linear filter: only the
skeleton's columns are built from data.  Between the grid's constants the columns are interpolated by a polynomial in
the logarithm of the constant.
"""

from math import factorial
from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from rt_core.identification.nonlinear._constants import Term
from rt_core.jit import jit, kernel
from rt_core.model.friction import friction_effect
from rt_core.types import FloatArray, IntArray

#: Points of the interpolating polynomial, and the grid's step in the logarithm of the constant for exponent 1.
POINTS = 8
_STEP = 0.06
_SKELETON_TOLERANCE = 1e-11
_BLOCK = 16
_INVERSE = np.array([(-1.0) ** (POINTS - 1 - k) / (factorial(k) * factorial(POINTS - 1 - k)) for k in range(POINTS)])


@jit
def _effects(
    law: int, exponent: float, smoothing: float, constants: FloatArray, speeds: FloatArray, out: FloatArray
) -> None:
    for k in range(constants.size):
        for i in range(speeds.size):
            out[i, k] = friction_effect(law, (constants[k], exponent, smoothing), 0.0, speeds[i], 0.0)


def grid_size(terms: tuple[Term, ...], span: float) -> int:
    """Return the size of a uniform grid over a range `span` of the logarithm of the constant that `terms` share."""
    steep = max((term.decay for term in terms), default=1.0)
    return max(int(np.ceil(span * steep / _STEP)) + 1, POINTS)


def skeleton(term: Term, grid: FloatArray, fastest: float) -> tuple[FloatArray, FloatArray]:
    """Return constants (k,) whose columns span those of all constants `exp(grid)` (M,), and the coefficients (k, M).

    Valid for speeds up to `fastest`.
    """
    constants = np.exp(grid)
    fastest = max(fastest, float(constants[0]))
    lowest = 0.02 * float(constants[0])
    speeds = np.concatenate(([0.5 * lowest], np.geomspace(lowest, fastest, 400)))
    effects = np.empty((speeds.size, constants.size))
    _effects(term.law, term.exponent, term.smoothing, constants, speeds, effects)
    R, order = la.qr(effects, mode="r", pivoting=True)
    size = np.abs(np.diag(R))
    rank = max(int((size > _SKELETON_TOLERANCE * size[0]).sum()), 1)
    coefficients = np.zeros((rank, constants.size))
    coefficients[:, order[:rank]] = np.eye(rank)
    coefficients[:, order[rank:]] = la.solve_triangular(R[:rank, :rank], R[:rank, rank:])
    return constants[order[:rank]], coefficients


class Curve(NamedTuple):
    """Shaped term as a function of the motor's speed."""

    law: int
    exponent: float
    smoothing: float
    constants: FloatArray  # (m,)
    motor: FloatArray  # (n,) its speed from those of the joints


class FilteredSamples(NamedTuple):
    """Samples of a stretch, and the filter that makes K rows of them."""

    dq: FloatArray  # (N, n)
    weight: FloatArray  # (N,) factor, or empty
    taps: FloatArray
    centres: IntArray  # (K,) ascending


@kernel
def shaped_rows(curve: Curve, joint: int, standing: float, samples: FilteredSamples, out: FloatArray) -> None:
    """Add filtered columns of a shaped term to `out` (K, m), in the rows of `joint`.

    As in `rt_core.identification.rows.build_rows`, samples with `|dq[:, joint]| < standing` are zero before the
    filter.
    """
    law, exponent, smoothing, constants, motor = curve
    dq, weight, taps, centres = samples
    count, n = dq.shape
    weighted = weight.shape[0] == count
    half = taps.shape[0] // 2
    value = np.zeros((_BLOCK, constants.shape[0]))
    first = 0
    for start in range(0, count, _BLOCK):
        while first < centres.shape[0] and centres[first] + half < start:
            first += 1
        if first == centres.shape[0]:
            break
        if centres[first] - half >= start + _BLOCK:
            continue
        size = min(_BLOCK, count - start)
        for b in range(size):
            v = 0.0
            for m in range(n):
                v += motor[m] * dq[start + b, m]
            w = motor[joint] if np.abs(dq[start + b, joint]) >= standing else 0.0
            if weighted:
                w *= weight[start + b]
            for k in range(constants.shape[0]):
                value[b, k] = w * friction_effect(law, (constants[k], exponent, smoothing), 0.0, v, 0.0)
        for r in range(first, centres.shape[0]):
            if centres[r] - half >= start + _BLOCK:
                break
            row = out[r]
            for b in range(size):
                lag = start + b - centres[r] + half
                if 0 <= lag < taps.shape[0]:
                    w = taps[lag]
                    x = value[b]
                    for k in range(constants.shape[0]):
                        row[k] += w * x[k]


@jit
def interpolation(x: float, origin: float, step: float, count: int, weight: FloatArray, slope: FloatArray) -> int:
    """Compute the weights of `POINTS` neighbours on a uniform grid for the value at `x` and its derivative.

    `weight`, `slope` (POINTS,); returns the index of the first neighbour.  Lagrange's formula, with products from both
    ends.
    """
    u = (x - origin) / step
    first = int(np.floor(u)) - POINTS // 2 + 1
    first = min(max(first, 0), count - POINTS)
    u -= first
    product, derivative = 1.0, 0.0
    for k in range(POINTS):
        weight[k] = product
        slope[k] = derivative
        derivative = derivative * (u - k) + product
        product *= u - k
    product, derivative = 1.0, 0.0
    for k in range(POINTS - 1, -1, -1):
        slope[k] = (slope[k] * product + weight[k] * derivative) * (_INVERSE[k] / step)
        weight[k] *= product * _INVERSE[k]
        derivative = derivative * (u - k) + product
        product *= u - k
    return first
