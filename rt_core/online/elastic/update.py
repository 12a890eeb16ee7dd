"""Update an elastic joint's parameters from a finished row of motor and sensor.

Both rows share the spring.  Forgetting scales the root of the information and replaces what it removes by the prior,
values and information: `R'R <- lambda*R'R + (1 - lambda)*prior + rows`.  The information is therefore positive definite
and never below that of the prior, however poor the excitation (exponential resetting; Salgado, Goodwin and Middleton
1988), and parameters without excitation return to their initial values instead of drifting.  Parameters are in units of
their initial spread, so that their prior information is one: `d^3` is about 1e-9 where other columns are 1e3.
"""

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.online.elastic import _layout as m
from rt_core.online.rls import noise as v
from rt_core.online.rls.square_root import back_substitute, dot, qr_update
from rt_core.types import FloatArray, IntArray

_EXCESS_ON, _EXCESS_OFF = 6.0, 1.5  # of the usual square: larger recent innovations are a change, not noise
_OUTLIER = 25.0  # of the noise, squared: a larger innovation that also exceeds the torque is an outlier


@kernel
def _columns(kinds: IntArray, units: FloatArray, ratio: float, row: FloatArray, phi: FloatArray) -> None:
    """Fill the columns `phi` (2, p) of motor and sensor, in units of the parameters' initial spread."""
    phi[:] = 0.0
    for k in range(kinds.shape[0]):
        kind, unit = kinds[k], units[k]
        if kind <= m.K2:
            phi[0, k] = unit * row[kind]
            phi[1, k] = unit * row[kind]
        elif kind == m.B_IN:
            phi[0, k] = unit * ratio * ratio * row[2]
        elif kind == m.B_IN_D:
            phi[0, k] = unit * np.abs(ratio) * row[4]
        elif kind == m.B_OUT:
            phi[1, k] = -unit * row[3]
        else:
            phi[1, k] = -unit * row[4]


@jit
def forgetting(error2: float, alpha: float, beta: float) -> float:
    """Return the forgetting factor at the squared relative error (Sun et al., eq. 44)."""
    return float((1.0 - alpha) + alpha * np.exp(beta * error2))


