"""Sums over rows of the active model's residual: power per joint, and products of features (`residual_evidence`)."""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.friction import LAW_OFFSET, LAW_VISCOUS
from rt_core.online import _state as m
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.online.rls.square_root import dot
from rt_core.types import FloatArray, IntArray

# Near a reversal, filtered friction is not the friction at the filtered velocity, so such rows are left out.  A row is
# clean where the samples left out for low velocity have less than this weight.
CLEAN = 0.01


@kernel
def residual_power(floats: FloatArray, ints: IntArray, rows: FloatArray) -> None:
    """Add the squared residual of the active model for each clean row; nothing without an active model."""
    n, p = ints[m.N], ints[m.P]
    active = m.vector(floats, ints, m.F_ACTIVE, p)
    power = m.vector(floats, ints, m.F_RESIDUAL_POWER, n)
    count = m.vector(floats, ints, m.F_RESIDUAL_POWER_COUNT, n)
    if np.isnan(active[0]):
        return
    for j in range(n):
        if np.abs(rows[j, p + 1] - 1.0) < CLEAN:
            residual = rows[j, p] - dot(rows[j, :p], active)
            power[j] += residual * residual
            count[j] += 1.0


@kernel
def accumulate(floats: FloatArray, ints: IntArray, rows: FloatArray) -> None:
    """Add the products of the features of each clean row to "evidence"; nothing without an active model."""
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
