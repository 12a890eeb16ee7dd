"""Uncertainty of the tool position of a calibrated arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.sample import Sample
from rt_core.types import FloatArray


def position_std(
    model: ErrorModel, x: FloatArray, q: FloatArray, names: Sequence[str], covariance: FloatArray,
    load: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the root-mean-square error (N,) [m] of predicted positions at postures `q` (N, n).

    `sqrt(trace(J C J'))`, with `J` the derivatives of the position by the parameters `names` (p,) at the errors `x`
    (P,) and `C` (p, p) their `covariance`.  Names unknown to the model are ignored.  `load` (N, n) is that of the
    joints, for compliance.
    """
    known = [k for k, name in enumerate(names) if name in model.names]
    free = np.array([model.index(names[k]) for k in known], dtype=np.int64)
    positions, _ = model.predict(q, x, load)
    sample = Sample.of(np.ascontiguousarray(q), positions)
    J = model.jacobian(sample if load is None else replace(sample, load=load), x, free)
    spread = np.einsum("nip,pq,niq->n", J, covariance[np.ix_(known, known)], J)
    return np.asarray(np.sqrt(np.maximum(spread, 0.0)))
