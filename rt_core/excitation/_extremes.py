"""Extreme eigenvalues and determinant of a symmetric positive definite matrix, without its other eigenvalues.

Householder reduction to tridiagonal form, with one pass over the remaining matrix per step: each row is updated by one
reflection and at once multiplied by the vector of the next.  Then Laguerre iteration from outside the spectrum, which
approaches the outermost root of a polynomial with real roots from one side (Wilkinson 1965, section 7.47; sums of
reciprocals from the pivots of the shifted matrix).
"""

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.types import FloatArray

_MAX = 100  # Laguerre iterations, each a pass over the tridiagonal matrix
_EPS = float(np.finfo(np.float64).eps)


@kernel
def tridiagonal(A: FloatArray, diagonal: FloatArray, square: FloatArray) -> None:
    """Write diagonal (p,) and squared subdiagonal (p - 1,) of a tridiagonal matrix similar to `A` (p, p).

    Only the upper half of the symmetric `A` is used, and overwritten.
    """
    p = A.shape[0]
    v = np.zeros(p)  # vector of the pending reflection
    w = np.zeros(p)
    following = np.zeros(p)
    product = np.zeros(p)
    applied = False
    for k in range(p):
        # column k after the pending reflection
        column = A[k]
        if applied:
            vk, wk = v[k], w[k]
            for j in range(k, p):
                column[j] -= vk * w[j] + wk * v[j]
        diagonal[k] = column[k]
        if k == p - 1:
            break
        norm = 0.0
        for j in range(k + 1, p):
            norm += column[j] * column[j]
        square[k] = norm
        if k == p - 2:
            if applied:
                last = A[k + 1]
                last[k + 1] -= 2.0 * v[k + 1] * w[k + 1]
            applied = False
            continue
        first = column[k + 1]
        alpha = -np.sqrt(norm) if first > 0.0 else np.sqrt(norm)
        length = norm - alpha * first  # half the squared length of the vector
        reflects = length > 0.0
        for j in range(k + 1):
            following[j] = 0.0
        for j in range(k + 1, p):
            following[j] = column[j]
        if reflects:
            following[k + 1] = first - alpha
        beta = 1.0 / length if reflects else 0.0
        dot = 0.0
        product[k + 1 :] = 0.0
        for i in range(k + 1, p):
            row, rest = A[i, i:], product[i:]
            v_rest, w_rest, next_rest = v[i:], w[i:], following[i:]
            here = following[i]
            total = 0.0
            if applied:
                vi, wi = v[i], w[i]
                for j in range(np.uint64(p - i)):
                    row[j] -= vi * w_rest[j] + wi * v_rest[j]
            for j in range(np.uint64(p - i)):
                total += row[j] * next_rest[j]
            for j in range(np.uint64(p - i)):
                rest[j] += here * row[j]
            product[i] += total - here * row[0]  # the diagonal was counted twice
        for i in range(k + 1, p):
            product[i] *= beta
            dot += product[i] * following[i]
        half = 0.5 * beta * dot
        for j in range(k + 1, p):
            v[j] = following[j]
            w[j] = product[j] - half * following[j]
        applied = reflects


@jit
def smallest_root(sign: float, diagonal: FloatArray, square: FloatArray, start: float) -> float:
    """Return the smallest eigenvalue of `sign` times a tridiagonal matrix (`tridiagonal`); `start` is below all.

    Only rounding lets a step pass the eigenvalue; such a step ends the iteration.
    """
    p = diagonal.size
    x = start
    for _ in range(_MAX):
        first = second = 0.0
        inverse = g = h = 0.0
        below = True
        for i in range(p):
            ratio = square[i - 1] * inverse if i > 0 else 0.0
            pivot = sign * diagonal[i] - x - ratio
            if not pivot > 0.0:
                below = False
                break
            slope, curve = -1.0 + ratio * g, ratio * (h - 2.0 * g * g)
            inverse = 1.0 / pivot
            g, h = slope * inverse, curve * inverse
            first -= g
            second -= h - g * g
        if not below:
            return x
        spread = (p - 1.0) * (p * second - first * first)
        step = float(p / (first + np.sqrt(max(spread, 0.0))))
        x += step
        if not abs(step) > _EPS * abs(x):
            return x
    return x


@jit
def extremes(A: FloatArray) -> tuple[float, float, float]:
    """Return smallest and largest eigenvalue and log determinant of `A` (p, p), which is overwritten.

    `A` is positive semidefinite; only its upper half is used.  If it is singular to rounding, the smallest eigenvalue
    is zero and the logarithm minus infinity.
    """
    p = A.shape[0]
    diagonal, square = np.zeros(p), np.zeros(p)
    tridiagonal(A, diagonal, square)
    logarithm = pivot = 0.0
    for i in range(p):
        ratio = square[i - 1] / pivot if i > 0 else 0.0
        pivot = diagonal[i] - ratio
        if not pivot > 0.0:
            logarithm = -np.inf
            break
        logarithm += np.log(pivot)
    top = 0.0
    for i in range(p):
        reach = diagonal[i] + (np.sqrt(square[i]) if i < p - 1 else 0.0) + (np.sqrt(square[i - 1]) if i > 0 else 0.0)
        top = max(top, reach)
    high = -smallest_root(-1.0, diagonal, square, -top * (1.0 + 1e-12))
    low = 0.0 if logarithm == -np.inf else smallest_root(1.0, diagonal, square, 0.0)
    return low, high, logarithm
