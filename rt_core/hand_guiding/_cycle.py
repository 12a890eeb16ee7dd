"""One cycle of zero-force control as a kernel.

With the torque of gravity `g`, of position `p` (offset, cyclic terms) and of Coriolis and centrifugal forces `c`,

    tau = g + p + k*c + s*(friction - damping) + (1 - s)*hold - braking + wall + b*before

where `s` goes from 0 (hold) to 1 (guiding) and `b` from 1 to 0 while the arm is taken over from another controller.

Signs.  `tau` is motor torque on the joint side, positive in the joint's positive direction: as `JointFrame.tau`, and as
in `M ddq + c + g + friction = tau + external`.

Power.  Friction compensation is `share*(dry*rise(w) + slope*w)`, which returns at most `share` of the power that
friction dissipates, whatever its delay; see docs/zero-force.md.  `k` is 1 unless `dq . c`, the power of Coriolis
compensation, would exceed what friction and damping surely dissipate.

All torques leave by `put`, which limits them and their rates.
"""

from typing import NamedTuple

import numpy as np

from rt_core.hand_guiding import rows as c
from rt_core.hand_guiding._checks import COMPARED_S, judge_residual, usable
from rt_core.jit import jit
from rt_core.model.dynamics import Links, rnea_single
from rt_core.model.forward import mass_and_bias
from rt_core.model.regressor import joint_effect
from rt_core.types import FloatArray

#: Largest power of Coriolis compensation, as a share of what friction and damping surely dissipate.
CORIOLIS_SHARE = 0.9


class GuidedArm(NamedTuple):
    """What does not change from cycle to cycle: arrays of `GuidingModel`, and the limits (LIMIT_ROWS, n)."""

    links: Links
    rotor: FloatArray
    effects: FloatArray
    coordinates: FloatArray
    limits: FloatArray


@jit
def rise(speed: float, deadband: float, width: float) -> float:
    """Return 0 up to `deadband`, 1 from `deadband + width` on, smooth between."""
    s = (speed - deadband) / width
    if s <= 0.0:
        return 0.0
    if s >= 1.0:
        return 1.0
    return s * s * (3.0 - 2.0 * s)


@jit
def _observe(sample: FloatArray, scalars: FloatArray, state: FloatArray) -> None:
    """Estimate velocity from positions by a third-order fading-memory filter, without lag at constant acceleration."""
    dt, p = scalars[c.DT], scalars[c.DISCOUNT]
    for i in range(sample.shape[1]):
        a = state[c.ACCELERATION, i]
        q = state[c.Q, i] + dt * (state[c.V, i] + 0.5 * dt * a)
        error = sample[c.S_Q, i] - q
        state[c.Q, i] = q + (1.0 - p**3) * error
        state[c.V, i] += dt * a + 1.5 * (1.0 - p) ** 2 * (1.0 + p) * error / dt
        state[c.ACCELERATION, i] += (1.0 - p) ** 3 * error / (dt * dt)


@jit
def _friction(effects: FloatArray, coordinates: FloatArray, q: FloatArray, v: FloatArray, rows: FloatArray) -> None:
    """Fill position-dependent torque, friction of moving coordinates, and its range at rest, in `rows`.

    Within the deadband friction is anything up to breakaway, which counts as `slack` and not as a torque.
    """
    n = q.shape[0]
    load, position, friction, slack = rows[c.W_BIAS], rows[c.W_POSITION], rows[c.W_FRICTION], rows[c.W_SLACK]
    for j in range(n):
        position[j] = friction[j] = slack[j] = 0.0
    for e in range(effects.shape[0]):
        row = effects[e]
        motor = row[c.EFFECT_WIDTH :]
        value = row[c.E_VALUE] * joint_effect(int(row[c.E_LAW]), row[c.E_SHAPE : c.E_SHAPE + 3], motor, (q, v, v), load)
        place = int(row[c.E_COORDINATE])
        if place < 0:
            for j in range(n):
                position[j] += motor[j] * value
            continue
        w = 0.0
        for j in range(n):
            w += coordinates[place, c.COORDINATE_WIDTH + j] * v[j]
        value *= rise(abs(w), coordinates[place, c.C_DEADBAND], coordinates[place, c.C_RISE])
        for j in range(n):
            friction[j] += motor[j] * value
    for k in range(coordinates.shape[0]):
        row = coordinates[k]
        w = 0.0
        for j in range(n):
            w += row[c.COORDINATE_WIDTH + j] * v[j]
        open_ = (1.0 - rise(abs(w), row[c.C_DEADBAND], row[c.C_RISE])) * row[c.C_BREAKAWAY]
        for j in range(n):
            slack[j] += abs(row[c.COORDINATE_WIDTH + j]) * open_


