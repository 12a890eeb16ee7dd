"""Singular values and least squares that converge for every finite matrix.

LAPACK's divide and conquer (`gesdd`, `gelsd`) sometimes does not; then the slower QR iteration (`gesvd`, `gelss`) does.
"""

import numpy as np
import scipy.linalg as la

from rt_core.types import FloatArray


def svd(A: FloatArray, *, full_matrices: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `U`, the singular values in descending order, and `V'` of a finite matrix (m, n).

    Raises
    ------
    numpy.linalg.LinAlgError
        If neither method converges, or the matrix has values that are not finite.
    """
    _check_finite(A)
    try:
        U, s, Vt = la.svd(A, full_matrices=full_matrices, check_finite=False)
    except np.linalg.LinAlgError:
        U, s, Vt = la.svd(A, full_matrices=full_matrices, check_finite=False, lapack_driver="gesvd")
    return U, s, Vt


def singular_values(A: FloatArray) -> FloatArray:
    """Return the singular values of a finite matrix (m, n) in descending order; errors as for `svd`."""
    _check_finite(A)
    try:
        return np.asarray(la.svd(A, compute_uv=False, check_finite=False))
    except np.linalg.LinAlgError:
        return np.asarray(la.svd(A, compute_uv=False, check_finite=False, lapack_driver="gesvd"))


def lstsq(A: FloatArray, b: FloatArray, rcond: float | None = None) -> FloatArray:
    """Return the solution of least norm of `min |A x - b|`, (n,) or (n, k) for `b` (m,) or (m, k); errors as for `svd`.

    Singular values below the share `rcond` of the largest count as zero; by default the machine precision times the
    larger dimension of `A`.
    """
    cond = np.finfo(np.float64).eps * max(A.shape) if rcond is None else rcond
    _check_finite(A, b)
    try:
        x = la.lstsq(A, b, cond=cond, check_finite=False)[0]
    except np.linalg.LinAlgError:
        x = la.lstsq(A, b, cond=cond, check_finite=False, lapack_driver="gelss")[0]
    return np.asarray(x)


def _check_finite(*arrays: FloatArray) -> None:
    for array in arrays:
        if not np.isfinite(array).all():
            raise np.linalg.LinAlgError("the matrix has values that are not finite")
