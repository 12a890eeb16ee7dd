"""Drive, sensors and integration of a simulated arm: one compiled call for any number of samples.

The drive computes a torque once per substep, from the state at its start and the set trajectory at its end, and ramps
to it linearly.  Motor torque is thus continuous in time: sampled torque and position belong to the same instant, at
which the equations of motion hold, with no half-period offset.

The drive closes its loops on an ideal motor-side encoder; quantisation and noise apply to reported values only.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.dynamics import rnea_single
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm.equations import equations, levels, times, times_transposed
from sim_backend.arm.friction import dry_level, effect
from sim_backend.arm.integrate import resolve, substep
from sim_backend.arm.temperature import follow_temperature, warm
from sim_backend.arm.trajectory import MotionArrays, motion_at


@kernel
def setpoint(arrays: at.ArmArrays, motion: MotionArrays, t: float) -> None:
    """Compute set position, velocity and fed-forward torque at time `t`, in motor coordinates, into `state`.

    The compensation of dry friction is for the direction before `t`; `vectors[19]` receives the jump to that of the
    direction at `t`, which `substep` applies when the motor reverses.
    """
    parameters, terms, coupling, scalars = arrays.parameters, arrays.terms[1], arrays.coupling, arrays.scalars
    state, vectors = arrays.state, arrays.vectors
    n = state.shape[1]
    q, dq, ddq, tau, ddx = vectors[11], vectors[12], vectors[13], vectors[14], vectors[15]
    sign, jump = vectors[18], vectors[19]
    for i in range(n):
        sign[i] = np.sign(state[at.V_SET, i])
    motion_at(motion, t, q, dq, ddq)
    coupled = scalars[at.COUPLED] != 0.0
    if coupled:
        times(coupling[0], q, state[at.X_SET])
        times(coupling[0], dq, state[at.V_SET])
        times(coupling[0], ddq, ddx)
    else:
        for i in range(n):
            state[at.X_SET, i] = q[i]
            state[at.V_SET, i] = dq[i]
            ddx[i] = ddq[i]
    for i in range(n):
        state[at.FEED, i] = 0.0
        jump[i] = 0.0
    if scalars[at.FEEDFORWARD] == 0.0:
        return
    if scalars[at.FEEDFORWARD] == 1.0:
        for i in range(n):
            dq[i] = 0.0
            ddq[i] = 0.0
    rnea_single(at.links_of(arrays), q, dq, ddq, tau, arrays.work)
    if coupled:
        times_transposed(coupling[1], tau, state[at.FEED])
    else:
        for i in range(n):
            state[at.FEED, i] = tau[i]
    for i in range(n):
        state[at.FEED, i] += parameters[at.FEED_OFFSET, i]
    if scalars[at.FEEDFORWARD] == 1.0:
        return
    plain_end, smooth_end, dry_end = int(scalars[at.PLAIN_END]), int(scalars[at.SMOOTH_END]), int(scalars[at.DRY_END])
    for i in range(n):
        x, v = state[at.X_SET, i], state[at.V_SET, i]
        feed = parameters[at.FEED_ARMATURE, i] * ddx[i] + parameters[at.FEED_VISCOUS, i] * v
        for t in range(plain_end, smooth_end):
            feed += effect(terms, t, i, x, v, 0.0)
        if dry_end < terms.shape[0] and terms[dry_end, at.SMOOTHING, i] > 0.0:
            for t in range(dry_end, terms.shape[0]):
                feed += effect(terms, t, i, x, v, tau[i])
        else:
            level = parameters[at.FEED_HOLD, i]
            if scalars[at.FEED_VARYING] != 0.0:
                level = dry_level(terms, smooth_end, dry_end, i, v, 0.0)
            if dry_end < terms.shape[0]:
                level += dry_level(terms, dry_end, terms.shape[0], i, v, tau[i])
            feed += level * sign[i]
            jump[i] = level * (np.sign(v) - sign[i])
        state[at.FEED, i] += feed


@kernel
def _limited(torque: float, limit: float) -> float:
    return min(max(torque, -limit), limit)


@kernel
def begin(arrays: at.ArmArrays, motion: MotionArrays) -> bool:
    """Start at time zero on the set trajectory, with the fed-forward torque; False if inertia is not positive."""
    parameters, scalars, state = arrays.parameters, arrays.scalars, arrays.state
    n = state.shape[1]
    for i in range(n):
        state[at.V_SET, i] = 0.0
    setpoint(arrays, motion, 0.0)
    for i in range(n):
        state[at.X, i] = state[at.X_SET, i]
        state[at.V, i] = state[at.V_SET, i]
        state[at.U, i] = _limited(state[at.FEED, i], parameters[at.LIMIT, i])
        state[at.MODE, i] = np.sign(state[at.V, i])
        state[at.INTEGRAL, i] = 0.0
        state[at.TEMPERATURE, i] = scalars[at.AMBIENT]
    if scalars[at.WARM] != 0.0:
        follow_temperature(arrays)
    return refresh(arrays)


@kernel
def refresh(arrays: at.ArmArrays) -> bool:
    """Update modes and accelerations of the present state, after a change of `parameters`."""
    force, state = arrays.vectors[10], arrays.state
    levels(arrays, state[at.V])
    equations(arrays, state[at.X], state[at.V], state[at.U], force)
    return resolve(arrays, force)


@kernel
def control_error(arrays: at.ArmArrays, error: FloatArray) -> None:
    """Compute the velocity `error` (n,) of the drives' cascade at the start of a substep."""
    parameters, state = arrays.parameters, arrays.state
    for i in range(error.shape[0]):
        error[i] = state[at.V_SET, i] + parameters[at.KP, i] * (state[at.X_SET, i] - state[at.X, i]) - state[at.V, i]


