"""Update the parameters from a finished row per joint: forgetting, square-root update, noise levels; in place."""

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.model.friction import LAW_OFFSET, LAW_VISCOUS, TEMPERATURE
from rt_core.online import _state as m
from rt_core.online.rls import noise as v
from rt_core.online.rls.residual_sums import CLEAN, accumulate, residual_power
from rt_core.online.rls.square_root import add_variance, back_substitute, dot, qr_update, scale_columns
from rt_core.types import FloatArray, IntArray

_SHARE = 0.5  # of the weight of a row that must come from samples in motion
_OFFSET_SHARE = 0.01  # variance added to an offset, over that added to dry friction
_SMALL_SCALE = 1e-3
_SHORT_FLOOR = 1e-3  # smallest root of information in the window of the excitation report, in rows
_RELEARN = 4.0  # innovation averaging times before friction may be freed again


@kernel
def _scaled(row: FloatArray, factor: float, out: FloatArray, p: int) -> None:
    """Copy `factor` times the first `p` entries of `row`."""
    for c in range(p):
        out[c] = factor * row[c]


@jit
def _age_short(floats: FloatArray, ints: IntArray) -> None:
    """Age the triangles of the excitation report.

    The report reads the first triangle.  The second is younger by one window, replaces it at the end of a window and
    starts again empty, so that data older than two windows do not count.
    """
    p, width = ints[m.P], ints[m.WIDTH]
    short = floats[ints[m.F_SHORT] : ints[m.F_SHORT] + 2 * p * width].reshape((2, p, width))
    power = m.vector(floats, ints, m.F_POWER, p)
    ints[m.SHORT_AGE] += 1
    if ints[m.SHORT_AGE] >= ints[m.SHORT_RENEWALS]:
        ints[m.SHORT_AGE] = 0
        short[0] = short[1]
        short[1] = 0.0
    for window in range(2):
        for k in range(p):
            # a floor far below the limit of excitation keeps the triangle regular
            floor = max(_SHORT_FLOOR * np.sqrt(power[k]), 1e-30)
            if np.abs(short[window, k, k]) < floor:
                short[window, k, k] = floor


