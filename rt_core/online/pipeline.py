"""One frame through the online estimator: resample, filter, build rows, update.

    frame -> uniform grid -> linear-phase filters -> q, dq, ddq, tau (same delay)
          -> rows Y, tau, filtered alike and decimated to the update rate -> square-root update

Everything works in place on the two arrays of `Memory`; nothing is allocated per frame.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.model.parameters import LAW_COULOMB, LAW_LINK, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.regressor import BLOCK, joint_column, link_columns
from rt_core.online import memory as m
from rt_core.online.square_root import add_variance, back_substitute, scale_columns, triangularise
from rt_core.types import FloatArray, IntArray

_SHARE = 0.5  # a row counts where most of its average comes from samples at which the joint moved
_CLIP = 9.0  # one innovation counts for at most this many times the usual square in the noise estimate
_START_NOISE2 = 0.01  # squared share of the torque that stands in for the noise at the start ...
_RELEARN = 4.0  # innovation averaging times that friction is given to be learned anew, before it is freed again
# Around a reversal filtered friction is not the friction at the filtered velocity: these innovations tell nothing
# about a change.  A row is free of it where the samples left out for low velocity weigh less than this.
_CLEAN = 0.01
_OFFSET_SHARE = 0.01  # of the variance that dry friction is freed by
_SHORT_FLOOR = 1e-3  # least information in the window of the excitation report, as a root and in units of one row
_SETTLING = 5.0  # ... and has died out by e^-this when a joint's noise estimate counts as settled


@jit
def restart_stream(floats: FloatArray, ints: IntArray) -> None:
    """Empty all filters; parameters, noise and counters stay."""
    n, p = ints[m.N], ints[m.P]
    ints[m.BUFFERED] = 0
    ints[m.RING_AT] = 0
    ints[m.RING_COUNT] = 0
    ints[m.LANES] = 0
    ints[m.SAMPLES] = 0
    ints[m.GRID] = 0
    slots = vector_slots(floats, ints)
    slots[:] = 0.0
    state = m.vector(floats, ints, m.F_STATE, 4 * n * BLOCK)
    state[:] = 0.0
    block_sum = m.vector(floats, ints, m.F_BLOCK_SUM, n)
    block_count = m.vector(floats, ints, m.F_BLOCK_COUNT, n)
    block_sum[:] = 0.0
    block_count[:] = 0.0
    step = m.vector(floats, ints, m.F_STEP, p)
    step[:] = 0.0


@jit
def vector_slots(floats: FloatArray, ints: IntArray) -> FloatArray:
    """Flat view of all row accumulators."""
    return m.vector(floats, ints, m.F_SLOTS, ints[m.SLOTS] * ints[m.N] * (ints[m.P] + 2))


@jit
def take_frame(floats: FloatArray, ints: IntArray, t: float, values: FloatArray) -> int:
    """Take one valid frame at `t` [s]; `values` is (channels,): q, tau, then dq where it is measured.

    Returns the number of parameter updates made.
    """
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    channels = ints[m.CHANNELS]
    frame_t = m.vector(floats, ints, m.F_FRAME_T, 4)
    frame_x = m.matrix(floats, ints, m.F_FRAME_X, 5, channels)
    held = ints[m.BUFFERED]
    ints[m.FRAMES] += 1
    if held > 0:
        same = True
        for c in range(channels):
            if values[c] != frame_x[3, c]:
                same = False
                break
        if same or t <= frame_t[3]:
            ints[m.REPEATED] += 1
            return 0
        if t - frame_t[3] > s[m.MAX_GAP]:
            restart_stream(floats, ints)
            ints[m.GAPS] += 1
            held = 0
    for k in range(3):
        frame_t[k] = frame_t[k + 1]
        for c in range(channels):
            frame_x[k, c] = frame_x[k + 1, c]
    frame_t[3] = t
    for c in range(channels):
        frame_x[3, c] = values[c]
    if held < 4:
        held += 1
        ints[m.BUFFERED] = held
        if held == 4:
            s[m.ORIGIN] = frame_t[1]
            ints[m.GRID] = 0
    if held < 4:
        return 0
    updates = 0
    step = s[m.STEP]
    grid = s[m.ORIGIN] + ints[m.GRID] * step
    while grid <= frame_t[2] + 1e-6 * step:
        _interpolate(frame_t, frame_x, grid, ints[m.N])
        updates += _take_sample(floats, ints, frame_x[4])
        ints[m.GRID] += 1
        grid = s[m.ORIGIN] + ints[m.GRID] * step
    return updates


@jit
def _interpolate(frame_t: FloatArray, frame_x: FloatArray, t: float, n: int) -> None:
    """Values at `t`, between the second and third frame, into row 4: positions cubic, the rest linear."""
    t0, t1, t2, t3 = frame_t[0], frame_t[1], frame_t[2], frame_t[3]
    a0 = (t - t1) * (t - t2) * (t - t3) / ((t0 - t1) * (t0 - t2) * (t0 - t3))
    a1 = (t - t0) * (t - t2) * (t - t3) / ((t1 - t0) * (t1 - t2) * (t1 - t3))
    a2 = (t - t0) * (t - t1) * (t - t3) / ((t2 - t0) * (t2 - t1) * (t2 - t3))
    a3 = (t - t0) * (t - t1) * (t - t2) / ((t3 - t0) * (t3 - t1) * (t3 - t2))
    share = (t - t1) / (t2 - t1)
    for c in range(n):
        frame_x[4, c] = a0 * frame_x[0, c] + a1 * frame_x[1, c] + a2 * frame_x[2, c] + a3 * frame_x[3, c]
    for c in range(n, frame_x.shape[1]):
        frame_x[4, c] = (1.0 - share) * frame_x[1, c] + share * frame_x[2, c]


@kernel
def _dot(taps: FloatArray, window: FloatArray) -> float:
    total = 0.0
    for k in range(taps.shape[0]):
        total += taps[k] * window[k]
    return total


@jit
def _take_sample(floats: FloatArray, ints: IntArray, x: FloatArray) -> int:
    """Push one grid sample through the filters; returns 1 if the parameters were renewed."""
    n, channels, length = ints[m.N], ints[m.CHANNELS], ints[m.LENGTH]
    ring = m.matrix(floats, ints, m.F_RING, channels, 2 * length)
    at = ints[m.RING_AT]
    for c in range(channels):  # written twice, so that the newest `length` samples are always contiguous
        ring[c, at] = x[c]
        ring[c, at + length] = x[c]
    at = (at + 1) % length
    ints[m.RING_AT] = at
    ints[m.RING_COUNT] += 1
    if ints[m.RING_COUNT] < length:
        return 0
    taps = m.matrix(floats, ints, m.F_TAPS, 3, length)
    state = floats[ints[m.F_STATE] : ints[m.F_STATE] + 4 * n * BLOCK].reshape((4, n, BLOCK))
    lane = ints[m.LANES]
    for j in range(n):
        window = ring[j, at : at + length]
        state[0, j, lane] = _dot(taps[0], window)
        if ints[m.HAS_DQ] == 1:
            rate = ring[2 * n + j, at : at + length]
            state[1, j, lane] = _dot(taps[0], rate)
            state[2, j, lane] = _dot(taps[2], rate)
        else:
            state[1, j, lane] = _dot(taps[1], window)
            state[2, j, lane] = _dot(taps[2], window)
        state[3, j, lane] = ring[n + j, at + length // 2]  # delayed only: see `filters`
    sample = ints[m.SAMPLES]
    ints[m.SAMPLES] += 1
    ints[m.LANES] = lane + 1
    ints[m.LAST_LANE] = lane
    behind = sample - (ints[m.LENGTH2] - 1)
    due = behind >= 0 and behind % ints[m.FACTOR] == 0
    if not due and lane + 1 < BLOCK:
        return 0
    _build_rows(floats, ints, sample - lane, lane + 1)
    ints[m.LANES] = 0
    if not due:
        return 0
    return _update(floats, ints, (behind // ints[m.FACTOR]) % ints[m.SLOTS])


@kernel
def _build_rows(floats: FloatArray, ints: IntArray, start: int, size: int) -> None:
    """Add `size` filtered samples, the first of index `start`, to all open row accumulators."""
    n, p, slots_n = ints[m.N], ints[m.P], ints[m.SLOTS]
    factor, length2 = ints[m.FACTOR], ints[m.LENGTH2]
    geometry = m.matrix(floats, ints, m.F_GEOMETRY, n, 37)
    gravity = m.vector(floats, ints, m.F_GRAVITY, 3)
    motor = m.matrix(floats, ints, m.F_MOTOR, p, n)
    taps2 = m.vector(floats, ints, m.F_TAPS2, length2)
    state = floats[ints[m.F_STATE] : ints[m.F_STATE] + 4 * n * BLOCK].reshape((4, n, BLOCK))
    links = floats[ints[m.F_LINKS] : ints[m.F_LINKS] + n * n * 10 * BLOCK].reshape((n, n, 10 * BLOCK))
    value = m.vector(floats, ints, m.F_VALUE, BLOCK)
    weight = m.matrix(floats, ints, m.F_WEIGHT, n, BLOCK)
    slots = floats[ints[m.F_SLOTS] : ints[m.F_SLOTS] + slots_n * n * (p + 2)].reshape((slots_n, n, p + 2))
    min_velocity = m.vector(floats, ints, m.F_MIN_VELOCITY, n)
    law = ints[ints[m.I_LAW] : ints[m.I_LAW] + p]
    source = ints[ints[m.I_SOURCE] : ints[m.I_SOURCE] + p]
    for b in range(size, BLOCK):
        for k in range(4):
            for j in range(n):
                state[k, j, b] = 0.0
    link_columns(geometry, gravity, state[0], state[1], state[2], links)
    newest = (start + size - 1) // factor
    oldest = max(0, -((length2 - 1 - start) // factor))  # ceil((start - length2 + 1) / factor)
    for row in range(oldest, newest + 1):
        out = slots[row % slots_n]
        for j in range(n):
            for b in range(BLOCK):
                lag = start + b - row * factor
                inside = b < size and 0 <= lag < length2 and np.abs(state[1, j, b]) >= min_velocity[j]
                weight[j, b] = taps2[lag] if inside else 0.0
                out[j, p] += weight[j, b] * state[3, j, b]
                out[j, p + 1] += weight[j, b]
        for c in range(p):
            if law[c] == LAW_LINK:
                k = source[c] // 10
                offset = (source[c] - 10 * k) * BLOCK
                for j in range(k + 1):
                    x = links[k, j]
                    w = weight[j]
                    total = 0.0
                    for b in range(BLOCK):
                        total += w[b] * x[offset + b]
                    out[j, c] += total
            else:
                joint_column(law[c], motor[c], state[1], state[2], value)
                for j in range(n):
                    if motor[c, j] != 0.0:
                        w = weight[j]
                        total = 0.0
                        for b in range(BLOCK):
                            total += w[b] * value[b]
                        out[j, c] += motor[c, j] * total


@jit
def _update(floats: FloatArray, ints: IntArray, slot: int) -> int:
    """Renew the parameters from one finished row per joint; returns 1, or 0 if no joint moved."""
    n, p, slots_n = ints[m.N], ints[m.P], ints[m.SLOTS]
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    slots = floats[ints[m.F_SLOTS] : ints[m.F_SLOTS] + slots_n * n * (p + 2)].reshape((slots_n, n, p + 2))
    rows = slots[slot]
    theta = m.vector(floats, ints, m.F_THETA, p)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    weight2 = m.vector(floats, ints, m.F_WEIGHT2, n)
    D = floats[ints[m.F_D] : ints[m.F_D] + 2 * (n + 1) * (p + 1)].reshape((2, n + 1, p + 1))
    R = m.matrix(floats, ints, m.F_R, p, p)
    first = ints[ints[m.I_FIRST] : ints[m.I_FIRST] + n + 1]
    order = ints[ints[m.I_ORDER] : ints[m.I_ORDER] + n]
    s[m.TIME] = s[m.ORIGIN] + (ints[m.GRID] - (ints[m.LENGTH] - 1) // 2 - (ints[m.LENGTH2] - 1) // 2) * s[m.STEP]
    ints[m.SHORT_AT] += 1
    renew_short = ints[m.SHORT_AT] >= ints[m.SHORT_EVERY]
    short = m.matrix(floats, ints, m.F_SHORT, p, p)
    if renew_short:
        ints[m.SHORT_AT] = 0
        power = m.vector(floats, ints, m.F_POWER, p)
        for k in range(p):
            for c in range(k, p):
                short[k, c] *= s[m.SHORT_ROOT]
            # A floor far below what counts as excited keeps the triangle regular, and clear of denormal numbers.
            floor = max(_SHORT_FLOOR * np.sqrt(power[k]), 1e-30)
            if np.abs(short[k, k]) < floor:
                short[k, k] = floor

    used = 0
    changed = m.vector(floats, ints, m.F_CHANGED, n)
    for j in range(n):
        changed[j] = 0.0
        if rows[j, p + 1] > _SHARE:
            used += 1
            predicted = 0.0
            for c in range(p):
                predicted += rows[j, c] * theta[c]
            innovation[j] = rows[j, p] - predicted
            changed[j] = _forgetting(floats, ints, j, rows[j, p])
        else:
            innovation[j] = np.nan
    if used == 0:
        rows[:] = 0.0
        return 0
    s[m.LAST_MOTION] = s[m.TIME]
    _column_forgetting(floats, ints)
    scale_columns(R, m.vector(floats, ints, m.F_ROOTS, p))
    for j in range(n):
        if changed[j] > 0.0:
            _free_friction(floats, ints, j)

    leak = m.vector(floats, ints, m.F_LEAK, p)
    leak_at = ints[m.LEAK_AT]
    ints[m.LEAK_AT] = (leak_at + 1) % p
    pull = np.sqrt(p * (1.0 - s[m.LAMBDA]) * leak[leak_at])
    starts = m.vector(floats, ints, m.F_STEP, p)  # borrowed: first columns of the rows in use
    count = 0
    leak_row = -1
    placed = pull == 0.0
    for k in range(n):
        j = order[k]
        if rows[j, p + 1] <= _SHARE:
            continue
        if not placed and leak_at <= first[j]:
            D[0, count, :] = 0.0
            D[0, count, leak_at] = pull
            starts[count] = leak_at
            leak_row = count
            count += 1
            placed = True
        inverse = 1.0 / np.sqrt(weight2[j])
        for c in range(p):
            D[0, count, c] = rows[j, c] * inverse
        D[0, count, p] = innovation[j] * inverse
        starts[count] = first[j]
        count += 1
    if not placed:
        D[0, count, :] = 0.0
        D[0, count, leak_at] = pull
        starts[count] = leak_at
        leak_row = count
        count += 1
    begin = np.empty(n + 1, dtype=np.int64)
    for r in range(count):
        begin[r] = np.int64(starts[r])
    _column_power(floats, ints, D[0], count, leak_row)
    if renew_short:
        gain = np.sqrt(np.float64(ints[m.SHORT_EVERY]))
        for r in range(count):
            for c in range(p + 1):
                D[1, r, c] = gain * D[0, r, c] if r != leak_row else 0.0
    work = m.matrix(floats, ints, m.F_WORK, 2, p + 1)
    step = m.vector(floats, ints, m.F_STEP, p)
    triangularise(R, D[0], begin, count, work)
    back_substitute(R, work[0], step)
    _noise(floats, ints, rows, step)
    for c in range(p):
        theta[c] += step[c]
    if renew_short:
        triangularise(short, D[1], begin, count, work)
    rows[:] = 0.0
    ints[m.ROWS] += used
    ints[m.UPDATES] += 1
    return 1


@jit
def _forgetting(floats: FloatArray, ints: IntArray, j: int, torque: float) -> float:
    """Renew the forgetting factor of joint `j` from its recent innovations; 1.0 if its friction must have changed.

    Eq. 44 of HIT with the relative error as the root of the excess of the mean squared innovation
    over its usual level, by the mean squared torque, which is at least that level.
    """
    n = ints[m.N]
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    sigma2 = m.vector(floats, ints, m.F_SIGMA2, n)
    innovation2 = m.vector(floats, ints, m.F_INNOVATION2, n)
    torque2 = m.vector(floats, ints, m.F_TORQUE2, n)
    excess = m.vector(floats, ints, m.F_EXCESS, n)
    forgetting = m.vector(floats, ints, m.F_FORGETTING, n)
    torque_mean2 = m.vector(floats, ints, m.F_TORQUE_MEAN2, n)
    moved = m.vector(floats, ints, m.F_MOVED, n)
    moved[j] += 1.0
    torque_mean2[j] += max(s[m.A_SIGMA], 1.0 / moved[j]) * (torque * torque - torque_mean2[j])
    torque2[j] += max(s[m.A_TORQUE], 1.0 / moved[j]) * (torque * torque - torque2[j])
    if moved[j] < s[m.SETTLE_ROWS]:
        _noise_level(floats, ints, j)
        innovation2[j] = sigma2[j]
    ratio = innovation2[j] / sigma2[j]
    changed = 0.0
    if ratio < s[m.EXCESS_OFF]:
        excess[j] = 0.0
    elif ratio > s[m.EXCESS_ON] and (excess[j] == 0.0 or excess[j] * s[m.A_INNOVATION] > _RELEARN):
        excess[j] = 1.0
        changed = 1.0
    elif excess[j] > 0.0:
        excess[j] += 1.0
    forgetting[j] = s[m.LAMBDA]
    if excess[j] > 0.0:
        error2 = max(innovation2[j] - sigma2[j], 0.0) / max(torque2[j], sigma2[j])
        frame = (1.0 - s[m.ALPHA]) + s[m.ALPHA] * np.exp(s[m.BETA] * error2)
        forgetting[j] = min(s[m.LAMBDA], frame ** ints[m.FACTOR])
    return changed


@jit
def _free_friction(floats: FloatArray, ints: IntArray, j: int) -> None:
    """Let friction and offset of joint `j` move by as much as would explain its recent innovations.

    What changes suddenly in one joint alone is its friction.  Forgetting by the relative error is slow where
    gravity makes up most of the torque, and would give up the link parameters as well.  An offset is not
    expected to move as much: while the joint turns one way only, it looks the same as dry friction.
    """
    n, p = ints[m.N], ints[m.P]
    R = m.matrix(floats, ints, m.F_R, p, p)
    power = m.vector(floats, ints, m.F_POWER, p)
    weight2 = m.vector(floats, ints, m.F_WEIGHT2, n)
    innovation2 = m.vector(floats, ints, m.F_INNOVATION2, n)
    law = ints[ints[m.I_LAW] : ints[m.I_LAW] + p]
    source = ints[ints[m.I_SOURCE] : ints[m.I_SOURCE] + p]
    for c in range(p):
        own = law[c] == LAW_COULOMB or law[c] == LAW_VISCOUS or law[c] == LAW_OFFSET
        if own and source[c] == j and power[c] > 0.0:
            share = _OFFSET_SHARE if law[c] == LAW_OFFSET else 1.0
            add_variance(R, c, share * innovation2[j] / (power[c] * weight2[j]))


@jit
def _noise_level(floats: FloatArray, ints: IntArray, j: int) -> None:
    """Noise variance of joint `j` and the weight of its rows, its long-run variance.

    A young estimate follows the noise, which is correlated, so that early innovations are too small
    to judge by: at first a share of the torque stands in, and dies out while the joint moves.
    """
    n = ints[m.N]
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    total = m.vector(floats, ints, m.F_SIGMA_SUM, n)
    count = m.vector(floats, ints, m.F_SIGMA_COUNT, n)
    sigma2 = m.vector(floats, ints, m.F_SIGMA2, n)
    weight2 = m.vector(floats, ints, m.F_WEIGHT2, n)
    torque_mean2 = m.vector(floats, ints, m.F_TORQUE_MEAN2, n)
    moved = m.vector(floats, ints, m.F_MOVED, n)
    inflation_sum = m.vector(floats, ints, m.F_INFLATION_SUM, n)
    inflation_count = m.vector(floats, ints, m.F_INFLATION_COUNT, n)
    start = _START_NOISE2 * torque_mean2[j] * np.exp(-_SETTLING * moved[j] / s[m.SETTLE_ROWS])
    measured = total[j] / count[j] if count[j] > 0.0 else 0.0
    sigma2[j] = max(measured + start, 1e-18)
    weight2[j] = sigma2[j] * max(inflation_sum[j] / inflation_count[j], s[m.INFLATION])


@jit
def _column_forgetting(floats: FloatArray, ints: IntArray) -> None:
    """Root of the forgetting factor of every parameter.

    A parameter forgets as slowly as the steadiest of the rows it appears in: a change of a link
    shows in all of them, a change of one joint's friction in its own row only.  Where none of its
    rows is in use nothing replaces what would be forgotten, and nothing is.
    """
    n, p = ints[m.N], ints[m.P]
    touches = m.matrix(floats, ints, m.F_TOUCHES, p, n)
    forgetting = m.vector(floats, ints, m.F_FORGETTING, n)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    roots = m.vector(floats, ints, m.F_ROOTS, p)
    for c in range(p):
        steadiest = -1.0
        for j in range(n):
            if touches[c, j] > 0.0 and not np.isnan(innovation[j]):
                steadiest = max(steadiest, forgetting[j])
        roots[c] = 1.0 if steadiest < 0.0 else np.sqrt(steadiest)


@jit
def _column_power(floats: FloatArray, ints: IntArray, D: FloatArray, count: int, leak_row: int) -> None:
    """Renew the running mean of every column's squared weight: the scale on which a parameter matters."""
    p = ints[m.P]
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    power = m.vector(floats, ints, m.F_POWER, p)
    gain = max(s[m.A_POWER], 1.0 / (ints[m.UPDATES] + 1.0))
    for c in range(p):
        total = 0.0
        for r in range(count):
            if r != leak_row:
                total += D[r, c] * D[r, c]
        power[c] += gain * (total - power[c])


