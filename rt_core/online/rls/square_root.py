"""Square-root information form of recursive least squares with forgetting, n rows at a time.

The state is the estimate `theta` and an upper triangle `R` with `R'R` the information about its error.  One update
solves

    min_d  |R D d|^2 + |Phi d - e|^2 + |F d|^2,      theta <- theta + d,

by Householder reflections; `D` holds the square roots of the forgetting factors, one per parameter, `Phi` the weighted
rows, `e` the weighted innovations, `F` a row of the information floor.  The right-hand side of `R` is zero by
construction, so only `R` and `theta` are stored, and forgetting cannot move the estimate.  `D R'R D` is positive
definite if `R'R` is, whatever the rounding.

Row `j` of `Phi` starts at column `first[j]`, and `first` ascends: with each joint's parameters just before its link's,
a column meets only the rows of its own and earlier joints, a third of the dense work.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.online._state import UNROLL
from rt_core.types import FloatArray, IntArray

#: A column with a smaller sum of squares is empty; reflecting it would divide by an underflow.
_NOTHING = 1e-250


@kernel
def dot(a: FloatArray, b: FloatArray) -> float:
    """Return the scalar product of two vectors (N,)."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@kernel
def qr_update(R: FloatArray, D: FloatArray, first: IntArray, rows: int, work: FloatArray) -> None:
    """Reduce `[R 0; D]` to triangular form in place.

    `R` (p, W) is an upper triangle; `D` (rows, W) holds rows and, at `p`, their right-hand side.  On return `R` is
    updated and `work[0]` (W,) holds the reduced right-hand side; the rest of `work` (3, W) is scratch.  `W` is
    `padded(p)`, with zeros beyond `p`: loops begin at a multiple of `UNROLL` and have no remainder; what they write to
    the left of the diagonal is cleared.  `first` (rows,), ascending, is the first nonzero column of each row.

    Two columns are reflected together, `I - scale*u*u'` with `u = (head, v)` each, so that the rows are read and
    written half as often.
    """
    p, width = R.shape
    rhs = work[0]
    v = np.empty((2, rows + 1))
    active = 0
    for k in range(0, p, 2):
        two = k + 1 < p
        last = k + 1 if two else k
        while active < rows and first[active] <= last:
            active += 1
        top, next_top = R[k], R[last]

        # the first reflection, from column k
        norm = 0.0
        for r in range(active):
            v[0, r] = D[r, k]
            norm += v[0, r] * v[0, r]
        head, scale, alpha = 0.0, 0.0, top[k]
        if norm >= _NOTHING:
            length = np.sqrt(top[k] * top[k] + norm)
            alpha = -length if top[k] > 0.0 else length
            head = top[k] - alpha
            scale = 2.0 / (head * head + norm)
        head2, scale2, alpha2, both = 0.0, 0.0, 0.0, 0.0
        # the second, from column k + 1 as the first leaves it
        if two:
            product = head * top[last]
            for r in range(active):
                product += v[0, r] * D[r, last]
            product *= scale
            norm = 0.0
            for r in range(active):
                v[1, r] = D[r, last] - product * v[0, r]
                norm += v[1, r] * v[1, r]
                both += v[0, r] * v[1, r]
            corner = top[last] - product * head
            alpha2 = next_top[last]
            if norm >= _NOTHING:
                length = np.sqrt(alpha2 * alpha2 + norm)
                head2 = alpha2
                alpha2 = -length if head2 > 0.0 else length
                head2 -= alpha2
                scale2 = 2.0 / (head2 * head2 + norm)
        else:
            corner = 0.0
            for r in range(active):
                v[1, r] = 0.0

        # products of all further columns with both directions, up to four rows at a time
        start = (last + 1) // UNROLL * UNROLL
        t1, t2 = top[start:width], next_top[start:width]
        w1, w2 = work[1, start:width], work[2, start:width]
        size = w1.shape[0]
        for c in range(size):
            w1[c] = head * t1[c]
            w2[c] = head2 * t2[c]
        r = 0
        while r + 3 < active:
            a0, a1, a2, a3 = D[r, start:width], D[r + 1, start:width], D[r + 2, start:width], D[r + 3, start:width]
            x0, x1, x2, x3 = v[0, r], v[0, r + 1], v[0, r + 2], v[0, r + 3]
            y0, y1, y2, y3 = v[1, r], v[1, r + 1], v[1, r + 2], v[1, r + 3]
            for c in range(size):
                w1[c] += x0 * a0[c] + x1 * a1[c] + x2 * a2[c] + x3 * a3[c]
                w2[c] += y0 * a0[c] + y1 * a1[c] + y2 * a2[c] + y3 * a3[c]
            r += 4
        if r + 1 < active:
            a0, a1 = D[r, start:width], D[r + 1, start:width]
            x0, x1 = v[0, r], v[0, r + 1]
            y0, y1 = v[1, r], v[1, r + 1]
            for c in range(size):
                w1[c] += x0 * a0[c] + x1 * a1[c]
                w2[c] += y0 * a0[c] + y1 * a1[c]
            r += 2
        if r < active:
            a0 = D[r, start:width]
            x0, y0 = v[0, r], v[1, r]
            for c in range(size):
                w1[c] += x0 * a0[c]
                w2[c] += y0 * a0[c]

        # subtract both projections
        both *= scale
        for c in range(size):
            first_w = w1[c]
            w2[c] = scale2 * (w2[c] - both * first_w)
            w1[c] = scale * first_w
            t1[c] -= head * w1[c]
            t2[c] -= head2 * w2[c]
        r = 0
        while r + 3 < active:
            a0, a1, a2, a3 = D[r, start:width], D[r + 1, start:width], D[r + 2, start:width], D[r + 3, start:width]
            x0, x1, x2, x3 = v[0, r], v[0, r + 1], v[0, r + 2], v[0, r + 3]
            y0, y1, y2, y3 = v[1, r], v[1, r + 1], v[1, r + 2], v[1, r + 3]
            for c in range(size):
                a0[c] -= x0 * w1[c] + y0 * w2[c]
                a1[c] -= x1 * w1[c] + y1 * w2[c]
                a2[c] -= x2 * w1[c] + y2 * w2[c]
                a3[c] -= x3 * w1[c] + y3 * w2[c]
            r += 4
        if r + 1 < active:
            a0, a1 = D[r, start:width], D[r + 1, start:width]
            x0, x1 = v[0, r], v[0, r + 1]
            y0, y1 = v[1, r], v[1, r + 1]
            for c in range(size):
                a0[c] -= x0 * w1[c] + y0 * w2[c]
                a1[c] -= x1 * w1[c] + y1 * w2[c]
            r += 2
        if r < active:
            a0 = D[r, start:width]
            x0, y0 = v[0, r], v[1, r]
            for c in range(size):
                a0[c] -= x0 * w1[c] + y0 * w2[c]

        for c in range(start, k):
            top[c] = 0.0
        top[k] = alpha
        rhs[k] = top[p]
        top[p] = 0.0
        if two:
            top[last] = corner
            for c in range(start, last):
                next_top[c] = 0.0
            next_top[last] = alpha2
            rhs[last] = next_top[p]
            next_top[p] = 0.0


