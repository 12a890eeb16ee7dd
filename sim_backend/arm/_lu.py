"""Solution of linear equations by LU factors with row pivoting, in place."""

from rt_core.jit import kernel
from rt_core.types import FloatArray, IntArray


@kernel
def factor(matrix: FloatArray, pivots: IntArray) -> bool:
    """Replace (m, m) `matrix` by its LU factors with row pivoting; False if it is singular."""
    m = matrix.shape[0]
    for k in range(m):
        best = k
        for i in range(k + 1, m):
            if abs(matrix[i, k]) > abs(matrix[best, k]):
                best = i
        if not abs(matrix[best, k]) > 0.0:
            return False
        pivots[k] = best
        if best != k:
            for j in range(m):
                matrix[k, j], matrix[best, j] = matrix[best, j], matrix[k, j]
        for i in range(k + 1, m):
            share = matrix[i, k] / matrix[k, k]
            matrix[i, k] = share
            if share != 0.0:
                for j in range(k + 1, m):
                    matrix[i, j] -= share * matrix[k, j]
    return True


@kernel
def substitute(matrix: FloatArray, pivots: IntArray, x: FloatArray) -> None:
    """Solve for the right side `x` (m,) in place, with the result of `factor`."""
    m = x.shape[0]
    for k in range(m):
        best = pivots[k]
        if best != k:
            x[k], x[best] = x[best], x[k]
    for i in range(m):
        for j in range(i):
            x[i] -= matrix[i, j] * x[j]
    for i in range(m - 1, -1, -1):
        for j in range(i + 1, m):
            x[i] -= matrix[i, j] * x[j]
        x[i] /= matrix[i, i]
