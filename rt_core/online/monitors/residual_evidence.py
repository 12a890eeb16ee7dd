"""What the residual of the active model may be due to: products of the features of each row, summed up.

The residual of joint j is what the active model leaves of the torque.  Its features are the columns of what could
have changed: the ten parameters of a payload at the flange, each friction term that acts on the joint, the torque that
the model predicts (a sensor with another gain shows a share of it) and one (a sensor with another offset).  Their
products with each other and with the residual, summed over a block of rows, are the normal equations of every
hypothesis about that block, so that hypotheses can be compared long after the rows are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.jit import kernel
from rt_core.model.friction import FOLLOWING, LAW_OFFSET, LAW_VISCOUS, TEMPERATURE
from rt_core.model.parameters import ParameterLayout
from rt_core.online import _state as m
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.types import FloatArray, IntArray

# Around a reversal filtered friction is not the friction at the filtered velocity: these innovations tell nothing
# about a change.  A row is free of it where the samples left out for low velocity weigh less than this.
CLEAN = 0.01


@dataclass(frozen=True)
class Evidence:
    """Sums over the rows of a block.

    Attributes
    ----------
    gram : (n, d, d) float64
        Products of the features of each joint; the last is the residual.
    rows : (n,) float64
        Rows that went in: those in use, clean of reversals.
    """

    gram: FloatArray
    rows: FloatArray

    def about(self, baseline: FloatArray) -> Evidence:
        """Return the same about the residual that `baseline` (n, d - 1), coefficients of the features, leaves."""
        n, d = self.gram.shape[:2]
        change = np.tile(np.eye(d), (n, 1, 1))
        change[:, :-1, -1] = -baseline
        return Evidence(np.swapaxes(change, 1, 2) @ self.gram @ change, self.rows)


def sum_of(blocks: Sequence[Evidence]) -> Evidence:
    """All blocks together, one or more."""
    return Evidence(np.sum([b.gram for b in blocks], axis=0), np.sum([b.rows for b in blocks], axis=0))


def friction_places(layout: ParameterLayout, n: int) -> IntArray:
    """(n, terms) which friction parameters act on each joint, in the order of its features; -1 for none."""
    friction = (layout.law >= LAW_VISCOUS) & (layout.law != LAW_OFFSET)
    own = [np.flatnonzero(friction & (layout.motor[:, j] != 0.0)) for j in range(n)]
    places = np.full((n, max((c.size for c in own), default=0)), -1, dtype=np.int64)
    for j, columns in enumerate(own):
        places[j, : columns.size] = columns
    return places


def slopes(layout: ParameterLayout) -> IntArray:
    """(p,) which parameter each one over temperature is the slope of; -1 of those that are none."""
    values = {slope: value for value, slope in FOLLOWING.items()}
    of = np.full(layout.law.size, -1, dtype=np.int64)
    for c in np.flatnonzero(np.isin(layout.law, TEMPERATURE)):
        own = (layout.law == values[int(layout.law[c])]) & (layout.motor == layout.motor[c]).all(axis=1)
        own &= layout.source == layout.source[c]
        if own.any():
            of[c] = int(np.argmax(own))
    return of


@kernel
def gather(floats: FloatArray, ints: IntArray, rows: FloatArray) -> None:
    """Add the products of a finished row's features, of joints whose row is clean; nothing without active model."""
    n, p, width = ints[m.N], ints[m.P], EXTRA + ints[m.TERMS]
    active = m.vector(floats, ints, m.F_ACTIVE, p)
    if np.isnan(active[0]):
        return
    payload = m.matrix(floats, ints, m.F_PAYLOAD, p, PAYLOAD)
    motor = m.matrix(floats, ints, m.F_MOTOR, p, n)
    law = ints[ints[m.I_LAW] : ints[m.I_LAW] + p]
    x = m.vector(floats, ints, m.F_FEATURES, width)
    gram = floats[ints[m.F_EVIDENCE] : ints[m.F_EVIDENCE] + n * width * width].reshape((n, width, width))
    count = m.vector(floats, ints, m.F_EVIDENCE_ROWS, n)
    for j in range(n):
        if np.abs(rows[j, p + 1] - 1.0) >= CLEAN:
            continue
        x[:] = 0.0
        at = PAYLOAD
        predicted = 0.0
        for c in range(p):
            y = rows[j, c]
            predicted += y * active[c]
            for k in range(PAYLOAD):
                x[k] += y * payload[c, k]
            if law[c] >= LAW_VISCOUS and law[c] != LAW_OFFSET and motor[c, j] != 0.0:
                x[at] = y
                at += 1
        x[width - 3] = predicted
        x[width - 2] = 1.0
        x[width - 1] = rows[j, p] - predicted
        for a in range(width):
            for b in range(a + 1):
                gram[j, a, b] += x[a] * x[b]
        count[j] += 1.0
