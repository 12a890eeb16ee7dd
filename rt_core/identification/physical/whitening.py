"""Deviations of an estimate in units of standard deviations."""

from __future__ import annotations

import numpy as np

from rt_core.identification.physical.prior import ConsistencyError
from rt_core.types import FloatArray

_SINGULAR = 1e-13


def whitening(covariance: FloatArray, p: int) -> FloatArray:
    """(r, p) matrix `W` with `W @ covariance @ W.T` the identity.

    A direction without variance counts as one that the data left open, as least squares reports it, and is left out.

    Raises
    ------
    ConsistencyError
        If `covariance` is not a finite (p, p) matrix, or zero.
    """
    if covariance.shape != (p, p) or not np.isfinite(covariance).all():
        raise ConsistencyError(f"the covariance must be a finite ({p}, {p}) matrix")
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0.0)
    values, vectors = np.linalg.eigh(inverse[:, None] * covariance * inverse)
    kept = values > _SINGULAR * max(float(values[-1]), 1e-300)
    if not kept.any() or not std.any():
        raise ConsistencyError("the covariance is zero: nothing is known about the parameters")
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])).T * inverse)
