"""What zero-force control checks: whether a sample can be used, and whether guiding may go on after it."""

from __future__ import annotations

import numpy as np

from rt_core.hand_guiding.rows import (
    ABSURD,
    APART,
    BEYOND,
    DISAGREEING,
    DISAGREEMENT,
    DT,
    FIRST,
    FROZEN,
    FROZEN_AFTER,
    FROZEN_TIME,
    GOOD,
    HAS_DQ,
    HAS_TAU,
    JUMP,
    JUMPED,
    LIMITED,
    LOWER,
    MARGIN,
    MEASURED,
    NOT_FOLLOWED,
    OUT,
    RESIDUAL,
    RESIDUAL_FILTER,
    RESIDUAL_TIME,
    S_DQ,
    S_Q,
    S_TAU,
    SHORT_TIME,
    SINCE,
    SPEED,
    THRESHOLD,
    TOO_FAST,
    TORQUE,
    UNEXPLAINED,
    UNFOLLOWED_TIME,
    UNUSABLE,
    UPPER,
    Q,
    V,
)
from rt_core.jit import jit
from rt_core.types import FloatArray

#: Memory of the comparison of velocity with position [s], and how late a measured velocity may be [s].
COMPARED_S, LATE_S = 0.1, 0.01
#: Time for which a drive may give another torque than it was told [s].
UNFOLLOWED_S = 0.02
#: Times the torque limit: no drive gives so much.
ABSURD_TORQUE = 10.0


@jit
def usable(sample: FloatArray, scalars: FloatArray, limits: FloatArray, state: FloatArray, finding: FloatArray) -> int:
    """Return what forbids to use a sample, `GOOD` if nothing does; changes nothing but `finding`."""
    has_dq, has_tau, first = scalars[HAS_DQ] != 0.0, scalars[HAS_TAU] != 0.0, scalars[FIRST] != 0.0
    frozen = has_tau and not first and scalars[FROZEN_TIME] + scalars[SINCE] > scalars[FROZEN_AFTER]
    for i in range(sample.shape[1]):
        finding[0] = i
        finite = np.isfinite(sample[S_Q, i])
        finite = finite and (not has_dq or np.isfinite(sample[S_DQ, i]))
        finite = finite and (not has_tau or np.isfinite(sample[S_TAU, i]))
        if not finite:
            return UNUSABLE
        absurd = has_dq and abs(sample[S_DQ, i]) > limits[JUMP, i]
        absurd = absurd or (has_tau and abs(sample[S_TAU, i]) > ABSURD_TORQUE * limits[TORQUE, i])
        if absurd:
            return ABSURD
        if not first and abs(sample[S_Q, i] - state[Q, i]) > limits[JUMP, i] * scalars[SINCE]:
            return JUMPED
        frozen = frozen and sample[S_TAU, i] == state[MEASURED, i]
    return FROZEN if frozen else GOOD


@jit
def judge_residual(
    limits: FloatArray,
    scalars: FloatArray,
    mass: FloatArray,
    bias: FloatArray,
    position: FloatArray,
    friction: FloatArray,
    slack: FloatArray,
    applied: FloatArray,
    change: FloatArray,
    state: FloatArray,
) -> None:
    """Torque from outside, by the model: filtered, so that no acceleration is needed, and how long it is too large.

    The first sample tells it only where torque is measured.
    `residual = M dv/dt + bias + position + friction - applied` behind a low-pass is the momentum observer.
    """
    n = bias.shape[0]
    dt = scalars[DT]
    gain = 1.0 if scalars[FIRST] != 0.0 else dt / (scalars[RESIDUAL_FILTER] + dt)
    for i in range(n):
        inertia = 0.0
        for j in range(n):
            inertia += mass[i, j] * change[j]
        before = state[RESIDUAL, i]
        now = inertia / dt + bias[i] + position[i] + friction[i] - applied[i]
        if scalars[FIRST] != 0.0 and scalars[HAS_TAU] == 0.0:
            now = 0.0
        state[RESIDUAL, i] += gain * (now - before)
        state[THRESHOLD, i] = limits[MARGIN, i] + slack[i]
        if abs(state[RESIDUAL, i]) <= state[THRESHOLD, i]:
            state[RESIDUAL_TIME, i] = max(0.0, state[RESIDUAL_TIME, i] - 2.0 * dt)
        elif before * state[RESIDUAL, i] < 0.0:
            state[RESIDUAL_TIME, i] = 0.0
        else:
            state[RESIDUAL_TIME, i] += dt


@jit
def judge(limits: FloatArray, state: FloatArray, residual_time: float, limited_time: float, finding: FloatArray) -> int:
    """Return the most dangerous thing that forbids to go on guiding after a cycle, `GOOD` if there is none."""
    n = state.shape[1]
    for i in range(n):
        if state[UNFOLLOWED_TIME, i] >= UNFOLLOWED_S:
            finding[0], finding[1], finding[2] = i, state[MEASURED, i], state[OUT, i]
            return NOT_FOLLOWED
    for i in range(n):
        if abs(state[APART, i]) > limits[DISAGREEMENT, i] + LATE_S * abs(state[V, i]):
            finding[0], finding[1], finding[2] = i, state[V, i], state[V, i] - state[APART, i] / COMPARED_S
            return DISAGREEING
    worst = 1.0
    for i in range(n):
        v = abs(state[V, i])
        if v > worst * limits[SPEED, i]:
            worst = v / limits[SPEED, i]
            finding[0], finding[1], finding[2] = i, v, limits[SPEED, i]
    if worst > 1.0:
        return TOO_FAST
    for i in range(n):
        q = state[Q, i]
        if q < limits[LOWER, i] or q > limits[UPPER, i]:
            finding[0], finding[1] = i, q
            finding[2] = limits[LOWER, i] if q < limits[LOWER, i] else limits[UPPER, i]
            return BEYOND
        if state[RESIDUAL_TIME, i] >= residual_time:
            finding[0], finding[1], finding[2] = i, state[RESIDUAL, i], state[THRESHOLD, i]
            return UNEXPLAINED
        if state[SHORT_TIME, i] >= limited_time:
            finding[0], finding[1], finding[2] = i, state[OUT, i], limits[TORQUE, i]
            return LIMITED
    return GOOD