@jit
def _noise(floats: FloatArray, ints: IntArray, rows: FloatArray, step: FloatArray) -> None:
    """Learn each joint's noise level and its correlation in time from this update.

    The product of innovation and residual has the noise variance as its mean whatever the
    parameters' own uncertainty is.  Its signed root, summed over blocks, gives the long-run variance.
    """
    n, p = ints[m.N], ints[m.P]
    s = m.vector(floats, ints, m.F_SCALARS, 18)
    innovation = m.vector(floats, ints, m.F_INNOVATION, n)
    innovation2 = m.vector(floats, ints, m.F_INNOVATION2, n)
    total = m.vector(floats, ints, m.F_SIGMA_SUM, n)
    count = m.vector(floats, ints, m.F_SIGMA_COUNT, n)
    sigma2 = m.vector(floats, ints, m.F_SIGMA2, n)
    moved = m.vector(floats, ints, m.F_MOVED, n)
    block_sum = m.vector(floats, ints, m.F_BLOCK_SUM, n)
    block_count = m.vector(floats, ints, m.F_BLOCK_COUNT, n)
    inflation_sum = m.vector(floats, ints, m.F_INFLATION_SUM, n)
    inflation_count = m.vector(floats, ints, m.F_INFLATION_COUNT, n)
    for j in range(n):
        e = innovation[j]
        if np.isnan(e):
            continue
        residual = e
        for c in range(p):
            residual -= rows[j, c] * step[c]
        square = max(e * residual, 0.0)
        free = min(max(residual / e, 0.0), 1.0) if e != 0.0 else 1.0
        settled = moved[j] >= s[m.SETTLE_ROWS]
        counted = min(square, _CLIP * sigma2[j] * free) if settled else square
        total[j] += counted - s[m.A_SIGMA] * total[j]
        count[j] += free - s[m.A_SIGMA] * count[j]
        if np.abs(rows[j, p + 1] - 1.0) < _CLEAN:
            innovation2[j] += s[m.A_INNOVATION] * (min(square, 100.0 * sigma2[j]) - innovation2[j])
        block_sum[j] += np.sign(e) * np.sqrt(square)
        block_count[j] += 1.0
        if block_count[j] >= ints[m.BLOCK_ROWS]:
            if settled:
                long_run = block_sum[j] * block_sum[j] / block_count[j] / sigma2[j]
                inflation_sum[j] += min(long_run, 10.0 * s[m.INFLATION]) - s[m.A_BLOCK] * inflation_sum[j]
                inflation_count[j] += 1.0 - s[m.A_BLOCK] * inflation_count[j]
            block_sum[j] = 0.0
            block_count[j] = 0.0
            _noise_level(floats, ints, j)
