"""Square-root information form of recursive least squares with forgetting, n rows at a time.

The state is an upper triangle `R` with `R'R` the information about the error of the present estimate,
and the estimate `theta` itself.  One update solves

    min_d  |R D d|^2 + |Phi d - e|^2 + |leak d|^2,      theta <- theta + d,

by Householder reflections; `D` holds the square roots of the forgetting factors, one per parameter, `Phi`
the weighted rows, `e` the weighted innovations.  Because the right-hand side of `R` is zero by
construction, nothing but `R` and `theta` need be stored, and forgetting cannot move the estimate.
A congruence `D R'R D` of a positive definite matrix is positive definite: no rounding can undo it.

Row `j` of `Phi` starts at column `first[j]`, and `first` ascends: with each joint's parameters just
before its link's, a column meets only the rows of its own and earlier joints, and the work is a
third of the dense one.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import kernel
from rt_core.types import FloatArray, IntArray

#: A column whose squares sum to less than this is empty; reflecting it would divide by an underflow.
_NOTHING = 1e-250


@kernel
def triangularise(R: FloatArray, D: FloatArray, first: IntArray, rows: int, work: FloatArray) -> None:
    """Reduce `[R 0; D]` to triangular form in place.

    `R` (p, p) upper triangle; `D` (rows, p + 1) holds rows and, last, their right-hand side; on
    return `R` is renewed and `work[0]` (p + 1,) holds the reduced right-hand side; `work[1]` is scratch.
    `first` (rows,) ascending: the first column of each row that may differ from zero.
    """
    p = R.shape[0]
    rhs = work[0]
    w = work[1]
    active = 0
    for k in range(p):
        rhs[k] = 0.0
        while active < rows and first[active] <= k:
            active += 1
        if active == 0:
            continue
        norm = 0.0
        for r in range(active):
            norm += D[r, k] * D[r, k]
        if norm < _NOTHING:
            continue
        diagonal = R[k, k]
        length = np.sqrt(diagonal * diagonal + norm)
        alpha = -length if diagonal > 0.0 else length
        head = diagonal - alpha
        scale = 2.0 / (head * head + norm)
        top = R[k]
        for c in range(k + 1, p):
            w[c] = head * top[c]
        w[p] = 0.0
        r = 0
        while r + 3 < active:
            a0, a1, a2, a3 = D[r], D[r + 1], D[r + 2], D[r + 3]
            v0, v1, v2, v3 = a0[k], a1[k], a2[k], a3[k]
            for c in range(k + 1, p + 1):
                w[c] += v0 * a0[c] + v1 * a1[c] + v2 * a2[c] + v3 * a3[c]
            r += 4
        while r < active:
            a0 = D[r]
            v0 = a0[k]
            for c in range(k + 1, p + 1):
                w[c] += v0 * a0[c]
            r += 1
        for c in range(k + 1, p + 1):
            w[c] *= scale
        for c in range(k + 1, p):
            top[c] -= head * w[c]
        rhs[k] = -head * w[p]
        top[k] = alpha
        r = 0
        while r + 3 < active:
            a0, a1, a2, a3 = D[r], D[r + 1], D[r + 2], D[r + 3]
            v0, v1, v2, v3 = a0[k], a1[k], a2[k], a3[k]
            for c in range(k + 1, p + 1):
                a0[c] -= v0 * w[c]
                a1[c] -= v1 * w[c]
                a2[c] -= v2 * w[c]
                a3[c] -= v3 * w[c]
            r += 4
        while r < active:
            a0 = D[r]
            v0 = a0[k]
            for c in range(k + 1, p + 1):
                a0[c] -= v0 * w[c]
            r += 1


@kernel
def back_substitute(R: FloatArray, rhs: FloatArray, step: FloatArray) -> None:
    """Solve `R step = rhs` for an upper triangle; a zero pivot leaves that parameter unmoved."""
    p = R.shape[0]
    for k in range(p - 1, -1, -1):
        row = R[k]
        total = 0.0
        for c in range(k + 1, p):
            total += row[c] * step[c]
        step[k] = (rhs[k] - total) / row[k] if row[k] != 0.0 else 0.0


@kernel
def add_variance(R: FloatArray, k: int, variance: float) -> None:
    """Renew the upper triangle `R` as if parameter `k` had moved by an unknown amount of this variance.

    The covariance `(R'R)^-1` grows by `variance` at `(k, k)`; all other entries stay.  Rotations gather
    column `k` in the first row, that row shrinks, and rotations make the triangle again.
    """
    p = R.shape[0]
    for i in range(k, 0, -1):
        _rotate(R, i - 1, i, k, i - 1)
    shrink = 1.0 / np.sqrt(1.0 + variance * R[0, k] * R[0, k])
    for c in range(p):
        R[0, c] *= shrink
    for i in range(k):
        _rotate(R, i, i + 1, i, i)


@kernel
def _rotate(R: FloatArray, above: int, below: int, column: int, start: int) -> None:
    """Rotate two rows, from column `start` on, so that `R[below, column]` vanishes."""
    a, b = R[above, column], R[below, column]
    length = np.sqrt(a * a + b * b)
    if length < 1e-150:
        return
    cosine, sine = a / length, b / length
    upper, lower = R[above], R[below]
    for c in range(start, R.shape[0]):
        x, y = upper[c], lower[c]
        upper[c] = cosine * x + sine * y
        lower[c] = cosine * y - sine * x
    lower[column] = 0.0


@kernel
def scale_columns(R: FloatArray, roots: FloatArray) -> None:
    """Multiply column `k` of the upper triangle `R` by `roots[k]`."""
    p = R.shape[0]
    for k in range(p):
        row = R[k]
        for c in range(k, p):
            row[c] *= roots[c]
