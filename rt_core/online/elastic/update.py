"""Update an elastic joint's parameters from a finished row of motor and sensor.

Both rows share the spring.  Forgetting scales the root of the information and replaces what it removes by the prior,
values and information: `R'R <- lambda*R'R + (1 - lambda)*prior + rows`.  The information is therefore positive definite
and never below that of the prior, however poor the excitation (exponential resetting; Salgado, Goodwin and Middleton
1988), and parameters without excitation return to their initial values instead of drifting.  Parameters are in units of
their initial spread, so that their prior information is one: `d^3` is about 1e-9 where other columns are 1e3.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.online.elastic import _layout as m
from rt_core.online.rls.square_root import back_substitute, dot, qr_update
from rt_core.types import FloatArray, IntArray

_CLIP = 9.0  # largest squared innovation in the noise estimate, in usual squares
_START_NOISE2 = 0.01  # squared share of the torque that is added to the noise at the start ...
_SETTLING = 5.0  # ... and has decayed by e^-this when the noise estimate counts as settled
_MAX_INFLATION = 10.0
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
def update(
    s: FloatArray, ints: IntArray, kinds: IntArray,
    estimate: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray, FloatArray], row: FloatArray,
) -> int:  # fmt: skip
    """Update the parameters from the low-passed signals `row` (SIGNALS,); return 1, or 0 for an outlier."""
    theta, R, short, level, power = estimate
    D, scratch, units, start = work
    p, rows = kinds.shape[0], ints[m.ROWS]
    phi = np.empty((2, p))
    _columns(kinds, units, s[m.RATIO], row, phi)
    error2 = 0.0
    outlier = False
    for r in range(rows):
        own = level[r]
        y = row[5 + r]
        own[m.INNOVATION] = y - dot(phi[r], theta)
        square = own[m.INNOVATION] * own[m.INNOVATION]
        # by earlier levels: a spike must not raise its own limit
        outlier = outlier or (own[m.MOVED] > 0.0 and square > max(_OUTLIER * own[m.SIGMA2], own[m.TORQUE2]))
    ints[m.REJECTED_RUN] = ints[m.REJECTED_RUN] + 1 if outlier else 0
    if outlier and ints[m.REJECTED_RUN] <= ints[m.MAX_REJECTED]:
        ints[m.REJECTED] += 1
        s[m.OUTLIERS] += 1.0
        return 0
    for r in range(rows):
        own = level[r]
        y = row[5 + r]
        own[m.MOVED] += 1.0
        own[m.TORQUE_MEAN2] += max(s[m.A_SIGMA], 1.0 / own[m.MOVED]) * (y * y - own[m.TORQUE_MEAN2])
        own[m.TORQUE2] += max(s[m.A_TORQUE], 1.0 / own[m.MOVED]) * (y * y - own[m.TORQUE2])
        if own[m.MOVED] < ints[m.SETTLE_ROWS]:
            _noise_level(s, ints, own)
        square = own[m.INNOVATION] * own[m.INNOVATION]
        error2 += square / max(own[m.TORQUE2], own[m.SIGMA2]) / rows
    _range(s, ints, row)
    s[m.ERROR2] = error2
    s[m.MEAN_ERROR2] += max(s[m.A_TORQUE], 1.0 / (ints[m.UPDATES] + 1.0)) * (error2 - s[m.MEAN_ERROR2])
    s[m.LAM] = s[m.CONSTANT] if s[m.CONSTANT] > 0.0 else forgetting(error2, s[m.ALPHA], s[m.BETA])
    s[m.FORGOTTEN] -= np.log(s[m.LAM])

    first = np.zeros(rows + p, dtype=np.int64)
    for w in range(3):  # both windows of the excitation report, and the estimate itself
        D[:] = 0.0
        for r in range(rows):
            inverse = 1.0 / np.sqrt(level[r, m.WEIGHT2])
            for k in range(p):
                D[r, k] = phi[r, k] * inverse
            D[r, p] = level[r, m.INNOVATION] * inverse
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
            square += phi[r, k] * phi[r, k] / level[r, m.SIGMA2]
        power[k] += max(s[m.A_POWER], 1.0 / (ints[m.UPDATES] + 1.0)) * (square - power[k])
    s[m.OUTLIERS] *= s[m.LAM]
    s[m.TAKEN] = s[m.LAM] * s[m.TAKEN] + 1.0
    s[m.LEFT] *= s[m.LAM]
    for r in range(rows):
        residual = level[r, m.INNOVATION] - dot(phi[r], step[:p])
        s[m.LEFT] += max(level[r, m.INNOVATION] * residual, 0.0) / level[r, m.WEIGHT2]
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
def _noise_level(s: FloatArray, ints: IntArray, own: FloatArray) -> None:
    """Update the noise variance of a row and its long-run variance; at first a share of the torque is added."""
    start = _START_NOISE2 * own[m.TORQUE_MEAN2] * np.exp(-_SETTLING * own[m.MOVED] / ints[m.SETTLE_ROWS])
    measured = own[m.SIGMA_SUM] / own[m.SIGMA_COUNT] if own[m.SIGMA_COUNT] > 0.0 else 0.0
    own[m.SIGMA2] = max(measured + start, 1e-18)
    own[m.WEIGHT2] = own[m.SIGMA2] * max(own[m.INFLATION_SUM] / own[m.INFLATION_COUNT], s[m.INFLATION])


@jit
def _learn_noise(s: FloatArray, ints: IntArray, own: FloatArray, residual: float) -> None:
    """Update a row's noise level and its correlation in time.

    The mean of the product of innovation and residual is the noise variance, independent of the uncertainty of the
    parameters.  Its signed root, summed over blocks, gives the long-run variance.  Large innovations count as a change
    of the joint for a limited time: rows after a change must not weigh less than those before.
    """
    e = own[m.INNOVATION]
    square = max(e * residual, 0.0)
    free = min(max(residual / e, 0.0), 1.0) if e != 0.0 else 1.0
    settled = own[m.MOVED] >= ints[m.SETTLE_ROWS]
    own[m.RECENT2] += s[m.A_RECENT] * (min(square, 100.0 * own[m.SIGMA2]) - own[m.RECENT2])
    if own[m.RECENT2] < _EXCESS_OFF * own[m.SIGMA2]:
        own[m.EXCESS] = 0.0
    elif settled and (own[m.EXCESS] > 0.0 or own[m.RECENT2] > _EXCESS_ON * own[m.SIGMA2]):
        own[m.EXCESS] += 1.0
        if own[m.EXCESS] >= ints[m.CHANGE_ROWS]:
            s[m.CHANGED], s[m.FORGOTTEN] = 1.0, 0.0
        if own[m.EXCESS] <= ints[m.MAX_EXCESS]:
            own[m.BLOCK_SUM] = 0.0
            own[m.BLOCK_COUNT] = 0.0
            return
    counted = min(square, _CLIP * own[m.SIGMA2] * free) if settled else square
    own[m.SIGMA_SUM] += counted - s[m.A_SIGMA] * own[m.SIGMA_SUM]
    own[m.SIGMA_COUNT] += free - s[m.A_SIGMA] * own[m.SIGMA_COUNT]
    own[m.BLOCK_SUM] += np.sign(e) * np.sqrt(square)
    own[m.BLOCK_COUNT] += 1.0
    if own[m.BLOCK_COUNT] < ints[m.BLOCK_ROWS]:
        return
    if settled:
        long_run = own[m.BLOCK_SUM] * own[m.BLOCK_SUM] / own[m.BLOCK_COUNT] / own[m.SIGMA2]
        own[m.INFLATION_SUM] += min(long_run, _MAX_INFLATION * s[m.INFLATION]) - s[m.A_BLOCK] * own[m.INFLATION_SUM]
        own[m.INFLATION_COUNT] += 1.0 - s[m.A_BLOCK] * own[m.INFLATION_COUNT]
    own[m.BLOCK_SUM] = 0.0
    own[m.BLOCK_COUNT] = 0.0
    _noise_level(s, ints, own)
