"""Filter the frames of an elastic joint and build the rows of its regression.

    frame -> gaps bridged -> linear-phase filters -> d, d^3, speeds, sign, torques (one delay)
          -> the same low-pass on all of them, decimated to the update rate -> update

The model holds at every instant, so that the same low-pass on both sides changes no parameter; the cube is taken
before.  A row counts only if all its samples were measured, fast enough and, without the rotor's inertia, at constant
speed.
"""

import numpy as np

from rt_core.jit import jit
from rt_core.online.elastic import _filters as f
from rt_core.online.elastic import _layout as m
from rt_core.online.elastic.update import update
from rt_core.online.rls.square_root import dot
from rt_core.types import FloatArray, IntArray

CHANNELS = 4  # motor angle and link angle [rad], torques of motor and sensor [N*m], all on the joint side
MAX = 1e9  # largest valid angle or torque
_SHARPEST = 1e-9  # smallest smoothing of a sign [rad/s] that is used


@jit
def restart(joint: m.JointArrays) -> None:
    """Clear all filters and the excitation report; parameters, noise and counters stay."""
    s, ints, short = joint.s, joint.ints, joint.short
    for name in (m.COUNT, m.CLEAN, m.GOOD, m.SINCE, m.RING_AT, m.SIGNALS_AT, m.SHORT_AGE):
        ints[name] = 0
    s[m.FASTEST] = 0.0
    clear_short(short[0])
    clear_short(short[1])


@jit
def clear_short(window: FloatArray) -> None:
    """Clear a window of the excitation report."""
    window[:] = 0.0
    for k in range(window.shape[0]):
        window[k, k] = m.SHORT_FLOOR


@jit
def take_frames(joint: m.JointArrays, t: FloatArray, x: FloatArray) -> int:
    """Process frames at `t` (N,) [s] with the channels `x` (N, 4); return the number of parameter updates.

    A frame that is not finite, or whose angle is impossibly far from the last one, is masked, which is a gap; one that
    is not later than the one before is a repetition.
    """
    s, ints, last = joint.s, joint.ints, joint.last
    updates = 0
    between = np.empty(CHANNELS)
    for k in range(t.shape[0]):
        ints[m.FRAMES] += 1
        possible = np.abs(t[k]) < np.inf
        for c in range(CHANNELS):
            possible = possible and np.abs(x[k, c]) <= MAX
        elapsed = t[k] - s[m.LAST_T]
        if possible and ints[m.COUNT] > 0 and 0.0 < elapsed <= s[m.MAX_GAP]:
            for c in range(2):
                possible = possible and np.abs(x[k, c] - last[c]) <= s[m.TOP_VELOCITY] * elapsed
        if not possible:
            ints[m.MASKED] += 1
            if elapsed > s[m.MAX_GAP]:  # too long to bridge: the excitation report ages
                _age_short(ints, joint.short)
            continue
        if ints[m.COUNT] > 0:
            if np.abs(elapsed) > s[m.MAX_GAP]:
                restart(joint)
                ints[m.GAPS] += 1
            elif elapsed <= 0.0:
                ints[m.REPEATED] += 1
                continue
            else:
                missing = max(int(np.rint(elapsed / s[m.STEP])) - 1, 0)
                s[m.MEAN_STEP] += s[m.A_STEP] * (elapsed / (missing + 1.0) - s[m.MEAN_STEP])
                for gone in range(missing):
                    share = (gone + 1.0) / (missing + 1.0)
                    for c in range(CHANNELS):
                        between[c] = (1.0 - share) * last[c] + share * x[k, c]
                    at = s[m.LAST_T] + share * elapsed
                    updates += _push(joint, at, between, False)
        updates += _push(joint, t[k], x[k], True)
        s[m.LAST_T] = t[k]
        for c in range(CHANNELS):
            last[c] = x[k, c]
    return updates


@jit
def _push(joint: m.JointArrays, t: float, x: FloatArray, measured: bool) -> int:
    """Push one sample through the filters; return 1 if the parameters were updated."""
    s, ints, taps, low, ring, signals = joint.s, joint.ints, joint.taps, joint.low, joint.ring, joint.signals
    length, length2 = ints[m.LENGTH], ints[m.LENGTH2]
    _age_short(ints, joint.short)
    at = ints[m.RING_AT]
    for c in range(CHANNELS):  # written twice, so that the latest samples are contiguous
        ring[c, at] = x[c]
        ring[c, at + length] = x[c]
    at = (at + 1) % length
    ints[m.RING_AT] = at
    ints[m.COUNT] += 1
    ints[m.CLEAN] = ints[m.CLEAN] + 1 if measured else 0
    ints[m.SINCE] += 1
    if ints[m.COUNT] < length:
        return 0
    motor, link = ring[0, at : at + length], ring[1, at : at + length]
    speed = dot(taps[f.SPEED], motor)
    whole = ints[m.CLEAN] >= length
    usable = whole and np.abs(speed) >= s[m.MIN_VELOCITY]
    if s[m.LIMIT] > 0.0:
        fastest = max(s[m.FASTEST], np.abs(speed))
        usable = usable and np.abs(dot(taps[f.SLOW_ACCELERATION], motor)) <= s[m.LIMIT] * fastest
    if not usable:
        ints[m.GOOD] = 0
        return 0
    ints[m.GOOD] += 1
    deflection = dot(taps[f.MOTOR], motor) - dot(taps[f.LINK], link) + s[m.ZERO]
    torque = dot(taps[f.TORQUE], ring[2, at : at + length])
    if s[m.INERTIA] > 0.0:
        torque -= s[m.INERTIA] * dot(taps[f.ACCELERATION], motor)
    sign = np.tanh(speed / s[m.SMOOTHING]) if s[m.SMOOTHING] > _SHARPEST else np.sign(speed)
    behind = ints[m.SIGNALS_AT]
    for place in (behind, behind + length2):
        signals[0, place] = deflection
        signals[1, place] = deflection * deflection * deflection
        signals[2, place] = speed
        signals[3, place] = dot(taps[f.LINK_SPEED], link)
        signals[4, place] = sign
        signals[5, place] = torque
        signals[6, place] = dot(taps[f.TORQUE], ring[3, at : at + length])
    behind = (behind + 1) % length2
    ints[m.SIGNALS_AT] = behind
    if ints[m.GOOD] < length2 or ints[m.SINCE] < ints[m.FACTOR]:
        return 0
    ints[m.SINCE] = 0
    row = np.empty(m.SIGNALS)
    for c in range(m.SIGNALS):
        row[c] = dot(low, signals[c, behind : behind + length2])
    s[m.TIME] = t - (length // 2 + length2 // 2) * s[m.STEP]
    return update(joint, row)


@jit
def _age_short(ints: IntArray, short: FloatArray) -> None:
    """Age the triangles of the excitation report; data older than two windows do not count."""
    ints[m.SHORT_AGE] += 1
    if ints[m.SHORT_AGE] < ints[m.WINDOW]:
        return
    ints[m.SHORT_AGE] = 0
    short[0] = short[1]
    clear_short(short[1])