@kernel
def back_substitute(R: FloatArray, rhs: FloatArray, step: FloatArray) -> None:
    """Solve `R step = rhs` for a padded upper triangle; a zero pivot gives a zero step.

    `step` (W,) must be finite; its entries beyond `p` are not changed.
    """
    p, width = R.shape
    k = p - 1
    while k >= 0:  # two rows at a time; left of the diagonal a row is zero, and so is the step not yet found
        above = max(k - 1, 0)
        step[k] = 0.0
        step[above] = 0.0
        start = k // UNROLL * UNROLL
        row, row_above, x = R[k, start:width], R[above, start:width], step[start:width]
        total, total_above = 0.0, 0.0
        for c in range(x.shape[0]):
            total += row[c] * x[c]
            total_above += row_above[c] * x[c]
        if R[k, k] != 0.0:
            step[k] = (rhs[k] - total) / R[k, k]
        if k > 0 and R[above, above] != 0.0:
            step[above] = (rhs[above] - total_above - R[above, k] * step[k]) / R[above, above]
        k -= 2


@kernel
def add_variance(R: FloatArray, k: int, variance: float) -> None:
    """Add `variance` to entry `(k, k)` of the covariance `(R'R)^-1` of the upper triangle `R`.

    Rotations gather column `k` in the first row, that row is scaled, and rotations restore the triangle.
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
    """Rotate two rows, from column `start` on, to zero `R[below, column]`."""
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
        start = k // UNROLL * UNROLL
        row, root = R[k, start:width], roots[start:width]
        for c in range(row.shape[0]):
            row[c] *= root[c]
