"""Checks of zero-force control: whether a sample is usable, and whether guiding may continue after it."""

import numpy as np

from rt_core.hand_guiding import rows as c
from rt_core.jit import jit
from rt_core.types import FloatArray

#: Memory of the comparison of velocity with position [s], and largest delay of a measured velocity [s].
COMPARED_S, LATE_S = 0.1, 0.01
#: Time for which the torque of a drive may differ from its command [s].
UNFOLLOWED_S = 0.02
#: Largest plausible torque of a drive, in torque limits.
ABSURD_TORQUE = 10.0


@jit
def usable(sample: FloatArray, scalars: FloatArray, limits: FloatArray, state: FloatArray, finding: FloatArray) -> int:
    """Return why a sample is unusable, `GOOD` if it is not; only `finding` is changed."""
    has_dq, has_tau, first = scalars[c.HAS_DQ] != 0.0, scalars[c.HAS_TAU] != 0.0, scalars[c.FIRST] != 0.0
    frozen = has_tau and not first and scalars[c.FROZEN_TIME] + scalars[c.SINCE] > scalars[c.FROZEN_AFTER]
    for i in range(sample.shape[1]):
        finding[0] = i
        finite = np.isfinite(sample[c.S_Q, i])
        finite = finite and (not has_dq or np.isfinite(sample[c.S_DQ, i]))
        finite = finite and (not has_tau or np.isfinite(sample[c.S_TAU, i]))
        if not finite:
            return c.UNUSABLE
        absurd = has_dq and abs(sample[c.S_DQ, i]) > limits[c.JUMP, i]
        absurd = absurd or (has_tau and abs(sample[c.S_TAU, i]) > ABSURD_TORQUE * limits[c.TORQUE, i])
        if absurd:
            return c.ABSURD
        if not first and abs(sample[c.S_Q, i] - state[c.Q, i]) > limits[c.JUMP, i] * scalars[c.SINCE]:
            return c.JUMPED
        frozen = frozen and sample[c.S_TAU, i] == state[c.MEASURED, i]
    return c.FROZEN if frozen else c.GOOD


@jit
def judge_residual(
    limits: FloatArray, scalars: FloatArray, mass: FloatArray, rows: FloatArray, state: FloatArray
) -> None:
    """Update the filtered external torque by the model, and how long it has been too large.

    `residual = M dv/dt + bias + position + friction - applied` behind a low-pass is the momentum observer, which needs
    no acceleration.  The first sample is used only if torque is measured.
    """
    n = mass.shape[0]
    bias, position, friction = rows[c.W_BIAS], rows[c.W_POSITION], rows[c.W_FRICTION]
    slack, applied, change = rows[c.W_SLACK], rows[c.W_APPLIED], rows[c.W_CHANGE]
    dt = scalars[c.DT]
    gain = 1.0 if scalars[c.FIRST] != 0.0 else dt / (scalars[c.RESIDUAL_FILTER] + dt)
    for i in range(n):
        inertia = 0.0
        for j in range(n):
            inertia += mass[i, j] * change[j]
        before = state[c.RESIDUAL, i]
        now = inertia / dt + bias[i] + position[i] + friction[i] - applied[i]
        if scalars[c.FIRST] != 0.0 and scalars[c.HAS_TAU] == 0.0:
            now = 0.0
        state[c.RESIDUAL, i] += gain * (now - before)
        state[c.THRESHOLD, i] = limits[c.MARGIN, i] + slack[i]
        if abs(state[c.RESIDUAL, i]) <= state[c.THRESHOLD, i]:
            state[c.RESIDUAL_TIME, i] = max(0.0, state[c.RESIDUAL_TIME, i] - 2.0 * dt)
        elif before * state[c.RESIDUAL, i] < 0.0:
            state[c.RESIDUAL_TIME, i] = 0.0
        else:
            state[c.RESIDUAL_TIME, i] += dt


@jit
def judge(limits: FloatArray, state: FloatArray, residual_time: float, limited_time: float, finding: FloatArray) -> int:
    """Return the most dangerous finding that forbids guiding after a cycle, `GOOD` if there is none."""
    n = state.shape[1]
    for i in range(n):
        if state[c.UNFOLLOWED_TIME, i] >= UNFOLLOWED_S:
            finding[0], finding[1], finding[2] = i, state[c.MEASURED, i], state[c.OUT, i]
            return c.NOT_FOLLOWED
    for i in range(n):
        if abs(state[c.APART, i]) > limits[c.DISAGREEMENT, i] + LATE_S * abs(state[c.V, i]):
            finding[0], finding[1], finding[2] = i, state[c.V, i], state[c.V, i] - state[c.APART, i] / COMPARED_S
            return c.DISAGREEING
    worst = 1.0
    for i in range(n):
        v = abs(state[c.V, i])
        if v > worst * limits[c.SPEED, i]:
            worst = v / limits[c.SPEED, i]
            finding[0], finding[1], finding[2] = i, v, limits[c.SPEED, i]
    if worst > 1.0:
        return c.TOO_FAST
    for i in range(n):
        q = state[c.Q, i]
        if q < limits[c.LOWER, i] or q > limits[c.UPPER, i]:
            finding[0], finding[1] = i, q
            finding[2] = limits[c.LOWER, i] if q < limits[c.LOWER, i] else limits[c.UPPER, i]
            return c.BEYOND
        if state[c.RESIDUAL_TIME, i] >= residual_time:
            finding[0], finding[1], finding[2] = i, state[c.RESIDUAL, i], state[c.THRESHOLD, i]
            return c.UNEXPLAINED
        if state[c.SHORT_TIME, i] >= limited_time:
            finding[0], finding[1], finding[2] = i, state[c.OUT, i], limits[c.TORQUE, i]
            return c.LIMITED
    return c.GOOD
