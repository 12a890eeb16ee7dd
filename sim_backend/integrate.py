"""Forward dynamics of an arm with dry friction, integrated exactly through sticking and sliding.

Coordinates.  Everything is integrated in `x = C q`, the motors' coordinates referred to the joint
side (`C` is `RobotModel.coupling`; `x = q` for an uncoupled arm), in which rotor inertia, friction
and motor torque `u` of each joint stand alone:

    (Ci' M Ci + diag(Ia)) ddx + Ci' b + diag(fv) dx + friction + Ci' offset = u,     Ci = inverse of C

Dry friction.  A joint is in one of the modes sliding down, stuck, sliding up (-1, 0, 1), or free of dry
friction (2).  While no mode changes the equations are smooth and are integrated by the classical
fourth-order Runge-Kutta method; a stuck joint's acceleration is zero, and friction is whatever that takes,
up to the Coulomb torque.  A velocity that reaches zero within a substep ends it there: the joint sticks, or
slides on if the torque is larger than friction can hold.  There is no smoothing velocity and no chatter.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import kernel
from rt_core.model.forward import mass_and_bias, solve_definite
from rt_core.types import FloatArray
from sim_backend.layout import ARMATURE, COULOMB, FRICTION, MODE, OFFSET, VISCOUS, A, U, V, X

#: Zero crossings handled exactly in one substep; beyond them a crossing joint simply sticks.
_MAX_EVENTS = 8


@kernel
def times(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """`out = matrix @ vector` for (n, n) and (n,); `out` is not `vector`."""
    for i in range(out.shape[0]):
        total = 0.0
        for j in range(out.shape[0]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@kernel
def times_transposed(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """`out = matrix.T @ vector` for (n, n) and (n,); `out` is not `vector`."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for j in range(out.shape[0]):
        for i in range(out.shape[0]):
            out[i] += matrix[j, i] * vector[j]


@kernel
def equations(
    arm: FloatArray,
    gravity: FloatArray,
    parameters: FloatArray,
    coupling: FloatArray,
    coupled: bool,
    x: FloatArray,
    v: FloatArray,
    u: FloatArray,
    mass: FloatArray,
    force: FloatArray,
    scratch: FloatArray,
    product: FloatArray,
    work: FloatArray,
) -> None:
    """Mass matrix and the torque left for acceleration and dry friction, in motor coordinates.

    `arm` is (n, 47), geometry and link parameters side by side; `scratch` is (3, n), `product` (n, n).
    """
    n = x.shape[0]
    geometry, inertial = arm[:, :37], arm[:, 37:]
    if coupled:
        inverse = coupling[1]
        times(inverse, x, scratch[0])
        times(inverse, v, scratch[1])
        mass_and_bias(geometry, gravity, inertial, scratch[0], scratch[1], mass, scratch[2], work)
        times_transposed(inverse, scratch[2], force)
        for i in range(n):
            for j in range(n):
                total = 0.0
                for k in range(n):
                    total += mass[i, k] * inverse[k, j]
                product[i, j] = total
        for i in range(n):
            for j in range(n):
                total = 0.0
                for k in range(n):
                    total += inverse[k, i] * product[k, j]
                mass[i, j] = total
    else:
        mass_and_bias(geometry, gravity, inertial, x, v, mass, force, work)
    for i in range(n):
        mass[i, i] += parameters[ARMATURE, i]
        force[i] = u[i] - force[i] - parameters[VISCOUS, i] * v[i] - parameters[OFFSET, i]


@kernel
def _accelerate(mass: FloatArray, force: FloatArray, mode: FloatArray, coulomb: FloatArray, a: FloatArray) -> bool:
    """Accelerations with all modes as they are; overwrites the lower triangle of `mass`."""
    n = a.shape[0]
    for i in range(n):
        if mode[i] == 0.0:
            a[i] = 0.0
            for j in range(i):
                mass[i, j] = 0.0
            for j in range(i + 1, n):
                mass[j, i] = 0.0
            mass[i, i] = 1.0
        elif mode[i] == 2.0:
            a[i] = force[i]
        else:
            a[i] = force[i] - mode[i] * coulomb[i]
    return solve_definite(mass, a)


@kernel
def resolve(
    mass: FloatArray,
    force: FloatArray,
    copy: FloatArray,
    parameters: FloatArray,
    state: FloatArray,
) -> bool:
    """Modes, accelerations and friction of the present state; stuck joints that cannot hold start to slide."""
    n = force.shape[0]
    mode, a, friction, v = state[MODE], state[A], state[FRICTION], state[V]
    coulomb = parameters[COULOMB]
    for i in range(n):
        if coulomb[i] == 0.0:
            mode[i] = 2.0
        elif mode[i] == 2.0:
            mode[i] = np.sign(v[i])
    for _ in range(n + 1):
        for i in range(n):
            for j in range(n):
                copy[i, j] = mass[i, j]
        if not _accelerate(copy, force, mode, coulomb, a):
            return False
        released = False
        for i in range(n):
            if mode[i] == 0.0:
                held = force[i]
                for j in range(n):
                    held -= mass[i, j] * a[j]
                friction[i] = held
                if abs(held) > coulomb[i]:
                    mode[i] = np.sign(held)
                    released = True
            elif mode[i] == 2.0:
                friction[i] = parameters[VISCOUS, i] * v[i]
            else:
                friction[i] = parameters[VISCOUS, i] * v[i] + mode[i] * coulomb[i]
        if not released:
            break
    return True