@jit
def update(joint: m.JointArrays, row: FloatArray) -> int:
    """Update the parameters from the low-passed signals `row` (SIGNALS,); return 1, or 0 for an outlier."""
    s, ints, level, theta, R, power = joint.s, joint.ints, joint.level, joint.theta, joint.R, joint.power
    D, scratch, short, start = joint.D, joint.scratch, joint.short, joint.start
    p, rows = theta.shape[0], ints[m.ROWS]
    phi = np.empty((2, p))
    _columns(joint.kinds, joint.units, s[m.RATIO], row, phi)
    error2 = 0.0
    outlier = False
    for r in range(rows):
        own = level[r]
        y = row[5 + r]
        own[v.INNOVATION] = y - dot(phi[r], theta)
        square = own[v.INNOVATION] * own[v.INNOVATION]
        # by earlier levels: a spike must not raise its own limit
        outlier = outlier or (own[v.MOVED] > 0.0 and square > max(_OUTLIER * own[v.SIGMA2], own[v.TORQUE2]))
    ints[m.REJECTED_RUN] = ints[m.REJECTED_RUN] + 1 if outlier else 0
    if outlier and ints[m.REJECTED_RUN] <= ints[m.MAX_REJECTED]:
        ints[m.REJECTED] += 1
        s[m.OUTLIERS] += 1.0
        return 0
    for r in range(rows):
        own = level[r]
        v.take_torque(own, row[5 + r], s[m.A_SIGMA], s[m.A_TORQUE], ints[m.SETTLE_ROWS], s[m.INFLATION])
        square = own[v.INNOVATION] * own[v.INNOVATION]
        error2 += square / max(own[v.TORQUE2], own[v.SIGMA2]) / rows
    _range(s, ints, row)
    s[m.ERROR2] = error2
    s[m.MEAN_ERROR2] += max(s[m.A_TORQUE], 1.0 / (ints[m.UPDATES] + 1.0)) * (error2 - s[m.MEAN_ERROR2])
    s[m.LAM] = s[m.CONSTANT] if s[m.CONSTANT] > 0.0 else forgetting(error2, s[m.ALPHA], s[m.BETA])
    s[m.FORGOTTEN] -= np.log(s[m.LAM])

    first = np.zeros(rows + p, dtype=np.int64)
    for w in range(3):  # both windows of the excitation report, and the estimate itself
        D[:] = 0.0
        for r in range(rows):
            inverse = 1.0 / np.sqrt(level[r, v.WEIGHT2])
            for k in range(p):
                D[r, k] = phi[r, k] * inverse
            D[r, p] = level[r, v.INNOVATION] * inverse
        if w < 2:
            qr_update(short[w], D, first, rows, scratch)
    for k in range(p):
        D[rows + k, k] = np.sqrt(1.0 - s[m.LAM])
        D[rows + k, p] = D[rows + k, k] * (start[k] - theta[k])
        first[rows + k] = k
    root = np.sqrt(s[m.LAM])
    for k in range(p):
        for c in range(R.shape[1]):
            R[k, c] *= root
    qr_update(R, D, first, rows + p, scratch)
    step = np.zeros(R.shape[1])
    back_substitute(R, scratch[0], step)
    for k in range(p):
        theta[k] += step[k]
        square = 0.0
        for r in range(rows):
            square += phi[r, k] * phi[r, k] / level[r, v.SIGMA2]
        power[k] += max(s[m.A_POWER], 1.0 / (ints[m.UPDATES] + 1.0)) * (square - power[k])
    s[m.OUTLIERS] *= s[m.LAM]
    s[m.TAKEN] = s[m.LAM] * s[m.TAKEN] + 1.0
    s[m.LEFT] *= s[m.LAM]
    for r in range(rows):
        residual = level[r, v.INNOVATION] - dot(phi[r], step[:p])
        s[m.LEFT] += max(level[r, v.INNOVATION] * residual, 0.0) / level[r, v.WEIGHT2]
        _learn_noise(s, ints, level[r], residual)
    ints[m.UPDATES] += 1
    return 1


@jit
def _range(s: FloatArray, ints: IntArray, row: FloatArray) -> None:
    """Update the largest speed and the range of deflections; both are forgotten slowly."""
    s[m.FASTEST] = max((1.0 - s[m.A_SIGMA]) * s[m.FASTEST], np.abs(row[2]))
    d = row[0]
    if ints[m.UPDATES] == 0:
        s[m.LOW], s[m.HIGH] = d, d
    s[m.LOW] = min(s[m.LOW] + s[m.A_RANGE] * (d - s[m.LOW]), d)
    s[m.HIGH] = max(s[m.HIGH] + s[m.A_RANGE] * (d - s[m.HIGH]), d)


@jit
def _learn_noise(s: FloatArray, ints: IntArray, own: FloatArray, residual: float) -> None:
    """Update a row's noise level.

    Large innovations count as a change of the joint for a limited time: rows after a change must not weigh less than
    those before.
    """
    square = max(own[v.INNOVATION] * residual, 0.0)
    own[v.INNOVATION2] += s[m.A_RECENT] * (min(square, 100.0 * own[v.SIGMA2]) - own[v.INNOVATION2])
    if own[v.INNOVATION2] < _EXCESS_OFF * own[v.SIGMA2]:
        own[v.EXCESS] = 0.0
    elif own[v.MOVED] >= ints[m.SETTLE_ROWS] and (
        own[v.EXCESS] > 0.0 or own[v.INNOVATION2] > _EXCESS_ON * own[v.SIGMA2]
    ):
        own[v.EXCESS] += 1.0
        if own[v.EXCESS] >= ints[m.CHANGE_ROWS]:
            s[m.CHANGED], s[m.FORGOTTEN] = 1.0, 0.0
        if own[v.EXCESS] <= ints[m.MAX_EXCESS]:
            own[v.BLOCK_SUM] = 0.0
            own[v.BLOCK_COUNT] = 0.0
            return
    v.take_residual(
        own, residual, s[m.A_SIGMA], s[m.A_BLOCK], s[m.INFLATION], ints[m.SETTLE_ROWS], ints[m.BLOCK_ROWS]
    )  # fmt: skip
