"""One cycle of zero-force control, as one kernel.

With the torque of gravity `g`, of position `p` (offset, cyclic terms) and of Coriolis and centrifugal forces `c`,

    tau = g + p + k*c + s*(friction - damping) + (1 - s)*hold - braking + wall + b*before

where `s` goes from 0 (hold) to 1 (guiding) and `b` from 1 to 0 while the arm is taken over from another controller.

Signs.  `tau` is motor torque on the joint side, positive in the joint's positive direction: as `JointFrame.tau`, and as
in `M ddq + c + g + friction = tau + outside`.

Power.  Friction compensation is `share*(dry*rise(w) + slope*w)`, which at most returns `share` of what friction takes
away, however late it comes; see docs/zero-force.md.  `k` is 1 unless `dq . c`, by which compensating Coriolis torque
feeds the arm, would exceed what friction and damping surely take away.

Every torque leaves by `put`, which keeps it and its rate within their limits.
"""

from __future__ import annotations

import numpy as np

from rt_core.hand_guiding._checks import COMPARED_S, judge_residual, usable
from rt_core.hand_guiding.model import (
    C_BREAKAWAY,
    C_DEADBAND,
    C_DRY,
    C_RISE,
    C_SLOPE,
    COORDINATE_WIDTH,
    E_COORDINATE,
    E_LAW,
    E_SHAPE,
    E_VALUE,
    EFFECT_WIDTH,
)
from rt_core.hand_guiding.rows import (
    ACCELERATION,
    APART,
    BEFORE,
    BEFORE_SHARE,
    BRAKE,
    DAMPER,
    DELAY,
    DISCOUNT,
    DT,
    FIRST,
    FRICTION_SHARE,
    FROZEN_TIME,
    GOOD,
    GRIP,
    GUIDING_SHARE,
    HAS_DQ,
    HAS_TAU,
    HISTORY,
    HISTORY_ROWS,
    HOLD,
    HOLD_AT,
    HOLD_DAMPER,
    HOLD_REACH,
    HOLD_SPRING,
    LATE,
    LOWER,
    MAX_DAMPING,
    MEASURED,
    MODEL,
    NOTHING,
    OUT,
    S_DQ,
    S_Q,
    S_TAU,
    SHORT,
    SHORT_TIME,
    SINCE,
    SOFT_SPEED,
    SPEED,
    STEP,
    TORQUE,
    TORQUE_RATE,
    UNFOLLOWED,
    UNFOLLOWED_TIME,
    UPPER,
    WALL_DAMPER,
    WALL_SPRING,
    WALL_WIDTH,
    WEIGHT,
    Q,
    V,
)
from rt_core.jit import jit
from rt_core.model.dynamics import rnea_single
from rt_core.model.forward import mass_and_bias
from rt_core.model.regressor import joint_effect
from rt_core.types import FloatArray

#: Share of the power that friction and damping surely take away, which Coriolis compensation may feed.
CORIOLIS_SHARE = 0.9


@jit
def rise(speed: float, deadband: float, width: float) -> float:
    """0 up to `deadband`, 1 from `deadband + width` on, smooth between."""
    s = (speed - deadband) / width
    if s <= 0.0:
        return 0.0
    if s >= 1.0:
        return 1.0
    return s * s * (3.0 - 2.0 * s)


@jit
def _observe(sample: FloatArray, scalars: FloatArray, state: FloatArray) -> None:
    """Velocity from positions, by a filter of fading memory of third order: no lag at constant acceleration."""
    dt, p = scalars[DT], scalars[DISCOUNT]
    for i in range(sample.shape[1]):
        a = state[ACCELERATION, i]
        q = state[Q, i] + dt * (state[V, i] + 0.5 * dt * a)
        error = sample[S_Q, i] - q
        state[Q, i] = q + (1.0 - p**3) * error
        state[V, i] += dt * a + 1.5 * (1.0 - p) ** 2 * (1.0 + p) * error / dt
        state[ACCELERATION, i] += (1.0 - p) ** 3 * error / (dt * dt)