@jit
def _compensate(coordinates: FloatArray, v: FloatArray, share: float, out: FloatArray) -> float:
    """Write friction compensation to `out` (n,); return the power that friction still dissipates."""
    n = v.shape[0]
    left = 0.0
    for j in range(n):
        out[j] = 0.0
    for k in range(coordinates.shape[0]):
        row = coordinates[k]
        w = 0.0
        for j in range(n):
            w += row[c.COORDINATE_WIDTH + j] * v[j]
        full = rise(abs(w), row[c.C_DEADBAND], row[c.C_RISE])
        given = share * (np.sign(w) * row[c.C_DRY] * full + row[c.C_SLOPE] * w)
        left += (row[c.C_DRY] + row[c.C_SLOPE] * abs(w)) * abs(w) - given * w
        for j in range(n):
            out[j] += row[c.COORDINATE_WIDTH + j] * given
    return left


@jit
def _wall(limits: FloatArray, i: int, q: float, v: float) -> float:
    """Return the torque of the soft walls of joint `i`, never towards the limit."""
    below = limits[c.LOWER, i] + limits[c.WALL_WIDTH, i] - q
    if below > 0.0:
        return float(max(0.0, limits[c.WALL_SPRING, i] * below - limits[c.WALL_DAMPER, i] * v))
    above = q - (limits[c.UPPER, i] - limits[c.WALL_WIDTH, i])
    if above > 0.0:
        return -float(max(0.0, limits[c.WALL_SPRING, i] * above + limits[c.WALL_DAMPER, i] * v))
    return 0.0


@jit
def put(limits: FloatArray, state: FloatArray, wanted: FloatArray, step_s: float) -> None:
    """Set the torque towards `wanted` (n,), within its rate over `step_s` and its limit."""
    for i in range(wanted.shape[0]):
        step = limits[c.TORQUE_RATE, i] * step_s
        out = min(max(wanted[i], state[c.OUT, i] - step), state[c.OUT, i] + step)
        out = min(max(out, -limits[c.TORQUE, i]), limits[c.TORQUE, i])
        for h in range(c.HISTORY_ROWS - 1, 0, -1):
            state[c.HISTORY + h, i] = state[c.HISTORY + h - 1, i]
        state[c.HISTORY, i] = state[c.OUT, i] = out


