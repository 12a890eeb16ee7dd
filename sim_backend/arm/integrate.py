"""Forward dynamics of an arm with dry friction, integrated exactly through sticking and sliding.

Dry friction.  A joint slides down, sticks, slides up (modes -1, 0, 1), or is free of dry friction (2).  Between changes
of mode the equations are smooth and are integrated by the classical fourth-order Runge-Kutta method; a stuck joint has
zero acceleration, and friction balances its torque up to the breakaway torque.  A velocity that reaches zero within a
substep ends it: the joint sticks, or slides on if friction cannot hold it.  There is no chattering.  In a model with a
smoothing velocity all joints are free of dry friction.

Steep friction.  Near velocities where friction changes within a small width (Stribeck's exponential, a hyperbolic
tangent) a substep is cut into pieces: the velocity changes by at most half that width in a piece, and the piece is
short against the time constant of the slope, for stability.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm._load import accelerate_loaded
from sim_backend.arm.equations import accelerate, equations, levels
from sim_backend.arm.friction import dry_level

#: Zero crossings handled exactly in one substep; beyond them a crossing joint simply sticks.
_MAX_EVENTS = 8
#: Most pieces of a substep by steep friction.
MAX_PIECES = 1000
#: Largest product of a piece and the rate of the steepest decay; the method is stable up to 2.78.
STABLE = 1.5


@kernel
def resolve(arrays: at.ArmArrays, force: FloatArray) -> bool:
    """Compute modes, accelerations and friction of the present state; overloaded stuck joints start to slide.

    Called after `equations`; row `LEVEL` of `scratch` holds the dry friction if that does not vary.
    """
    n = force.shape[0]
    parameters, terms, scalars = arrays.parameters, arrays.terms[0], arrays.scalars
    state, scratch = arrays.state, arrays.scratch
    mass, copy = arrays.matrices[at.MASS], arrays.matrices[at.COPY]
    mode, a, friction, v = state[at.MODE], state[at.A], state[at.FRICTION], state[at.V]
    drag, level, load = scratch[at.DRAG], scratch[at.LEVEL], scratch[at.LOAD]
    loaded = scalars[at.LOADED] != 0.0
    if scalars[at.VARYING] != 0.0:
        levels(arrays, v)
    for i in range(n):
        load[i] = 0.0
        if parameters[at.DRY, i] == 0.0:
            mode[i] = 2.0
        elif mode[i] == 2.0:
            mode[i] = np.sign(v[i])
    first = int(scalars[at.DRY_END])
    for _ in range(n + 1):
        if loaded:
            if not accelerate_loaded(arrays, force, v, a):
                return False
        else:
            for i in range(n):
                for j in range(n):
                    copy[i, j] = mass[i, j]
            if not accelerate(copy, force, mode, level, a):
                return False
        released = False
        for i in range(n):
            if mode[i] == 0.0:
                held = force[i]
                for j in range(n):
                    held -= mass[i, j] * a[j]
                friction[i] = drag[i] + held
                limit = parameters[at.HOLD, i]
                if loaded:
                    limit += dry_level(terms, first, terms.shape[0], i, 0.0, load[i])
                if abs(held) > limit:
                    mode[i] = np.sign(held)
                    released = True
            else:
                friction[i] = drag[i]
                if mode[i] != 2.0:
                    friction[i] += mode[i] * level[i]
                if loaded:
                    friction[i] += scratch[at.WEIGHT, i] * abs(load[i])
        if not released:
            break
    return True


@kernel
def first_zero(v0: float, slope: float, v1: float) -> float:
    """Return the fraction of a step at which `v0 + slope*s + (v1 - v0 - slope)*s^2` is zero; v0, v1 differ in sign."""
    c = v1 - v0 - slope
    root = np.sqrt(max(slope * slope - 4.0 * c * v0, 0.0))
    scale = slope + root if slope >= 0.0 else slope - root
    best = 1.0
    if c != 0.0:
        s = -0.5 * scale / c
        if 0.0 <= s < best:
            best = s
    if scale != 0.0:
        s = -2.0 * v0 / scale
        if 0.0 <= s < best:
            best = s
    return best


@kernel
def _runge_kutta(
    arrays: at.ArmArrays, h: float, u0: FloatArray, u1: FloatArray, x1: FloatArray, v1: FloatArray
) -> bool:
    """Take one step of length `h` with fixed modes and torque going linearly from `u0` to `u1`."""
    n = x1.shape[0]
    scalars, state, vectors = arrays.scalars, arrays.state, arrays.vectors
    x, v, a, mode = state[at.X], state[at.V], state[at.A], state[at.MODE]
    xs, vs, us, stage, force = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    mass, level = arrays.matrices[at.MASS], arrays.scratch[at.LEVEL]
    for i in range(n):
        xs[i] = x[i] + 0.5 * h * v[i]
        vs[i] = v[i] + 0.5 * h * a[i]
        us[i] = 0.5 * (u0[i] + u1[i])
        x1[i] = v[i] + 2.0 * vs[i]
        v1[i] = a[i]
    for k in range(3):
        equations(arrays, xs, vs, us if k < 2 else u1, force)
        if scalars[at.VARYING] != 0.0:
            levels(arrays, vs)
        if scalars[at.LOADED] != 0.0:
            if not accelerate_loaded(arrays, force, vs, stage):
                return False
        elif not accelerate(mass, force, mode, level, stage):
            return False
        length = 0.5 * h if k == 0 else h
        weight = 2.0 if k == 0 else 1.0
        for i in range(n):
            v1[i] += (2.0 if k < 2 else 1.0) * stage[i]
            if k < 2:
                xs[i] = x[i] + length * vs[i]
                vs[i] = v[i] + length * stage[i]
                x1[i] += weight * vs[i]
    for i in range(n):
        x1[i] = x[i] + h / 6.0 * x1[i]
        v1[i] = v[i] + h / 6.0 * v1[i]
    return True


@kernel
def _piece(terms: FloatArray, scalars: FloatArray, state: FloatArray, h: float, left: float) -> float:
    """Return the share of a substep `h`, at most `left`, of one step through steep friction."""
    rate = scalars[at.BASE_RATE]
    length = left * h
    for i in range(state.shape[1]):
        if state[at.MODE, i] == 0.0:
            continue
        v, a = state[at.V, i], state[at.A, i]
        for t in range(terms.shape[0]):
            width = terms[t, at.WIDTH, i]
            if width == 0.0:
                continue
            change = 0.5 * width
            if abs(v) < terms[t, at.REACH, i]:
                rate += terms[t, at.RATE, i]
            elif v * a < 0.0:
                change += abs(v) - terms[t, at.REACH, i]
            else:
                continue
            if abs(a) * length > change:
                length = change / abs(a)
    if rate * length > STABLE:
        length = STABLE / rate
    return min(max(length / h, 1.0 / MAX_PIECES), left)


@kernel
def substep(arrays: at.ArmArrays, h: float, target: FloatArray, jump: FloatArray) -> bool:
    """Integrate over `h` while motor torque ramps to `target`; False if inertia is not positive definite.

    `jump` (n,) is added to a motor's torque when it stops, at the latest at the end: the drive's compensation of dry
    friction changes direction with the motor.
    """
    n = target.shape[0]
    terms, scalars, state, vectors = arrays.terms[0], arrays.scalars, arrays.state, arrays.vectors
    mode = state[at.MODE]
    start, u0, u1, x1, v1, force = vectors[5], vectors[6], vectors[7], vectors[8], vectors[9], vectors[10]
    for i in range(n):
        start[i] = state[at.U, i]
    done = 0.0
    events = 0
    while done < 1.0:
        left = 1.0 - done
        part = _piece(terms, scalars, state, h, left) if scalars[at.STEEP] != 0.0 else left
        last = part >= left
        for i in range(n):
            u0[i] = state[at.U, i]
            u1[i] = target[i] if last else start[i] + (done + part) * (target[i] - start[i])
        if not _runge_kutta(arrays, part * h, u0, u1, x1, v1):
            return False
        first, which = 2.0, -1
        for i in range(n):
            if (mode[i] == 1.0 or mode[i] == -1.0) and mode[i] * v1[i] < 0.0:
                share = 0.0
                if mode[i] * state[at.V, i] > 0.0 or mode[i] * state[at.A, i] > 0.0:
                    share = first_zero(state[at.V, i], part * h * state[at.A, i], v1[i])
                if share < first:
                    first, which = share, i
        if which >= 0 and events < _MAX_EVENTS:
            events += 1
            for i in range(n):
                u1[i] = start[i] + (done + first * part) * (target[i] - start[i])
            if not _runge_kutta(arrays, first * part * h, u0, u1, x1, v1):
                return False
            done += first * part
            v1[which] = 0.0
        else:
            done = 1.0 if last else done + part
        for i in range(n):
            state[at.X, i] = x1[i]
            state[at.V, i] = v1[i]
            state[at.U, i] = u1[i]
            if (mode[i] == 1.0 or mode[i] == -1.0) and mode[i] * v1[i] <= 0.0:
                mode[i] = 0.0
                state[at.V, i] = 0.0
            if jump[i] != 0.0 and (mode[i] == 0.0 or done >= 1.0):
                state[at.U, i] += jump[i]
                start[i] += jump[i]
                target[i] += jump[i]
                jump[i] = 0.0
        equations(arrays, state[at.X], state[at.V], state[at.U], force)
        if not resolve(arrays, force):
            return False
    return True