@jit
def update(floats: FloatArray, ints: IntArray, slot: int) -> int:
    """Update the parameters from one finished row per joint; return 1, or 0 if no joint moved."""
    n, p, width, slots_n = ints[m.N], ints[m.P], ints[m.WIDTH], ints[m.SLOTS]
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    slots = floats[ints[m.F_SLOTS] : ints[m.F_SLOTS] + slots_n * n * (p + 2)].reshape((slots_n, n, p + 2))
    rows = slots[slot]
    theta = m.vector(floats, ints, m.F_THETA, p)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    weight2 = m.vector(floats, ints, m.F_WEIGHT2, n)
    D = floats[ints[m.F_D] : ints[m.F_D] + 2 * (n + 1) * width].reshape((2, n + 1, width))
    R = m.matrix(floats, ints, m.F_R, p, width)
    first = ints[ints[m.I_FIRST] : ints[m.I_FIRST] + n + 1]
    order = ints[ints[m.I_ORDER] : ints[m.I_ORDER] + n]
    s[m.TIME] = s[m.ORIGIN] + (ints[m.GRID] - (ints[m.LENGTH] - 1) // 2 - (ints[m.LENGTH2] - 1) // 2) * s[m.STEP]
    ints[m.SHORT_AT] += 1
    renew_short = ints[m.SHORT_AT] >= ints[m.SHORT_EVERY]
    if renew_short:
        ints[m.SHORT_AT] = 0
        _age_short(floats, ints)

    used = 0
    changed = m.vector(floats, ints, m.F_CHANGED, n)
    for j in range(n):
        changed[j] = 0.0
        if rows[j, p + 1] > _SHARE:
            used += 1
            innovation[j] = rows[j, p] - dot(rows[j, :p], theta)
            changed[j] = _forgetting(floats, ints, j, rows[j, p])
        else:
            innovation[j] = np.nan
    if used == 0:
        rows[:] = 0.0
        return 0
    s[m.LAST_MOTION] = s[m.TIME]
    _forget(floats, ints, R)
    scale = s[m.ROOT_SCALE]
    for j in range(n):
        if changed[j] > 0.0:
            _free_friction(floats, ints, j)

    starts = m.vector(floats, ints, m.F_STEP, width)  # reused: first columns of the rows in use
    count = 0
    floor_row = -1
    if (ints[m.UPDATES] - ints[m.FLOOR_SET]) % ints[m.FLOOR_STEP] == 0:
        floor_row = 0
        starts[0] = 0
        count = 1
        _next_floor_row(floats, ints, D[0, 0])
    for k in range(n):
        j = order[k]
        if rows[j, p + 1] <= _SHARE:
            continue
        inverse = 1.0 / (np.sqrt(weight2[j]) * scale)
        _scaled(rows[j], inverse, D[0, count], p)
        D[0, count, p] = innovation[j] * inverse
        starts[count] = first[j]
        count += 1
    begin = np.empty(n + 1, dtype=np.int64)
    for r in range(count):
        begin[r] = np.int64(starts[r])
    work = m.matrix(floats, ints, m.F_WORK, 3, width)
    step = m.vector(floats, ints, m.F_STEP, width)
    if renew_short:
        _column_power(floats, ints, D[0], count, floor_row)
        short = floats[ints[m.F_SHORT] : ints[m.F_SHORT] + 2 * p * width].reshape((2, p, width))
        gain = scale * np.sqrt(np.float64(ints[m.SHORT_EVERY]))
        for window in range(2):
            for r in range(count):
                for c in range(width):
                    D[1, r, c] = gain * D[0, r, c] if r != floor_row else 0.0
            qr_update(short[window], D[1], begin, count, work)
    qr_update(R, D[0], begin, count, work)
    back_substitute(R, work[0], step)
    _noise(floats, ints, rows, step)
    residual_power(floats, ints, rows)
    accumulate(floats, ints, rows)
    for c in range(p):
        theta[c] += step[c]
    rows[:] = 0.0
    ints[m.ROWS] += used
    ints[m.UPDATES] += 1
    return 1


@jit
def _next_floor_row(floats: FloatArray, ints: IntArray, row: FloatArray) -> None:
    """Fill `row` with the next row of the information floor, weighted by what forgetting removes in a round.

    The weight includes what the rest of the round removes from the row itself: at the end of a round all rows have
    replaced exactly what was removed, and information that nothing excites stays constant.
    """
    p = ints[m.P]
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    age, length = ints[m.UPDATES] - ints[m.FLOOR_SET], ints[m.FLOOR_STEP] * p
    floor = m.matrix(floats, ints, m.F_INFORMATION_FLOOR, p, p)[(age // ints[m.FLOOR_STEP]) % p]
    later = np.float64(length - 1 - age)
    taken = 1.0 - s[m.LAMBDA] ** np.float64(length)
    left = max(s[m.LAMBDA] ** later, 1e-30)  # zero if the memory is shorter than an update
    pull = np.sqrt(taken / left) / s[m.ROOT_SCALE]
    row[:] = 0.0
    _scaled(floor, pull, row, p)


@jit
def _forgetting(floats: FloatArray, ints: IntArray, j: int, torque: float) -> float:
    """Update the forgetting factor of joint `j` from its recent innovations; return 1.0 if its friction changed.

    Eq. 44 of HIT; the squared relative error is the excess of the mean squared innovation over its usual level, divided
    by the mean squared torque or that level if larger.
    """
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    level = v.level_of(floats, ints, j)
    v.take_torque(level, torque, s[m.A_SIGMA], s[m.A_TORQUE], s[m.SETTLE_ROWS], s[m.INFLATION])
    if level[v.MOVED] < s[m.SETTLE_ROWS]:
        level[v.INNOVATION2] = level[v.SIGMA2]
    ratio, excess = level[v.INNOVATION2] / level[v.SIGMA2], level[v.EXCESS]
    changed = 0.0
    if ratio < s[m.EXCESS_OFF]:
        excess = 0.0
    elif ratio > s[m.EXCESS_ON] and (excess == 0.0 or excess * s[m.A_INNOVATION] > _RELEARN):
        excess = 1.0
        changed = 1.0
    elif excess > 0.0:
        excess += 1.0
    level[v.EXCESS], level[v.FORGETTING] = excess, s[m.LAMBDA]
    if excess > 0.0:
        error2 = max(level[v.INNOVATION2] - level[v.SIGMA2], 0.0) / max(level[v.TORQUE2], level[v.SIGMA2])
        frame = (1.0 - s[m.ALPHA]) + s[m.ALPHA] * np.exp(s[m.BETA] * error2)
        level[v.FORGETTING] = min(s[m.LAMBDA], frame ** ints[m.FACTOR])
    return changed


@jit
def _free_friction(floats: FloatArray, ints: IntArray, j: int) -> None:
    """Add variance to friction and offset of joint `j`, as much as would explain its recent innovations.

    A sudden change in a single joint is one of its friction.  Forgetting by the relative error is slow where gravity
    dominates the torque, and would affect the link parameters as well.  An offset gets less variance: while the joint
    turns one way only, it cannot be separated from dry friction.  Temperature slopes get none: at one temperature they
    cannot be separated from friction.
    """
    p, level = ints[m.P], v.level_of(floats, ints, j)
    R = m.matrix(floats, ints, m.F_R, p, ints[m.WIDTH])
    power = m.vector(floats, ints, m.F_POWER, p)
    law = ints[ints[m.I_LAW] : ints[m.I_LAW] + p]
    source = ints[ints[m.I_SOURCE] : ints[m.I_SOURCE] + p]
    scale2 = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)[m.ROOT_SCALE] ** 2
    for c in range(p):
        own = law[c] >= LAW_VISCOUS and law[c] not in TEMPERATURE  # friction of any law, and the offset
        if own and source[c] == j and power[c] > 0.0:
            share = _OFFSET_SHARE if law[c] == LAW_OFFSET else 1.0
            add_variance(R, c, scale2 * share * level[v.INNOVATION2] / (power[c] * level[v.WEIGHT2]))


@jit
def _forget(floats: FloatArray, ints: IntArray, R: FloatArray) -> None:
    """Multiply every column of the root by the root of its parameter's forgetting factor.

    A parameter forgets as slowly as the steadiest of its rows: a change of a link appears in all of them, a change of
    one joint's friction in its own row only.

    If all columns forget alike, only a scalar changes, and `R` when that has become small.  They do so unless a joint
    has changed, even while joints rest: unequal forgetting turns information about a sum of parameters into information
    about each, which would add up over the reversals.  The information floor keeps that of joints at rest.
    """
    n, p = ints[m.N], ints[m.P]
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    touches = m.matrix(floats, ints, m.F_TOUCHES, p, n)
    forgetting = m.vector(floats, ints, m.F_FORGETTING, n)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    roots = m.vector(floats, ints, m.F_ROOTS, ints[m.WIDTH])
    uniform = True
    for j in range(n):
        uniform = uniform and (np.isnan(innovation[j]) or forgetting[j] == s[m.LAMBDA])
    if uniform:
        s[m.ROOT_SCALE] *= np.sqrt(s[m.LAMBDA])
        if s[m.ROOT_SCALE] < _SMALL_SCALE:
            roots[:p] = s[m.ROOT_SCALE]
            scale_columns(R, roots)
            s[m.ROOT_SCALE] = 1.0
        return
    for c in range(p):
        steadiest = 0.0
        for j in range(n):
            if touches[c, j] > 0.0:
                steadiest = max(steadiest, s[m.LAMBDA] if np.isnan(innovation[j]) else forgetting[j])
        roots[c] = s[m.ROOT_SCALE] * np.sqrt(steadiest if steadiest > 0.0 else s[m.LAMBDA])
    scale_columns(R, roots)
    s[m.ROOT_SCALE] = 1.0


@kernel
def _column_power(floats: FloatArray, ints: IntArray, D: FloatArray, count: int, floor_row: int) -> None:
    """Update the running mean of every column's squared weight, the scale of a parameter's effect.

    Only rows in use count: zeros of a joint at rest would lower the scale and, with it, the information floor.
    """
    n, p, width = ints[m.N], ints[m.P], ints[m.WIDTH]
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    power = m.vector(floats, ints, m.F_POWER, p)
    counts = m.vector(floats, ints, m.F_POWER_COUNT, p)
    touches = m.matrix(floats, ints, m.F_TOUCHES, p, n)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    squares = m.matrix(floats, ints, m.F_WORK, 3, width)[0]
    squares[:] = 0.0
    for r in range(count):
        if r != floor_row:
            row = D[r]
            for c in range(width):
                squares[c] += row[c] * row[c]
    scale2 = s[m.ROOT_SCALE] ** 2
    for c in range(p):
        in_use = False
        for j in range(n):
            in_use = in_use or (touches[c, j] > 0.0 and not np.isnan(innovation[j]))
        if in_use:
            counts[c] += 1.0
            gain = max(s[m.A_POWER], 1.0 / counts[c])
            power[c] += gain * (scale2 * squares[c] - power[c])


@jit
def _noise(floats: FloatArray, ints: IntArray, rows: FloatArray, step: FloatArray) -> None:
    """Update each joint's noise level, and the mean square of its recent innovations by rows without a reversal."""
    n, p = ints[m.N], ints[m.P]
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    for j in range(n):
        level = v.level_of(floats, ints, j)
        e = level[v.INNOVATION]
        if np.isnan(e):
            continue
        residual = e - dot(rows[j, :p], step[:p])
        if np.abs(rows[j, p + 1] - 1.0) < CLEAN:
            square = max(e * residual, 0.0)
            level[v.INNOVATION2] += s[m.A_INNOVATION] * (min(square, 100.0 * level[v.SIGMA2]) - level[v.INNOVATION2])
        v.take_residual(
            level, residual, s[m.A_SIGMA], s[m.A_BLOCK], s[m.INFLATION], s[m.SETTLE_ROWS], ints[m.BLOCK_ROWS]
        )  # fmt: skip
