"""Between a covariance and the triangular root of its information."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dtrtri

from rt_core.types import FloatArray

#: Least eigenvalue of a correlation matrix: parameters that are closer to a fixed combination are known to this.
_CLOSEST = 1e-12
#: An eigenvalue below minus this is no rounding: the matrix is not a covariance.
_INDEFINITE = 1e-6


def triangle_inverse(R: FloatArray) -> FloatArray:
    """Inverse of an upper triangle; a pivot that vanishes against the largest gives a huge variance instead."""
    diagonal = np.abs(np.diag(R))
    floor = max(1e-30 * float(diagonal.max()), 1e-100)
    safe = np.asfortranarray(R)
    weak = np.flatnonzero(diagonal < floor)
    safe[weak, weak] = floor
    inverse, _ = dtrtri(safe, overwrite_c=1)
    return np.triu(np.asarray(inverse))


def root_of_covariance(covariance: FloatArray, start: FloatArray) -> FloatArray:
    """Upper triangle (p, p) whose `R'R` is the information that belongs to `covariance` (p, p).

    A parameter of which the covariance says nothing, by a variance that is zero, not finite, or larger than an
    estimator starts with, gets the root of information `start` (p,) and has no part in the others.  Directions are
    taken together, by the eigenvalues of the correlation matrix: what rounding has made singular there stays as known
    as a share of 1e-12, and the root is regular whatever the covariance.

    Raises
    ------
    ValueError
        If the covariance is not symmetric, not positive semidefinite or has another size.
    """
    p = start.size
    if covariance.shape != (p, p):
        raise ValueError(f"covariance of the model has the shape {covariance.shape}, not {(p, p)}")
    variance = np.diag(covariance)
    with np.errstate(invalid="ignore"):
        known = np.flatnonzero(np.isfinite(variance) & (variance > 0.0) & (variance * start**2 <= 1.0))
        if (variance < 0.0).any():
            raise ValueError("covariance of the model has a negative variance")
    spread = np.sqrt(variance[known])
    correlation = covariance[np.ix_(known, known)] / np.outer(spread, spread)
    if not np.isfinite(correlation).all() or np.abs(correlation - correlation.T).max(initial=0.0) > _INDEFINITE:
        raise ValueError("covariance of the model is not finite and symmetric")
    values, vectors = np.linalg.eigh(0.5 * (correlation + correlation.T))
    if values.min(initial=0.0) < -_INDEFINITE:
        raise ValueError("covariance of the model is not positive semidefinite")
    root = np.diag(start)
    root[np.ix_(known, known)] = (vectors / np.sqrt(np.maximum(values, _CLOSEST))).T / spread
    return np.asarray(np.linalg.qr(root, mode="r"))