@jit
def cycle(
    arm: GuidedArm, scalars: FloatArray, sample: FloatArray, state: FloatArray, scratch: FloatArray, finding: FloatArray
) -> int:
    """Write the torque for one sample to row `OUT` of `state`; return the finding, with details in `finding` (3,).

    An unusable sample changes nothing.  `scratch` is (2n + SCRATCH_ROWS, max(n, 37)).
    """
    links, rotor, effects, coordinates, limits = arm
    found = usable(sample, scalars, limits, state, finding)
    if found != c.GOOD:
        return found
    n = sample.shape[1]
    dt = scalars[c.DT]
    first = scalars[c.FIRST] != 0.0
    again = first or scalars[c.LATE] != 0.0  # restart the velocity
    frozen = scalars[c.HAS_TAU] != 0.0
    mass = scratch[:n, :n]
    work = scratch[n : 2 * n, :37]
    rows = scratch[2 * n :, :n]
    bias, weight, position = rows[c.W_BIAS], rows[c.W_WEIGHT], rows[c.W_POSITION]
    given, applied, change = rows[c.W_GIVEN], rows[c.W_APPLIED], rows[c.W_CHANGE]
    zero, wanted = rows[c.W_ZERO], rows[c.W_WANTED]
    delay = c.HISTORY + int(scalars[c.DELAY])
    for i in range(n):
        if scalars[c.HAS_TAU] != 0.0:
            frozen = frozen and sample[c.S_TAU, i] == state[c.MEASURED, i]
            applied[i] = 0.5 * (sample[c.S_TAU, i] + state[c.MEASURED, i])
            state[c.MEASURED, i] = sample[c.S_TAU, i]
            other = abs(applied[i] - 0.5 * (state[delay, i] + state[delay + 1, i]))
            followed = again or other <= scalars[c.UNFOLLOWED] * limits[c.TORQUE, i]
            state[c.UNFOLLOWED_TIME, i] = 0.0 if followed else state[c.UNFOLLOWED_TIME, i] + dt
        else:
            applied[i] = 0.5 * (state[delay, i] + state[delay + 1, i])
        change[i] = -state[c.V, i]
        zero[i] = 0.0
    scalars[c.FROZEN_TIME] = scalars[c.FROZEN_TIME] + scalars[c.SINCE] if frozen and not first else 0.0
    if again:
        for i in range(n):
            if first:
                state[c.HOLD_AT, i] = sample[c.S_Q, i]
            state[c.Q, i] = sample[c.S_Q, i]
            state[c.V, i] = sample[c.S_DQ, i] if scalars[c.HAS_DQ] != 0.0 else 0.0
            state[c.ACCELERATION, i] = change[i] = state[c.APART, i] = 0.0
    elif scalars[c.HAS_DQ] != 0.0:
        for i in range(n):
            apart = (
                state[c.APART, i] + 0.5 * dt * (state[c.V, i] + sample[c.S_DQ, i]) - (sample[c.S_Q, i] - state[c.Q, i])
            )
            state[c.APART, i] = apart * (1.0 - dt / COMPARED_S)
            state[c.Q, i], state[c.V, i] = sample[c.S_Q, i], sample[c.S_DQ, i]
            change[i] += state[c.V, i]
    else:
        _observe(sample, scalars, state)
        for i in range(n):
            change[i] += state[c.V, i]
    q, v = sample[c.S_Q], state[c.V]
    rnea_single(links, q, zero, zero, weight, work)
    mass_and_bias(links, q, v, mass, bias, work)
    for i in range(n):
        for j in range(n):
            mass[i, j] += rotor[i, j]
    _friction(effects, coordinates, q, v, rows)
    if first:
        for i in range(n):
            start = weight[i] + position[i]
            if scalars[c.HAS_TAU] == 0.0:
                state[c.MEASURED, i] = start
            state[c.BEFORE, i] = state[c.MEASURED, i] - start
            applied[i] = state[c.MEASURED, i]
            # start of the ramp; `put` limits it
            state[c.OUT, i] = state[c.MEASURED, i]
            for h in range(c.HISTORY_ROWS):
                state[c.HISTORY + h, i] = state[c.OUT, i]
    judge_residual(limits, scalars, mass, rows, state)

    left = _compensate(coordinates, v, scalars[c.FRICTION_SHARE], given)
    fed = 0.0
    for i in range(n):
        left += limits[c.DAMPER, i] * v[i] * v[i]
        fed += v[i] * (bias[i] - weight[i])
    k = 1.0 if fed <= CORIOLIS_SHARE * left else CORIOLIS_SHARE * left / fed
    s = scalars[c.GUIDING_SHARE]
    most = c.MAX_DAMPING if scalars[c.HAS_DQ] != 0.0 else c.MAX_DAMPING + 1
    for i in range(n):
        if s >= 1.0:
            state[c.HOLD_AT, i] = q[i]
        reach = limits[c.HOLD_REACH, i]
        state[c.HOLD_AT, i] = min(max(state[c.HOLD_AT, i], q[i] - reach), q[i] + reach)
        if scalars[c.GRIP] == c.HOLD:
            state[c.MODEL, i] = weight[i] + position[i] + k * (bias[i] - weight[i])
        hold = limits[c.HOLD_SPRING, i] * (state[c.HOLD_AT, i] - q[i]) - limits[c.HOLD_DAMPER, i] * v[i]
        wall = _wall(limits, i, q[i], v[i])
        # delay bounds damping: braking gets what the other dampers leave
        damper = s * limits[c.DAMPER, i] + (1.0 - s) * limits[c.HOLD_DAMPER, i]
        damper += limits[c.WALL_DAMPER, i] if wall != 0.0 else 0.0
        brake = min(limits[c.BRAKE, i], max(0.0, limits[most, i] - damper))
        over = max(0.0, abs(v[i]) - scalars[c.SOFT_SPEED] * limits[c.SPEED, i])
        wanted[i] = state[c.MODEL, i] + s * (given[i] - limits[c.DAMPER, i] * v[i]) + (1.0 - s) * hold
        wanted[i] += scalars[c.BEFORE_SHARE] * state[c.BEFORE, i] - brake * over * np.sign(v[i]) + wall
        if first:
            wanted[i] = state[c.OUT, i]
        elif scalars[c.GRIP] == c.WEIGHT:
            wanted[i] = state[c.MODEL, i]
        elif scalars[c.GRIP] == c.NOTHING:
            wanted[i] = 0.0
    put(limits, state, wanted, scalars[c.STEP])
    for i in range(n):
        short = abs(wanted[i] - state[c.OUT, i]) > scalars[c.SHORT] * limits[c.TORQUE, i]
        state[c.SHORT_TIME, i] = state[c.SHORT_TIME, i] + dt if short else 0.0
    return c.GOOD
