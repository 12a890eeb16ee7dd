"""How sure the place of a calibrated arm's tool is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.sample import Sample
from rt_core.types import FloatArray


def position_std(
    model: ErrorModel,
    x: FloatArray,
    q: FloatArray,
    names: Sequence[str],
    covariance: FloatArray,
    load: FloatArray | None = None,
) -> FloatArray:
    """Root-mean-square distance (N,) [m] by which predicted positions at postures `q` (N, n) may be off.

    `sqrt(trace(J C J'))`, with `J` the derivatives of the position with respect to the parameters `names` (p,) at the
    errors `x` (P,) and `C` (p, p) their `covariance`.  Names that the model does not have move nothing.  `load` (N, n)
    is what the joints hold, where they give way.
    """
    known = [k for k, name in enumerate(names) if name in model.names]
    free = np.array([model.index(names[k]) for k in known], dtype=np.int64)
    positions, _ = model.predict(q, x, load)
    sample = Sample.of(np.ascontiguousarray(q), positions)
    J = model.jacobian(sample if load is None else replace(sample, load=load), x, free)
    spread = np.einsum("nip,pq,niq->n", J, covariance[np.ix_(known, known)], J)
    return np.asarray(np.sqrt(np.maximum(spread, 0.0)))
