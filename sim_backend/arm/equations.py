"""Equations of motion of an arm in motor coordinates, and their solution for the accelerations.

Integration is in `x = C q`, the motors' coordinates referred to the joint side (`C` is `RobotModel.coupling`; `x = q`
for an uncoupled arm), in which rotor inertia, friction and motor torque `u` are diagonal:

    (Ci' M Ci + diag(Ia)) ddx + Ci' (b - J' f) + drag + dry friction + Ci' offset = u,     Ci = inverse of C

`drag` is all friction that is a smooth function of position and velocity (see `sim_backend.arm.friction`), `f` are the
outside forces (`sim_backend.arm._outside`).
"""

from rt_core.jit import kernel
from rt_core.model.forward import mass_and_bias, solve_definite
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm._outside import take_outside_torque
from sim_backend.arm.friction import dry_level, effect


@kernel
def times(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """Compute `out = matrix @ vector` for (n, n) and (n,); `out` is not `vector`."""
    for i in range(out.shape[0]):
        total = 0.0
        for j in range(out.shape[0]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@kernel
def times_transposed(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """Compute `out = matrix.T @ vector` for (n, n) and (n,); `out` is not `vector`."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for j in range(out.shape[0]):
        for i in range(out.shape[0]):
            out[i] += matrix[j, i] * vector[j]


@kernel
def equations(arrays: at.ArmArrays, x: FloatArray, v: FloatArray, u: FloatArray, force: FloatArray) -> None:
    """Compute the mass matrix and the torque `force` left for acceleration and dry friction, in motor coordinates.

    Rows `DRAG` and `BIAS` of `scratch` are filled.
    """
    n = x.shape[0]
    mass = arrays.matrices[at.MASS]
    links, work = at.links_of(arrays), arrays.work
    parameters, terms, scalars, scratch = arrays.parameters, arrays.terms[0], arrays.scalars, arrays.scratch
    if scalars[at.COUPLED] != 0.0:
        inverse, product = arrays.coupling[1], arrays.matrices[at.PRODUCT]
        position, velocity, torque = scratch[at.POSITION], scratch[at.VELOCITY], scratch[at.TORQUE]
        times(inverse, x, position)
        times(inverse, v, velocity)
        mass_and_bias(links, position, velocity, mass, torque, work)
        if scalars[at.PUSHED] != 0.0:
            take_outside_torque(arrays, torque)
        times_transposed(inverse, torque, force)
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
        mass_and_bias(links, x, v, mass, force, work)
        if scalars[at.PUSHED] != 0.0:
            take_outside_torque(arrays, force)
    for i in range(n):
        scratch[at.DRAG, i] = parameters[at.VISCOUS, i] * v[i]
    if scalars[at.LOADED] != 0.0:
        for i in range(n):
            scratch[at.BIAS, i] = force[i]
    for t in range(int(scalars[at.PLAIN_END]), int(scalars[at.SMOOTH_END])):
        for i in range(n):
            scratch[at.DRAG, i] += effect(terms, t, i, x[i], v[i], 0.0)
    for i in range(n):
        mass[i, i] += parameters[at.ARMATURE, i]
        force[i] = u[i] - force[i] - scratch[at.DRAG, i] - parameters[at.OFFSET, i]


@kernel
def accelerate(mass: FloatArray, force: FloatArray, mode: FloatArray, level: FloatArray, a: FloatArray) -> bool:
    """Compute accelerations with fixed modes; overwrites the lower triangle of `mass`."""
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
            a[i] = force[i] - mode[i] * level[i]
    return solve_definite(mass, a)


@kernel
def levels(arrays: at.ArmArrays, v: FloatArray) -> None:
    """Compute dry friction at speeds `v` (n,), without that of the load, into the row `LEVEL` of `scratch`."""
    first, end = int(arrays.scalars[at.SMOOTH_END]), int(arrays.scalars[at.DRY_END])
    for i in range(v.shape[0]):
        arrays.scratch[at.LEVEL, i] = dry_level(arrays.terms[0], first, end, i, v[i], 0.0)
