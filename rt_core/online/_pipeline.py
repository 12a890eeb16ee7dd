"""Process frames of the online estimator: resample, filter, build rows, update.

    frame -> uniform grid -> linear-phase filters -> q, dq, ddq, tau (same delay)
          -> rows Y, tau, filtered alike and decimated to the update rate -> square-root update

All functions work in place on the two arrays of `EstimatorState`, without allocation per frame.
"""

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.model.friction import LAW_LINK, REFERENCE_TEMPERATURE, TEMPERATURE
from rt_core.model.regressor import BLOCK, joint_column, joint_effect, link_columns, warm_column
from rt_core.online import _state as m
from rt_core.online.rls.square_root import dot
from rt_core.online.rls.update import update
from rt_core.types import BoolArray, FloatArray, IntArray

#: As in `rt_core.identification.preprocess`: steps between frames that count as a loss, and the largest share of
#: samples left out for it.
GAP_STEPS = 2.75
MAX_LOST = 0.3
#: The same for losses by the source's count, after which drives without a set value may have jerked: only where they
#: come so often that otherwise nothing would be learned.
MAX_COUNTED_LOST = 0.5
#: Samples within this many periods of the cut-off of a lost frame are left out: the state filters reach that far.
GUARD_PERIODS = 1.0
#: Samples left out after a loss, in lengths of the loss, while the arm catches up.
SETTLING = 10
_TOP_POSITION = 1e6  # [rad or m]; sine and cosine are exact up to there


@jit
def clear_filters(floats: FloatArray, ints: IntArray) -> None:
    """Clear all filters; parameters, noise and counters stay."""
    n = ints[m.N]
    ints[m.BUFFERED] = 0
    ints[m.RING_AT] = 0
    ints[m.RING_COUNT] = 0
    ints[m.LANES] = 0
    ints[m.SAMPLES] = 0
    ints[m.GRID] = 0
    ints[m.LAST_BRIDGED] = -ints[m.LENGTH]
    ints[m.LAST_LOST] = -ints[m.LENGTH]
    slots = vector_slots(floats, ints)
    slots[:] = 0.0
    state = m.vector(floats, ints, m.F_STATE, (4 + ints[m.HAS_TEMPERATURE]) * n * BLOCK)
    state[:] = 0.0
    block_sum = m.vector(floats, ints, m.F_BLOCK_SUM, n)
    block_count = m.vector(floats, ints, m.F_BLOCK_COUNT, n)
    block_sum[:] = 0.0
    block_count[:] = 0.0


@jit
def vector_slots(floats: FloatArray, ints: IntArray) -> FloatArray:
    """Return a flat view of all row accumulators."""
    return m.vector(floats, ints, m.F_SLOTS, ints[m.SLOTS] * ints[m.N] * (ints[m.P] + 2))


@jit
def take_frames(
    floats: FloatArray, ints: IntArray, t: FloatArray, frames: FloatArray, masked: BoolArray, k: int
) -> int:
    """Process frames from number `k` on; return the number of the first that updated the parameters, or N.

    `t` is (N,) [s], `frames` (N, channels): q, tau, dq if measured, temperature if used.  Frames flagged in `masked`
    (N,), and those with impossible values, are counted and left out.
    """
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    frame_t = m.vector(floats, ints, m.F_FRAME_T, 4)
    frame_x = m.matrix(floats, ints, m.F_FRAME_X, 5, ints[m.CHANNELS])
    lost = m.vector(floats, ints, m.F_FRAME_LOST, 4)
    step = s[m.STEP]
    while k < t.size:
        if masked[k] or not _possible(floats, ints, t[k], frames[k]):
            ints[m.MASKED] += 1
            ints[m.LOSS] = 1
        elif _append(floats, ints, t[k], frames[k]):
            updates = 0
            grid = s[m.ORIGIN] + ints[m.GRID] * step
            gap = 2.0 if lost[2] != 0.0 else 1.0 if frame_t[2] - frame_t[1] > GAP_STEPS * step else 0.0
            while grid <= frame_t[2] + 1e-6 * step:
                _interpolate(frame_t, frame_x, grid, ints[m.N])
                between = frame_t[1] + 1e-6 * step < grid < frame_t[2] - 1e-6 * step
                updates += _take_sample(floats, ints, frame_x[4], gap if between else 0.0)
                ints[m.GRID] += 1
                grid = s[m.ORIGIN] + ints[m.GRID] * step
            if updates > 0:
                return k
        k += 1
    return k