@jit
def _friction(
    effects: FloatArray,
    coordinates: FloatArray,
    q: FloatArray,
    v: FloatArray,
    load: FloatArray,
    position: FloatArray,
    friction: FloatArray,
    slack: FloatArray,
) -> None:
    """Torque of position alone, friction of moving coordinates, and how far it is open at rest, each (n,).

    Within the deadband friction is anything up to breakaway: there it counts as open, not as a torque.
    """
    n = q.shape[0]
    for j in range(n):
        position[j] = friction[j] = slack[j] = 0.0
    for c in range(effects.shape[0]):
        row = effects[c]
        motor = row[EFFECT_WIDTH:]
        value = row[E_VALUE] * joint_effect(int(row[E_LAW]), row[E_SHAPE : E_SHAPE + 3], motor, q, v, v, load)
        place = int(row[E_COORDINATE])
        if place < 0:
            for j in range(n):
                position[j] += motor[j] * value
            continue
        w = 0.0
        for j in range(n):
            w += coordinates[place, COORDINATE_WIDTH + j] * v[j]
        value *= rise(abs(w), coordinates[place, C_DEADBAND], coordinates[place, C_RISE])
        for j in range(n):
            friction[j] += motor[j] * value
    for k in range(coordinates.shape[0]):
        row = coordinates[k]
        w = 0.0
        for j in range(n):
            w += row[COORDINATE_WIDTH + j] * v[j]
        open_ = (1.0 - rise(abs(w), row[C_DEADBAND], row[C_RISE])) * row[C_BREAKAWAY]
        for j in range(n):
            slack[j] += abs(row[COORDINATE_WIDTH + j]) * open_


@jit
def _compensate(coordinates: FloatArray, v: FloatArray, share: float, out: FloatArray) -> float:
    """Friction compensation into `out` (n,); returns the power that friction takes away all the same."""
    n = v.shape[0]
    left = 0.0
    for j in range(n):
        out[j] = 0.0
    for k in range(coordinates.shape[0]):
        row = coordinates[k]
        w = 0.0
        for j in range(n):
            w += row[COORDINATE_WIDTH + j] * v[j]
        full = rise(abs(w), row[C_DEADBAND], row[C_RISE])
        given = share * (np.sign(w) * row[C_DRY] * full + row[C_SLOPE] * w)
        left += (row[C_DRY] + row[C_SLOPE] * abs(w)) * abs(w) - given * w
        for j in range(n):
            out[j] += row[COORDINATE_WIDTH + j] * given
    return left


@jit
def _wall(limits: FloatArray, i: int, q: float, v: float) -> float:
    """Torque of the soft walls of joint `i`: away from the limit, never towards it."""
    below = limits[LOWER, i] + limits[WALL_WIDTH, i] - q
    if below > 0.0:
        return float(max(0.0, limits[WALL_SPRING, i] * below - limits[WALL_DAMPER, i] * v))
    above = q - (limits[UPPER, i] - limits[WALL_WIDTH, i])
    if above > 0.0:
        return -float(max(0.0, limits[WALL_SPRING, i] * above + limits[WALL_DAMPER, i] * v))
    return 0.0


@jit
def put(limits: FloatArray, state: FloatArray, wanted: FloatArray, step_s: float) -> None:
    """Give torque towards `wanted` (n,), within its rate over `step_s` and its limit: the one way out."""
    for i in range(wanted.shape[0]):
        step = limits[TORQUE_RATE, i] * step_s
        out = min(max(wanted[i], state[OUT, i] - step), state[OUT, i] + step)
        out = min(max(out, -limits[TORQUE, i]), limits[TORQUE, i])
        for h in range(HISTORY_ROWS - 1, 0, -1):
            state[HISTORY + h, i] = state[HISTORY + h - 1, i]
        state[HISTORY, i] = state[OUT, i] = out


