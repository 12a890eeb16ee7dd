"""Evidence about causes of the active model's residual: products of features, summed over rows.

Features are the columns of possible changes: a payload at the flange, each friction term of the joint, the predicted
torque (for the gain of a sensor) and one (for its offset).  The sums are the normal equations of every hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.model.friction import FOLLOWING, LAW_OFFSET, LAW_VISCOUS, TEMPERATURE
from rt_core.model.parameters import ParameterLayout
from rt_core.types import FloatArray, IntArray


@dataclass(frozen=True)
class Evidence:
    """Sums over a block of rows."""

    gram: FloatArray  # (n, d, d) products of the features of each joint; the last is the residual
    rows: FloatArray  # (n,) number of rows summed: those in use and clean of reversals

    def about(self, baseline: FloatArray) -> Evidence:
        """Return the evidence about the residual less `baseline` (n, d - 1), coefficients of the features."""
        n, d = self.gram.shape[:2]
        change = np.tile(np.eye(d), (n, 1, 1))
        change[:, :-1, -1] = -baseline
        return Evidence(np.swapaxes(change, 1, 2) @ self.gram @ change, self.rows)


def sum_of(blocks: Sequence[Evidence]) -> Evidence:
    """Return the sum of one or more blocks."""
    return Evidence(np.sum([b.gram for b in blocks], axis=0), np.sum([b.rows for b in blocks], axis=0))


def friction_columns(layout: ParameterLayout, n: int) -> IntArray:
    """Return the friction parameters (n, terms) of each joint, in the order of its features; -1 for none."""
    friction = (layout.law >= LAW_VISCOUS) & (layout.law != LAW_OFFSET)
    own = [np.flatnonzero(friction & (layout.motor[:, j] != 0.0)) for j in range(n)]
    places = np.full((n, max((c.size for c in own), default=0)), -1, dtype=np.int64)
    for j, columns in enumerate(own):
        places[j, : columns.size] = columns
    return places


def slopes(layout: ParameterLayout) -> IntArray:
    """Return for each temperature slope the parameter (p,) that it belongs to; -1 for other parameters."""
    values = {slope: value for value, slope in FOLLOWING.items()}
    of = np.full(layout.law.size, -1, dtype=np.int64)
    for c in np.flatnonzero(np.isin(layout.law, TEMPERATURE)):
        own = (layout.law == values[int(layout.law[c])]) & (layout.motor == layout.motor[c]).all(axis=1)
        own &= layout.source == layout.source[c]
        if own.any():
            of[c] = int(np.argmax(own))
    return of