@jit
def _append(floats: FloatArray, ints: IntArray, t: float, values: FloatArray) -> bool:
    """Append a possible frame to the four that samples are interpolated from; return whether there are four."""
    channels = ints[m.CHANNELS]
    frame_t = m.vector(floats, ints, m.F_FRAME_T, 4)
    frame_x = m.matrix(floats, ints, m.F_FRAME_X, 5, channels)
    lost = m.vector(floats, ints, m.F_FRAME_LOST, 4)
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    held = ints[m.BUFFERED]
    ints[m.FRAMES] += 1
    if held > 0:
        same = True
        for c in range(channels - ints[m.HAS_TEMPERATURE] * ints[m.N]):
            if values[c] != frame_x[3, c]:
                same = False
                break
        if same or t <= frame_t[3]:
            ints[m.REPEATED] += 1
            return False
        if t - frame_t[3] > s[m.MAX_GAP]:
            clear_filters(floats, ints)
            ints[m.GAPS] += 1
            held = 0
    for k in range(3):
        frame_t[k] = frame_t[k + 1]
        lost[k] = lost[k + 1]
        for c in range(channels):
            frame_x[k, c] = frame_x[k + 1, c]
    frame_t[3] = t
    lost[3] = 1.0 if ints[m.LOSS] == 1 else 0.0
    ints[m.LOSS] = 0
    for c in range(channels):
        frame_x[3, c] = values[c]
    if held < 4:
        held += 1
        ints[m.BUFFERED] = held
        if held == 4:
            s[m.ORIGIN] = frame_t[1]
            ints[m.GRID] = 0
    return bool(held == 4)


@jit
def _possible(floats: FloatArray, ints: IntArray, t: float, values: FloatArray) -> bool:
    """Check that a frame's values are finite and, by a wide margin, physically possible.

    One impossible position would outweigh all valid data for hours.
    """
    n = ints[m.N]
    frame_t = m.vector(floats, ints, m.F_FRAME_T, 4)
    frame_x = m.matrix(floats, ints, m.F_FRAME_X, 5, ints[m.CHANNELS])
    top_velocity = m.vector(floats, ints, m.F_TOP_VELOCITY, n)
    top_torque = m.vector(floats, ints, m.F_TOP_TORQUE, n)
    step = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)[m.STEP]
    since = max(t - frame_t[3], step)
    for j in range(n):  # negated comparisons, so that NaN fails
        if not (np.abs(values[j]) <= _TOP_POSITION and np.abs(values[n + j]) <= top_torque[j]):
            return False
        if ints[m.HAS_DQ] == 1 and not np.abs(values[2 * n + j]) <= top_velocity[j]:
            return False
        if ints[m.BUFFERED] > 0 and not np.abs(values[j] - frame_x[3, j]) <= top_velocity[j] * since:
            return False
    return True


@jit
def _interpolate(frame_t: FloatArray, frame_x: FloatArray, t: float, n: int) -> None:
    """Interpolate at `t`, between the second and third frame, into row 4: positions cubic, others linear."""
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


@jit
def _leave_out(ints: IntArray, last: int, sample: int, goes_on: bool) -> None:
    """Set `ints[last]` to the last sample affected by a loss, settling time included."""
    if goes_on:
        ints[last] += 1 + SETTLING
    else:
        ints[last] = max(ints[last], sample + 2 * SETTLING)  # one sample missing is a step of two


