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
#: Numbers that one turn of a vectorised and unrolled loop takes.
LANES = 16


def padded(p: int) -> int:
    """Length of rows with `p` parameters and a right-hand side, filled up to whole turns of a loop."""
    return -(-(p + 1) // LANES) * LANES


@kernel
def dot(a: FloatArray, b: FloatArray) -> float:
    """Scalar product of two vectors (N,)."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@kernel
def triangularise(R: FloatArray, D: FloatArray, first: IntArray, rows: int, work: FloatArray) -> None:
    """Reduce `[R 0; D]` to triangular form in place.

    `R` (p, W) upper triangle; `D` (rows, W) holds rows and, at `p`, their right-hand side; on return `R`
    is renewed and `work[0]` (W,) holds the reduced right-hand side; `work[1]` is scratch.  `W` is
    `padded(p)` and what is beyond is zero: loops begin at a multiple of `LANES`, so that none has a
    remainder; what they write to the left of the diagonal is cleared.
    `first` (rows,) ascending: the first column of each row that may differ from zero.
    """
    p, width = R.shape
    rhs = work[0]
    active = 0
    for k in range(p):
        rhs[k] = 0.0
        while active < rows and first[active] <= k:
            active += 1
        norm = 0.0
        for r in range(active):
            norm += D[r, k] * D[r, k]
        if norm < _NOTHING:
            continue
        top = R[k]
        diagonal = top[k]
        length = np.sqrt(diagonal * diagonal + norm)
        alpha = -length if diagonal > 0.0 else length
        head = diagonal - alpha
        start = (k + 1) // LANES * LANES
        w = work[1, start:width]
        _gather(top[start:width], D, w, start, k, active, head)
        _reflect(top[start:width], D, w, start, k, active, head, 2.0 / (head * head + norm))
        for c in range(start, k):
            top[c] = 0.0
        top[k] = alpha
        rhs[k] = top[p]
        top[p] = 0.0


@kernel
def _gather(top: FloatArray, D: FloatArray, w: FloatArray, start: int, k: int, active: int, head: float) -> None:
    """`w = head*top + sum D[r, k]*D[r]` from column `start` on, up to four rows at a time."""
    size = w.shape[0]
    stop = start + size
    r = 0
    if active >= 4:
        a0, a1, a2, a3 = D[0, start:stop], D[1, start:stop], D[2, start:stop], D[3, start:stop]
        v0, v1, v2, v3 = D[0, k], D[1, k], D[2, k], D[3, k]
        for c in range(size):
            w[c] = head * top[c] + v0 * a0[c] + v1 * a1[c] + v2 * a2[c] + v3 * a3[c]
        r = 4
    else:
        for c in range(size):
            w[c] = head * top[c]
    while r + 3 < active:
        a0, a1, a2, a3 = D[r, start:stop], D[r + 1, start:stop], D[r + 2, start:stop], D[r + 3, start:stop]
        v0, v1, v2, v3 = D[r, k], D[r + 1, k], D[r + 2, k], D[r + 3, k]
        for c in range(size):
            w[c] += v0 * a0[c] + v1 * a1[c] + v2 * a2[c] + v3 * a3[c]
        r += 4
    if r + 1 < active:
        a0, a1 = D[r, start:stop], D[r + 1, start:stop]
        v0, v1 = D[r, k], D[r + 1, k]
        for c in range(size):
            w[c] += v0 * a0[c] + v1 * a1[c]
        r += 2
    if r < active:
        a0, v0 = D[r, start:stop], D[r, k]
        for c in range(size):
            w[c] += v0 * a0[c]


@kernel
def _reflect(
    top: FloatArray, D: FloatArray, w: FloatArray, start: int, k: int, active: int, head: float, scale: float
) -> None:
    """Take `scale*head*w` from `top` and `scale*D[r, k]*w` from each row, from column `start` on."""
    size = w.shape[0]
    stop = start + size
    u = scale * head
    r = 0
    if active >= 3:
        a0, a1, a2 = D[0, start:stop], D[1, start:stop], D[2, start:stop]
        v0, v1, v2 = scale * D[0, k], scale * D[1, k], scale * D[2, k]
        for c in range(size):
            top[c] -= u * w[c]
            a0[c] -= v0 * w[c]
            a1[c] -= v1 * w[c]
            a2[c] -= v2 * w[c]
        r = 3
    else:
        for c in range(size):
            top[c] -= u * w[c]
    while r + 3 < active:
        a0, a1, a2, a3 = D[r, start:stop], D[r + 1, start:stop], D[r + 2, start:stop], D[r + 3, start:stop]
        v0, v1, v2, v3 = scale * D[r, k], scale * D[r + 1, k], scale * D[r + 2, k], scale * D[r + 3, k]
        for c in range(size):
            a0[c] -= v0 * w[c]
            a1[c] -= v1 * w[c]
            a2[c] -= v2 * w[c]
            a3[c] -= v3 * w[c]
        r += 4
    while r < active:
        a0, v0 = D[r, start:stop], scale * D[r, k]
        for c in range(size):
            a0[c] -= v0 * w[c]
        r += 1


@kernel
def back_substitute(R: FloatArray, rhs: FloatArray, step: FloatArray) -> None:
    """Solve `R step = rhs` for a padded upper triangle; a zero pivot leaves that parameter unmoved.

    `step` (W,) must be finite; its entries beyond `p` are not touched.
    """
    p, width = R.shape
    for k in range(p - 1, -1, -1):
        step[k] = 0.0
        start = (k + 1) // LANES * LANES
        row = R[k, start:width]
        x = step[start:width]
        total = 0.0
        for c in range(row.shape[0]):  # left of the diagonal the row is zero, and so is step[k]
            total += row[c] * x[c]
        step[k] = (rhs[k] - total) / R[k, k] if R[k, k] != 0.0 else 0.0


@kernel
def add_variance(R: FloatArray, k: int, variance: float) -> None:
    """Renew the upper triangle `R` as if parameter `k` had moved by an unknown amount of this variance.

    The covariance `(R'R)^-1` grows by `variance` at `(k, k)`; all other entries stay.  Rotations gather
    column `k` in the first row, that row shrinks, and rotations make the triangle again.
    """
    for i in range(k, 0, -1):
        _rotate(R, i - 1, i, k, i - 1)
    shrink = 1.0 / np.sqrt(1.0 + variance * R[0, k] * R[0, k])
    for c in range(R.shape[0]):
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
    """Multiply column `k` of the padded upper triangle `R` by `roots[k]`; `roots` (W,)."""
    p, width = R.shape
    for k in range(p):
        start = k // LANES * LANES
        row, root = R[k, start:width], roots[start:width]
        for c in range(row.shape[0]):
            row[c] *= root[c]