@kernel
def _first_zero(v0: float, slope: float, v1: float) -> float:
    """Fraction of a step at which `v0 + slope*s + (v1 - v0 - slope)*s^2` reaches zero; v0 and v1 differ in sign."""
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
    arm: FloatArray,
    gravity: FloatArray,
    parameters: FloatArray,
    coupling: FloatArray,
    coupled: bool,
    state: FloatArray,
    h: float,
    u0: FloatArray,
    u1: FloatArray,
    x1: FloatArray,
    v1: FloatArray,
    vectors: FloatArray,
    mass: FloatArray,
    scratch: FloatArray,
    product: FloatArray,
    work: FloatArray,
) -> bool:
    """One step of length `h` with all modes as they are and torque going linearly from `u0` to `u1`."""
    n = x1.shape[0]
    x, v, a = state[X], state[V], state[A]
    mode, coulomb = state[MODE], parameters[COULOMB]
    xs, vs, us, stage, force = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    for i in range(n):
        xs[i] = x[i] + 0.5 * h * v[i]
        vs[i] = v[i] + 0.5 * h * a[i]
        us[i] = 0.5 * (u0[i] + u1[i])
        x1[i] = v[i] + 2.0 * vs[i]
        v1[i] = a[i]
    for k in range(3):
        equations(
            arm,
            gravity,
            parameters,
            coupling,
            coupled,
            xs,
            vs,
            us if k < 2 else u1,
            mass,
            force,
            scratch,
            product,
            work,
        )
        if not _accelerate(mass, force, mode, coulomb, stage):
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
def substep(
    arm: FloatArray,
    gravity: FloatArray,
    parameters: FloatArray,
    coupling: FloatArray,
    coupled: bool,
    state: FloatArray,
    h: float,
    target: FloatArray,
    jump: FloatArray,
    vectors: FloatArray,
    mass: FloatArray,
    copy: FloatArray,
    scratch: FloatArray,
    product: FloatArray,
    work: FloatArray,
) -> bool:
    """Integrate over `h` while motor torque ramps to `target`; False if inertia is not positive definite.

    `jump` (n,) is added to a motor's torque at the moment at which it comes to a stand, at the latest at the
    end: the drive's compensation of dry friction changes its direction with the motor.
    """
    n = target.shape[0]
    mode = state[MODE]
    start, u0, u1, x1, v1, force = vectors[5], vectors[6], vectors[7], vectors[8], vectors[9], vectors[10]
    for i in range(n):
        start[i] = state[U, i]
    done = 0.0
    for event in range(_MAX_EVENTS + 1):
        left = 1.0 - done
        for i in range(n):
            u0[i] = state[U, i]
            u1[i] = target[i]
        if not _runge_kutta(
            arm,
            gravity,
            parameters,
            coupling,
            coupled,
            state,
            left * h,
            u0,
            u1,
            x1,
            v1,
            vectors,
            mass,
            scratch,
            product,
            work,
        ):
            return False
        first, which = 2.0, -1
        for i in range(n):
            if (mode[i] == 1.0 or mode[i] == -1.0) and mode[i] * v1[i] < 0.0:
                part = 0.0
                if mode[i] * state[V, i] > 0.0 or mode[i] * state[A, i] > 0.0:
                    part = _first_zero(state[V, i], left * h * state[A, i], v1[i])
                if part < first:
                    first, which = part, i
        if which >= 0 and event < _MAX_EVENTS:
            for i in range(n):
                u1[i] = start[i] + (done + first * left) * (target[i] - start[i])
            if not _runge_kutta(
                arm, gravity, parameters, coupling, coupled, state, first * left * h, u0, u1, x1, v1, vectors, mass,
                scratch, product, work,
            ):  # fmt: skip
                return False
            done += first * left
            v1[which] = 0.0
        else:
            done = 1.0
        for i in range(n):
            state[X, i] = x1[i]
            state[V, i] = v1[i]
            state[U, i] = u1[i]
            if (mode[i] == 1.0 or mode[i] == -1.0) and mode[i] * v1[i] <= 0.0:
                mode[i] = 0.0
                state[V, i] = 0.0
            if jump[i] != 0.0 and (mode[i] == 0.0 or done >= 1.0):
                state[U, i] += jump[i]
                start[i] += jump[i]
                target[i] += jump[i]
                jump[i] = 0.0
        equations(
            arm,
            gravity,
            parameters,
            coupling,
            coupled,
            state[X],
            state[V],
            state[U],
            mass,
            force,
            scratch,
            product,
            work,
        )
        if not resolve(mass, force, copy, parameters, state):
            return False
        if done >= 1.0:
            break
    return True