@jit
def _near_lost(floats: FloatArray, ints: IntArray, lost: float) -> bool:
    """Check whether the sample in the middle of the filters is too near to a lost frame.

    `lost` flags the latest sample: 2 by the source's count, 1 by the time stamps, 0 for none.  Losses are ignored if
    they are frequent, for then those of a network or a slow logger, which the arm does not feel.
    """
    s = m.vector(floats, ints, m.F_SCALARS, m.SCALARS)
    length, guard, newest = ints[m.LENGTH], ints[m.GUARD], ints[m.RING_COUNT]
    bridged = m.vector(floats, ints, m.F_BRIDGED, length)
    bridged[newest % length] = lost
    ahead = newest - (length // 2 - guard)
    if ahead >= 0 and bridged[ahead % length] != 0.0:
        _leave_out(ints, m.LAST_BRIDGED, ahead, ahead > 0 and bridged[(ahead - 1) % length] != 0.0)
        if bridged[ahead % length] == 2.0:
            _leave_out(ints, m.LAST_LOST, ahead, ahead > 0 and bridged[(ahead - 1) % length] == 2.0)
    near = bool(ahead - ints[m.LAST_BRIDGED] <= 2 * guard)
    s[m.BRIDGED_SHARE] += s[m.A_BRIDGED] * ((1.0 if near else 0.0) - s[m.BRIDGED_SHARE])
    if near:
        counted = ahead - ints[m.LAST_LOST] <= 2 * guard
        near = s[m.BRIDGED_SHARE] <= (MAX_COUNTED_LOST if counted else MAX_LOST)
    if near:
        ints[m.BRIDGED] += 1
    return near


@jit
def _take_sample(floats: FloatArray, ints: IntArray, x: FloatArray, lost: float) -> int:
    """Push one grid sample through the filters; return 1 if the parameters were updated."""
    n, channels, length = ints[m.N], ints[m.CHANNELS], ints[m.LENGTH]
    ring = m.matrix(floats, ints, m.F_RING, channels, 2 * length)
    at = ints[m.RING_AT]
    for c in range(channels):  # written twice, so that the latest `length` samples are contiguous
        ring[c, at] = x[c]
        ring[c, at + length] = x[c]
    at = (at + 1) % length
    ints[m.RING_AT] = at
    near = _near_lost(floats, ints, lost)
    ints[m.RING_COUNT] += 1
    if ints[m.RING_COUNT] < length:
        return 0
    taps = m.matrix(floats, ints, m.F_TAPS, 3, length)
    warm = ints[m.HAS_TEMPERATURE]
    state = floats[ints[m.F_STATE] : ints[m.F_STATE] + (4 + warm) * n * BLOCK].reshape((4 + warm, n, BLOCK))
    lane = ints[m.LANES]
    edge = ints[m.EDGE]  # the wide kernels are zero up to here, at both ends
    smooth, first = taps[0, edge : length - edge], taps[1, edge : length - edge]
    for j in range(n):
        window = ring[j, at : at + length]
        inner = ring[j, at + edge : at + length - edge]
        state[0, j, lane] = dot(smooth, inner)
        if ints[m.HAS_DQ] == 1:
            rate = ring[2 * n + j, at : at + length]
            state[1, j, lane] = dot(smooth, rate[edge : length - edge])
            state[2, j, lane] = dot(taps[2], rate)
        else:
            state[1, j, lane] = dot(first, inner)
            state[2, j, lane] = dot(taps[2], window)
        state[3, j, lane] = ring[n + j, at + length // 2]  # delayed only: see `filters`
        if warm == 1:
            state[4, j, lane] = ring[channels - n + j, at + length // 2] - REFERENCE_TEMPERATURE
        if near:
            state[1, j, lane] = 0.0  # left out like a joint at rest
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
    return update(floats, ints, (behind // ints[m.FACTOR]) % ints[m.SLOTS])


@kernel
def _build_rows(floats: FloatArray, ints: IntArray, start: int, size: int) -> None:
    """Add `size` filtered samples, the first with index `start`, to all open row accumulators."""
    n, p, slots_n = ints[m.N], ints[m.P], ints[m.SLOTS]
    factor, length2 = ints[m.FACTOR], ints[m.LENGTH2]
    geometry = m.matrix(floats, ints, m.F_GEOMETRY, n, 37)
    gravity = m.vector(floats, ints, m.F_GRAVITY, 3)
    motor = m.matrix(floats, ints, m.F_MOTOR, p, n)
    shape = m.matrix(floats, ints, m.F_SHAPE, p, 3)
    load = m.matrix(floats, ints, m.F_LOAD, n, BLOCK)
    taps2 = m.vector(floats, ints, m.F_TAPS2, length2)
    rows = 4 + ints[m.HAS_TEMPERATURE]
    state = floats[ints[m.F_STATE] : ints[m.F_STATE] + rows * n * BLOCK].reshape((rows, n, BLOCK))
    warmth = state[rows - 1]  # used only by columns that depend on temperature
    links = floats[ints[m.F_LINKS] : ints[m.F_LINKS] + n * n * 10 * BLOCK].reshape((n, n, 10 * BLOCK))
    value = m.vector(floats, ints, m.F_VALUE, BLOCK)
    weight = m.matrix(floats, ints, m.F_WEIGHT, n, BLOCK)
    slots = floats[ints[m.F_SLOTS] : ints[m.F_SLOTS] + slots_n * n * (p + 2)].reshape((slots_n, n, p + 2))
    min_velocity = m.vector(floats, ints, m.F_MIN_VELOCITY, n)
    law = ints[ints[m.I_LAW] : ints[m.I_LAW] + p]
    source = ints[ints[m.I_SOURCE] : ints[m.I_SOURCE] + p]
    lanes = 1 if size == 1 else BLOCK
    for k in range(rows):
        for j in range(n):
            for b in range(size, lanes):
                state[k, j, b] = 0.0
    link_columns(geometry, gravity, state, lanes, links)
    if ints[m.HAS_LOAD] == 1:
        load_theta = m.vector(floats, ints, m.F_LOAD_THETA, p)
        load[:] = 0.0
        for c in range(p):
            if law[c] == LAW_LINK:
                k = source[c] // 10
                offset = (source[c] - 10 * k) * BLOCK
                for j in range(k + 1):
                    for b in range(lanes):
                        load[j, b] += load_theta[c] * links[k, j, offset + b]
    newest = (start + size - 1) // factor
    oldest = max(0, -((length2 - 1 - start) // factor))  # ceil((start - length2 + 1) / factor)
    for row in range(oldest, newest + 1):
        out = slots[row % slots_n]
        for j in range(n):
            for b in range(lanes):
                lag = start + b - row * factor
                inside = b < size and 0 <= lag < length2 and np.abs(state[1, j, b]) >= min_velocity[j]
                weight[j, b] = taps2[lag] if inside else 0.0
                out[j, p] += weight[j, b] * state[3, j, b]
                out[j, p + 1] += weight[j, b]
        for c in range(p):
            if law[c] == LAW_LINK:
                k = source[c] // 10
                offset = (source[c] - 10 * k) * BLOCK
                if size == 1:
                    for j in range(k + 1):
                        out[j, c] += weight[j, 0] * links[k, j, offset]
                    continue
                for j in range(k + 1):
                    x = links[k, j]
                    w = weight[j]
                    total = 0.0
                    for b in range(BLOCK):
                        total += w[b] * x[offset + b]
                    out[j, c] += total
            elif size == 1:
                motion = state[0, :, 0], state[1, :, 0], state[2, :, 0]
                effect = joint_effect(law[c], shape[c], motor[c], motion, load[:, 0])
                if law[c] in TEMPERATURE:
                    effect *= warmth[source[c], 0]
                for j in range(n):
                    if motor[c, j] != 0.0:
                        out[j, c] += motor[c, j] * weight[j, 0] * effect
            else:
                joint_column(law[c], shape[c], motor[c], state, load, value)
                warm_column(law[c], warmth[source[c]], value)
                for j in range(n):
                    if motor[c, j] != 0.0:
                        w = weight[j]
                        total = 0.0
                        for b in range(BLOCK):
                            total += w[b] * value[b]
                        out[j, c] += motor[c, j] * total