@kernel
def control(arrays: at.ArmArrays, h: float, error: FloatArray, target: FloatArray, jump: FloatArray) -> None:
    """Compute the torque at the end of the substep, from the velocity `error` at its start."""
    parameters, state = arrays.parameters, arrays.state
    for i in range(target.shape[0]):
        limit = parameters[at.LIMIT, i]
        wanted = state[at.FEED, i] + parameters[at.KD, i] * error[i] + state[at.INTEGRAL, i]
        target[i] = _limited(wanted, limit)
        jump[i] = _limited(target[i] + jump[i], limit) - target[i]
        if target[i] == wanted or error[i] * wanted < 0.0:
            state[at.INTEGRAL, i] += parameters[at.KI, i] * h * error[i]


@kernel
def measure(arrays: at.ArmArrays, noise: FloatArray, out: FloatArray) -> None:
    """Compute one sample of all channels and of the exact values."""
    parameters, coupling, state = arrays.parameters, arrays.coupling, arrays.state
    n = state.shape[1]
    if arrays.scalars[at.COUPLED] != 0.0:
        inverse = coupling[1]
        times(inverse, state[at.X], out[at.OUT_TRUE_Q])
        times(inverse, state[at.V], out[at.OUT_TRUE_DQ])
        times(inverse, state[at.A], out[at.OUT_TRUE_DDQ])
        times_transposed(coupling[0], state[at.U], out[at.OUT_TRUE_TAU])
        times_transposed(coupling[0], state[at.FRICTION], out[at.OUT_TRUE_FRICTION])
        times(inverse, state[at.X_SET], out[at.OUT_SETPOINT])
    else:
        for i in range(n):
            out[at.OUT_TRUE_Q, i] = state[at.X, i]
            out[at.OUT_TRUE_DQ, i] = state[at.V, i]
            out[at.OUT_TRUE_DDQ, i] = state[at.A, i]
            out[at.OUT_TRUE_TAU, i] = state[at.U, i]
            out[at.OUT_TRUE_FRICTION, i] = state[at.FRICTION, i]
            out[at.OUT_SETPOINT, i] = state[at.X_SET, i]
    for i in range(n):
        step = parameters[at.RESOLUTION, i]
        q = out[at.OUT_TRUE_Q, i]
        out[at.OUT_Q, i] = step * np.floor(q / step + 0.5) if step > 0.0 else q
        out[at.OUT_DQ, i] = out[at.OUT_TRUE_DQ, i] + parameters[at.VELOCITY_NOISE, i] * noise[2, i]
        out[at.OUT_TAU, i] = out[at.OUT_TRUE_TAU, i] + parameters[at.TAU_NOISE, i] * noise[0, i]
        out[at.OUT_CURRENT, i] = (
            state[at.U, i] * parameters[at.CURRENT, i] + parameters[at.CURRENT_NOISE, i] * noise[1, i]
        )
        motor = parameters[at.RATIO, i] * state[at.X, i] + parameters[at.MOTOR_OFFSET, i]
        step = parameters[at.MOTOR_RESOLUTION, i]
        out[at.OUT_Q_MOTOR, i] = step * np.floor(motor / step + 0.5) if step > 0.0 else motor
        out[at.OUT_TEMPERATURE, i] = state[at.TEMPERATURE, i]


@kernel
def is_finite(state: FloatArray) -> bool:
    """Return whether positions, velocities and accelerations are finite."""
    finite = 0.0
    for i in range(state.shape[1]):
        finite += state[at.X, i] + state[at.V, i] + state[at.A, i]
    return bool(np.isfinite(finite))


@kernel
def advance(arrays: at.ArmArrays, motion: MotionArrays, sample: int, noise: FloatArray, out: FloatArray) -> int:
    """Write samples `sample, sample + 1, ...` to `out` (N, OUT_ROWS, n); return how many before the arm diverged.

    `noise` (N, 3, n) is standard normal; the state is that of sample `sample - 1`, or of sample 0 after `begin`.
    """
    substeps = int(arrays.scalars[at.SUBSTEPS])
    h = arrays.scalars[at.PERIOD] / substeps
    error, target, jump = arrays.vectors[16], arrays.vectors[17], arrays.vectors[19]
    for k in range(out.shape[0]):
        index = sample + k
        if index > 0:
            warm(arrays)
            for s in range(substeps):
                control_error(arrays, error)
                setpoint(arrays, motion, ((index - 1) * substeps + s + 1) * h)
                control(arrays, h, error, target, jump)
                if not substep(arrays, h, target, jump):
                    return k
            if not is_finite(arrays.state):
                return k
        measure(arrays, noise[k], out[k])
    return int(out.shape[0])
