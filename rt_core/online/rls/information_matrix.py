"""Conversions between a covariance and the triangular root of its information matrix."""

import numpy as np
from scipy.linalg.lapack import dtrtri

from rt_core.types import FloatArray

#: Smallest eigenvalue of a correlation matrix that is used; smaller ones are raised to it.
_CLOSEST = 1e-12
#: A matrix with an eigenvalue below minus this is not a covariance.
_INDEFINITE = 1e-6


def triangle_inverse(R: FloatArray) -> FloatArray:
    """Return the inverse of an upper triangle; negligible pivots give a huge variance instead of an error."""
    diagonal = np.abs(np.diag(R))
    floor = max(1e-30 * float(diagonal.max()), 1e-100)
    safe = np.asfortranarray(R)
    weak = np.flatnonzero(diagonal < floor)
    safe[weak, weak] = floor
    inverse, _ = dtrtri(safe, overwrite_c=1)
    return np.triu(np.asarray(inverse))


def root_of_covariance(covariance: FloatArray, start: FloatArray) -> FloatArray:
    """Return the upper triangle `R` (p, p) with `R'R` the inverse of `covariance` (p, p).

    A parameter whose variance is zero, not finite, or larger than the initial one is unknown: it gets the initial root
    `start` (p,) and is uncorrelated with the others.  Eigenvalues of the correlation matrix are raised to 1e-12, so
    that the root is regular for any covariance.

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
