"""Accelerations of an arm with load-dependent friction.

With `L = C' (G ddx + h)` the load torques of the joints (`G` the links' mass matrix, `h` their bias, in motor
coordinates) and `w = k1*s`, the equations of the moving motors are

    (G + diag(Ia)) ddx + diag(w) |L| = force - dry friction,

linear for given signs of `L`, which are found by repeated solution.
"""

from rt_core.jit import kernel
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm._lu import factor, substitute
from sim_backend.arm.friction import dry_level, effect


@kernel
def accelerate_loaded(arrays: at.ArmArrays, force: FloatArray, v: FloatArray, a: FloatArray) -> bool:
    """Compute accelerations `a` with fixed modes, and rows `LOAD` and `WEIGHT` of `scratch`; False if singular."""
    n = a.shape[0]
    parameters, terms, coupling = arrays.parameters, arrays.terms[0], arrays.coupling
    matrices, scratch, mode = arrays.matrices, arrays.scratch, arrays.state[at.MODE]
    mass, copy, load_mass = matrices[at.MASS], matrices[at.COPY], matrices[at.LOAD_MASS]
    load, weight, level = scratch[at.LOAD], scratch[at.WEIGHT], scratch[at.LEVEL]
    bias, load_bias, side = scratch[at.BIAS], scratch[at.LOAD_BIAS], scratch[at.SIDE]
    coupled = arrays.scalars[at.COUPLED] != 0.0
    first = int(arrays.scalars[at.DRY_END])
    for i in range(n):
        if mode[i] == 2.0:  # no dry friction, or smoothed
            weight[i] = 0.0
            for t in range(first, terms.shape[0]):
                weight[i] += effect(terms, t, i, 0.0, v[i], 1.0)
        else:
            weight[i] = mode[i] * dry_level(terms, first, terms.shape[0], i, 0.0, 1.0)
        if coupled:
            load_bias[i] = 0.0
            for k in range(n):
                load_bias[i] += coupling[0, k, i] * bias[k]
            for j in range(n):
                total = 0.0
                for k in range(n):
                    total += coupling[0, k, i] * mass[k, j]
                load_mass[i, j] = total - coupling[0, j, i] * parameters[at.ARMATURE, j]
        else:
            load_bias[i] = bias[i]
            for j in range(n):
                load_mass[i, j] = mass[i, j]
            load_mass[i, i] -= parameters[at.ARMATURE, i]
        side[i] = 1.0 if load_bias[i] >= 0.0 else -1.0
    for _ in range(n + 3):
        for i in range(n):
            if mode[i] == 0.0:
                for j in range(n):
                    copy[i, j] = 0.0
                copy[i, i] = 1.0
                a[i] = 0.0
                continue
            signed = weight[i] * side[i]
            for j in range(n):
                copy[i, j] = mass[i, j] + signed * load_mass[i, j]
            a[i] = force[i] - signed * load_bias[i]
            if mode[i] != 2.0:
                a[i] -= mode[i] * level[i]
        if not factor(copy, arrays.pivots):
            return False
        substitute(copy, arrays.pivots, a)
        turned = False
        for i in range(n):
            load[i] = load_bias[i]
            for j in range(n):
                load[i] += load_mass[i, j] * a[j]
            if load[i] * side[i] < 0.0:
                side[i] = -side[i]
                turned = turned or weight[i] != 0.0
        if not turned:
            break
    return True