@jit
def cycle(
    arm: FloatArray,
    gravity: FloatArray,
    rotor: FloatArray,
    effects: FloatArray,
    coordinates: FloatArray,
    limits: FloatArray,
    scalars: FloatArray,
    sample: FloatArray,
    state: FloatArray,
    scratch: FloatArray,
    finding: FloatArray,
) -> int:
    """Torque for one sample into row `OUT` of `state`; returns what it found, with the details in `finding` (3,).

    A sample that is not usable changes nothing.  `scratch` is (2n + SCRATCH_ROWS, max(n, 37)).
    """
    found = usable(sample, scalars, limits, state, finding)
    if found != GOOD:
        return found
    n = sample.shape[1]
    dt = scalars[DT]
    first = scalars[FIRST] != 0.0
    again = first or scalars[LATE] != 0.0  # velocity begins again
    frozen = scalars[HAS_TAU] != 0.0
    geometry, inertial = arm[:, :37], arm[:, 37:]
    mass = scratch[:n, :n]
    work = scratch[n : 2 * n, :37]
    rows = scratch[2 * n :, :n]
    bias, weight, position, friction, slack, given, applied, change = (
        rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7],
    )  # fmt: skip
    zero, wanted = rows[8], rows[9]
    delay = HISTORY + int(scalars[DELAY])
    for i in range(n):
        if scalars[HAS_TAU] != 0.0:
            frozen = frozen and sample[S_TAU, i] == state[MEASURED, i]
            applied[i] = 0.5 * (sample[S_TAU, i] + state[MEASURED, i])
            state[MEASURED, i] = sample[S_TAU, i]
            other = abs(applied[i] - 0.5 * (state[delay, i] + state[delay + 1, i]))
            followed = again or other <= scalars[UNFOLLOWED] * limits[TORQUE, i]
            state[UNFOLLOWED_TIME, i] = 0.0 if followed else state[UNFOLLOWED_TIME, i] + dt
        else:
            applied[i] = 0.5 * (state[delay, i] + state[delay + 1, i])
        change[i] = -state[V, i]
        zero[i] = 0.0
    scalars[FROZEN_TIME] = scalars[FROZEN_TIME] + scalars[SINCE] if frozen and not first else 0.0
    if again:
        for i in range(n):
            if first:
                state[HOLD_AT, i] = sample[S_Q, i]
            state[Q, i] = sample[S_Q, i]
            state[V, i] = sample[S_DQ, i] if scalars[HAS_DQ] != 0.0 else 0.0
            state[ACCELERATION, i] = change[i] = state[APART, i] = 0.0
    elif scalars[HAS_DQ] != 0.0:
        for i in range(n):
            apart = state[APART, i] + 0.5 * dt * (state[V, i] + sample[S_DQ, i]) - (sample[S_Q, i] - state[Q, i])
            state[APART, i] = apart * (1.0 - dt / COMPARED_S)
            state[Q, i], state[V, i] = sample[S_Q, i], sample[S_DQ, i]
            change[i] += state[V, i]
    else:
        _observe(sample, scalars, state)
        for i in range(n):
            change[i] += state[V, i]
    q, v = sample[S_Q], state[V]
    rnea_single(geometry, gravity, inertial, q, zero, zero, weight, work)
    mass_and_bias(geometry, gravity, inertial, q, v, mass, bias, work)
    for i in range(n):
        for j in range(n):
            mass[i, j] += rotor[i, j]
    _friction(effects, coordinates, q, v, bias, position, friction, slack)
    if first:
        for i in range(n):
            start = weight[i] + position[i]
            if scalars[HAS_TAU] == 0.0:
                state[MEASURED, i] = start
            state[BEFORE, i] = state[MEASURED, i] - start
            applied[i] = state[MEASURED, i]
            # Where the ramp begins; `put` keeps it within its limit.
            state[OUT, i] = state[MEASURED, i]
            for h in range(HISTORY_ROWS):
                state[HISTORY + h, i] = state[OUT, i]
    judge_residual(limits, scalars, mass, bias, position, friction, slack, applied, change, state)

    left = _compensate(coordinates, v, scalars[FRICTION_SHARE], given)
    fed = 0.0
    for i in range(n):
        left += limits[DAMPER, i] * v[i] * v[i]
        fed += v[i] * (bias[i] - weight[i])
    k = 1.0 if fed <= CORIOLIS_SHARE * left else CORIOLIS_SHARE * left / fed
    s = scalars[GUIDING_SHARE]
    most = MAX_DAMPING if scalars[HAS_DQ] != 0.0 else MAX_DAMPING + 1
    for i in range(n):
        if s >= 1.0:
            state[HOLD_AT, i] = q[i]
        reach = limits[HOLD_REACH, i]
        state[HOLD_AT, i] = min(max(state[HOLD_AT, i], q[i] - reach), q[i] + reach)
        if scalars[GRIP] == HOLD:
            state[MODEL, i] = weight[i] + position[i] + k * (bias[i] - weight[i])
        hold = limits[HOLD_SPRING, i] * (state[HOLD_AT, i] - q[i]) - limits[HOLD_DAMPER, i] * v[i]
        wall = _wall(limits, i, q[i], v[i])
        # Delay bounds damping: braking has what the other dampers leave.
        damper = s * limits[DAMPER, i] + (1.0 - s) * limits[HOLD_DAMPER, i]
        damper += limits[WALL_DAMPER, i] if wall != 0.0 else 0.0
        brake = min(limits[BRAKE, i], max(0.0, limits[most, i] - damper))
        over = max(0.0, abs(v[i]) - scalars[SOFT_SPEED] * limits[SPEED, i])
        wanted[i] = state[MODEL, i] + s * (given[i] - limits[DAMPER, i] * v[i]) + (1.0 - s) * hold
        wanted[i] += scalars[BEFORE_SHARE] * state[BEFORE, i] - brake * over * np.sign(v[i]) + wall
        if first:
            wanted[i] = state[OUT, i]
        elif scalars[GRIP] == WEIGHT:
            wanted[i] = state[MODEL, i]
        elif scalars[GRIP] == NOTHING:
            wanted[i] = 0.0
    put(limits, state, wanted, scalars[STEP])
    for i in range(n):
        short = abs(wanted[i] - state[OUT, i]) > scalars[SHORT] * limits[TORQUE, i]
        state[SHORT_TIME, i] = state[SHORT_TIME, i] + dt if short else 0.0
    return GOOD
