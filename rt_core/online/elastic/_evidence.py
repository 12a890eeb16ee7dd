"""Estimate of an elastic joint by the rows alone, without the initial values as a prior.

Forgetting replaces what it removes by the prior, so that the prior's part in the information is always the unit matrix
(`rt_core.online.elastic.update`).  The rest is the information of the rows.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.types import FloatArray

_MIN = 1e-9  # information below this share of the prior's is rounding
_CLOSEST = 1e-10  # smallest eigenvalue used of the information with a unit diagonal


@dataclass(frozen=True)
class Evidence:
    """Estimate by the rows, in units of the parameters' initial spread."""

    #: (p,) standard deviations by the rows alone; infinite without data.
    std: FloatArray
    #: (p, p).
    correlation: FloatArray
    #: (p,) share of each column (squared) that the others do not explain.
    apart: FloatArray
    #: (p,) estimate by the rows alone less the one with the prior.
    pull: FloatArray
    #: (p,) difference of the inverse regression: the spring scaled by `1/share`, the rest fitted again.
    inverse: FloatArray
    #: Part of the spring (squared) in its torque plus the residual, beyond all other columns.
    share: float


def evidence(root: FloatArray, theta: FloatArray, start: FloatArray, left: float, springs: int) -> Evidence:
    """Return the evidence of the rows in the triangle `root` (p, p) at the estimate `theta` (p,).

    `start` (p,) are the initial values, `left` the weighted squared residual; the first `springs` parameters are the
    spring's.
    """
    information = root.T @ root - np.eye(theta.size)
    own = np.diag(information)
    shown = own > _MIN
    scale = np.sqrt(np.where(shown, own, 1.0))
    unit = information / np.outer(scale, scale)
    unit[~shown] = 0.0
    unit[:, ~shown] = 0.0
    unit[~shown, ~shown] = 1.0
    inverse = _inverse(unit)
    spread = np.sqrt(np.diag(inverse))
    pull = np.where(shown, inverse @ (np.where(shown, theta - start, 0.0) / scale) / scale, 0.0)
    data = (theta + pull) * scale * shown
    spring, rest = slice(0, springs), slice(springs, None)
    crossed = unit[rest, spring] @ data[spring]
    made_of = _inverse(unit[rest, rest]) @ crossed
    alone = max(float(data[spring] @ unit[spring, spring] @ data[spring] - crossed @ made_of), 0.0)
    share = alone / (alone + left) if alone + left > 0.0 else 0.0
    more = 1.0 / max(share, 1e-3) - 1.0
    moved = more * np.concatenate((data[spring], -made_of)) / scale
    return Evidence(
        np.where(shown, spread / scale, np.inf), inverse / np.outer(spread, spread),
        np.where(shown, 1.0 / np.diag(inverse), 0.0), pull, np.where(shown, pull + moved, 0.0), share,
    )  # fmt: skip


def _inverse(unit: FloatArray) -> FloatArray:
    """Return the inverse of a positive semidefinite matrix with a unit diagonal; small eigenvalues are raised."""
    values, vectors = np.linalg.eigh(unit)
    return np.asarray((vectors / np.maximum(values, _CLOSEST)) @ vectors.T)
