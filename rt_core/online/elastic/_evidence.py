"""What the rows alone tell of an elastic joint, without the start that the estimate leans on.

Forgetting gives back of the start as much as it takes, so the start's part in the information is the unit matrix at any
time (`rt_core.online.elastic.update`).  Less that, the information is that of the rows remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.types import FloatArray

_MIN = 1e-9  # information below this share of the start's is rounding
_CLOSEST = 1e-10  # least eigenvalue of the information with a unit diagonal


@dataclass(frozen=True)
class Evidence:
    """All in units of the parameters' spread at the start.

    Attributes
    ----------
    std : (p,) float64
        Of the rows' own estimate; infinite where nothing shows a parameter.
    correlation : (p, p) float64
    apart : (p,) float64
        Share of each column (squared) that the others do not explain.
    pull : (p,) float64
        Estimate of the rows alone, less the one that leans on the start.
    inverse : (p,) float64
        What the inverse regression would add: the spring scaled up by `1/share`, the rest fitted anew.
    share : float
        Of the spring's torque and what the rows leave together, beyond all other columns, the spring's part (squared).
    """

    std: FloatArray
    correlation: FloatArray
    apart: FloatArray
    pull: FloatArray
    inverse: FloatArray
    share: float


def evidence(root: FloatArray, theta: FloatArray, start: FloatArray, left: float, springs: int) -> Evidence:
    """Evidence of the rows behind the triangle `root` (p, p) at the estimate `theta` (p,).

    `start` (p,) values it leans on; `left` what the rows leave, weighted and squared; the first `springs` parameters
    are the spring's.
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
        np.where(shown, spread / scale, np.inf),
        inverse / np.outer(spread, spread),
        np.where(shown, 1.0 / np.diag(inverse), 0.0),
        pull,
        np.where(shown, pull + moved, 0.0),
        share,
    )


def _inverse(unit: FloatArray) -> FloatArray:
    """Inverse of a positive semidefinite matrix with a unit diagonal; what is singular gets a huge variance."""
    values, vectors = np.linalg.eigh(unit)
    return np.asarray((vectors / np.maximum(values, _CLOSEST)) @ vectors.T)
