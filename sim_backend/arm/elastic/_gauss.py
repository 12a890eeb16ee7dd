"""One step of an arm with springs in its joints, by two-stage Gauss collocation.

For each joint with a spring, on the joint side, `d` the deflection and `x, y` the positions of motor and link:

    Ia*ddx + friction(x, dx) + offset + T = u,     T = k1*d + k2*d^3 + c*dd,     d = x - y
    (M(y) ddy + b(y, dy) - J' f) + b_link*dy + bC_link*s + A1*sin y + A2*cos y = T

A joint without spring has `x = y` and the sum of both rows.  The method is of fourth order, A-stable and symplectic
(Hairer, Lubich, Wanner, *Geometric Numerical Integration*, 2006, II.1.3): stiff springs do not bound the step, and no
energy is lost.

The accelerations of both stages are found by Newton's method.  Its matrix has the exact derivatives of springs and
friction at the first guess, and the mass matrix at the start of the step; the changes of `M` and `b` within a step are
neglected, so that an iteration gains about three digits.  Motors are eliminated joint by joint: the system has the size
of the links' two stages.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.dynamics import rnea_single
from rt_core.model.friction import friction_slopes
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm._lu import factor, substitute
from sim_backend.arm._outside import take_outside_torque
from sim_backend.arm.elastic.layout import (
    ACC,
    COUPLING,
    CUBIC,
    DAMPING,
    END,
    LINK,
    LINK_COSINE,
    LINK_COULOMB,
    LINK_SINE,
    LINK_VISCOUS,
    MOTOR,
    MOTOR_INVERSE,
    POS,
    SLIDE,
    STAGE_ACC,
    STAGE_POS,
    STAGE_RESIDUAL,
    STAGE_VEL,
    STIFFNESS,
    VEL,
    ElasticArrays,
)
from sim_backend.arm.friction import dry_level, effect

#: Most Newton iterations of a step.
_ITERATIONS = 12
#: Tolerance of the accelerations, relative to the largest and, at rest, of the position [rad or m].
_TOLERANCE, _MIN = 1e-9, 1e-15
#: Tolerance of stagnating iterations, at the rounding of a stiff spring's torque.
_ROUNDING, _MIN_ROUNDING = 1e-5, 1e-12
#: Below this length the tolerance at rest grows with the step's inverse only, not its square, and then not at all [s].
_SHORT_S, _NO_STEP_S = 1e-4, 1e-12
_ROOT = float(np.sqrt(3.0) / 6.0)
_NODE = np.array([0.5 - _ROOT, 0.5 + _ROOT])
_WEIGHT = np.array([[0.25, 0.25 - _ROOT], [0.25 + _ROOT, 0.25]])
_SQUARE = _WEIGHT @ _WEIGHT
_END = np.array([0.25 + 0.5 * _ROOT, 0.25 - 0.5 * _ROOT])


@kernel
def motor_friction(arrays: at.ArmArrays, i: int, x: float, v: float, slide: float) -> float:
    """Return the friction of motor `i` at position `x` and velocity `v`; the dry part only if it slides."""
    terms, scalars = arrays.terms[0], arrays.scalars
    total = arrays.parameters[at.VISCOUS, i] * v
    for t in range(int(scalars[at.PLAIN_END]), int(scalars[at.SMOOTH_END])):
        total += effect(terms, t, i, x, v, 0.0)
    if abs(slide) == 1.0:
        total += slide * dry_level(terms, int(scalars[at.SMOOTH_END]), int(scalars[at.DRY_END]), i, v, 0.0)
    return float(total)


@kernel
def cyclic(springs: FloatArray, i: int, y: float) -> float:
    """Return the cyclic friction of link `i` at position `y`, independent of the direction."""
    sine, cosine = springs[LINK_SINE, i], springs[LINK_COSINE, i]
    if sine == 0.0 and cosine == 0.0:
        return 0.0
    return float(sine * np.sin(y) + cosine * np.cos(y))


@kernel
def cyclic_slope(springs: FloatArray, i: int, y: float) -> float:
    """Return the derivative of `cyclic` by position."""
    sine, cosine = springs[LINK_SINE, i], springs[LINK_COSINE, i]
    if sine == 0.0 and cosine == 0.0:
        return 0.0
    return float(sine * np.cos(y) - cosine * np.sin(y))


@kernel
def _slopes(arrays: at.ArmArrays, i: int, x: float, v: float, slide: float) -> tuple[float, float]:
    """Return the derivatives of `motor_friction` by position and velocity."""
    terms, scalars = arrays.terms[0], arrays.scalars
    by_x, by_v = 0.0, arrays.parameters[at.VISCOUS, i]
    smooth_end = int(scalars[at.SMOOTH_END])
    for t in range(int(scalars[at.PLAIN_END]), int(scalars[at.DRY_END])):
        if t >= smooth_end and abs(slide) != 1.0:
            continue
        speed = abs(v) if t >= smooth_end else v  # of a dry term slide*level(|v|), with slide the sign of v
        shape = terms[t, at.CONSTANT, i], terms[t, at.EXPONENT, i], terms[t, at.SMOOTHING, i]
        dx, dv, _ = friction_slopes(int(terms[t, at.CODE, i]), shape, x, speed, 0.0)
        by_x += terms[t, at.VALUE, i] * dx
        by_v += terms[t, at.VALUE, i] * dv
    return by_x, by_v


@kernel
def _fill_system(arrays: at.ArmArrays, elastic: ElasticArrays, h: float) -> None:
    """Fill Newton's matrix (2n, 2n) of the links at the present stages, and the motors' coupling in `blocks`."""
    parameters, mass = arrays.parameters, arrays.matrices[at.MASS]
    springs, slide, stages, system = elastic.springs, elastic.motion[SLIDE], elastic.stages, elastic.system
    n = mass.shape[0]
    for s in range(2):
        for r in range(2):
            for i in range(n):
                for j in range(n):
                    system[s * n + i, r * n + j] = mass[i, j] if s == r else 0.0
    for i in range(n):
        soft = springs[STIFFNESS, i] > 0.0
        stuck = slide[MOTOR, i] == 0.0
        block = elastic.blocks[i]
        for k in range(8):
            block[k] = 0.0
        for s in range(2):
            x, v = stages[STAGE_POS + s, MOTOR, i], stages[STAGE_VEL + s, MOTOR, i]
            by_x, by_v = _slopes(arrays, i, x, v, slide[MOTOR, i])
            y = stages[STAGE_POS + s, LINK, i]
            d = x - y
            tangent = springs[STIFFNESS, i] + 3.0 * springs[CUBIC, i] * d * d
            wave = cyclic_slope(springs, i, y)
            for r in range(2):
                first, second = h * _WEIGHT[s, r], h * h * _SQUARE[s, r]
                own = by_x * second + by_v * first
                if soft:
                    spring = tangent * second + springs[DAMPING, i] * first
                    block[COUPLING + 2 * s + r] = spring
                    block[MOTOR_INVERSE + 2 * s + r] = own + spring + (parameters[at.ARMATURE, i] if s == r else 0.0)
                    system[s * n + i, r * n + i] += spring + springs[LINK_VISCOUS, i] * first + wave * second
                else:
                    system[s * n + i, r * n + i] += own
        if soft:
            a, b = block[MOTOR_INVERSE], block[MOTOR_INVERSE + 1]
            c, d = block[MOTOR_INVERSE + 2], block[MOTOR_INVERSE + 3]
            scale = 0.0 if stuck else 1.0 / (a * d - b * c)
            block[MOTOR_INVERSE], block[MOTOR_INVERSE + 1] = d * scale, -b * scale
            block[MOTOR_INVERSE + 2], block[MOTOR_INVERSE + 3] = -c * scale, a * scale
            for s in range(2):
                for r in range(2):
                    total = 0.0
                    for k in range(2):
                        for m in range(2):
                            inverse = block[MOTOR_INVERSE + 2 * k + m]
                            total += block[COUPLING + 2 * s + k] * inverse * block[COUPLING + 2 * m + r]
                    system[s * n + i, r * n + i] -= total
        if slide[LINK, i] == 0.0:
            for s in range(2):
                for j in range(2 * n):
                    system[s * n + i, j] = 0.0
                    system[j, s * n + i] = 0.0
                system[s * n + i, s * n + i] = 1.0


@kernel
def _residuals(arrays: at.ArmArrays, elastic: ElasticArrays, h: float, u0: FloatArray, u1: FloatArray) -> None:
    """Compute positions, velocities and residuals of both stages from their accelerations."""
    n = u0.shape[0]
    links, parameters = at.links_of(arrays), arrays.parameters
    springs, motion, stages = elastic.springs, elastic.motion, elastic.stages
    slide = motion[SLIDE]
    for s in range(2):
        position, velocity, acceleration = stages[STAGE_POS + s], stages[STAGE_VEL + s], stages[STAGE_ACC + s]
        residual = stages[STAGE_RESIDUAL + s]
        for side in range(2):
            for i in range(n):
                a0, a1 = stages[STAGE_ACC, side, i], stages[STAGE_ACC + 1, side, i]
                velocity[side, i] = motion[VEL, side, i] + h * (_WEIGHT[s, 0] * a0 + _WEIGHT[s, 1] * a1)
                position[side, i] = motion[POS, side, i] + h * (
                    _NODE[s] * motion[VEL, side, i] + h * (_SQUARE[s, 0] * a0 + _SQUARE[s, 1] * a1)
                )
        rnea_single(links, position[LINK], velocity[LINK], acceleration[LINK], residual[LINK], arrays.work)
        if arrays.scalars[at.PUSHED] != 0.0:
            take_outside_torque(arrays, residual[LINK])
        for i in range(n):
            x, v = position[MOTOR, i], velocity[MOTOR, i]
            own = parameters[at.ARMATURE, i] * acceleration[MOTOR, i] + parameters[at.OFFSET, i]
            own += motor_friction(arrays, i, x, v, slide[MOTOR, i])
            own -= u0[i] + _NODE[s] * (u1[i] - u0[i])
            if springs[STIFFNESS, i] > 0.0:
                d, w = x - position[LINK, i], velocity[LINK, i]
                torque = (springs[STIFFNESS, i] + springs[CUBIC, i] * d * d) * d + springs[DAMPING, i] * (v - w)
                residual[MOTOR, i] = own + torque
                residual[LINK, i] += springs[LINK_VISCOUS, i] * w + cyclic(springs, i, position[LINK, i]) - torque
                if abs(slide[LINK, i]) == 1.0:
                    residual[LINK, i] += slide[LINK, i] * springs[LINK_COULOMB, i]
            else:
                residual[MOTOR, i] = 0.0
                residual[LINK, i] += own


@kernel
def _correct(elastic: ElasticArrays) -> tuple[float, float]:
    """Take a Newton step of the accelerations; return its largest component, and the largest acceleration."""
    springs, slide, stages = elastic.springs, elastic.motion[SLIDE], elastic.stages
    blocks, right = elastic.blocks, elastic.right
    n = blocks.shape[0]
    for i in range(n):
        block = blocks[i]
        r0, r1 = stages[STAGE_RESIDUAL, MOTOR, i], stages[STAGE_RESIDUAL + 1, MOTOR, i]
        m0 = block[MOTOR_INVERSE] * r0 + block[MOTOR_INVERSE + 1] * r1
        m1 = block[MOTOR_INVERSE + 2] * r0 + block[MOTOR_INVERSE + 3] * r1
        for s in range(2):
            back = block[COUPLING + 2 * s] * m0 + block[COUPLING + 2 * s + 1] * m1
            right[s * n + i] = -stages[STAGE_RESIDUAL + s, LINK, i] - back if slide[LINK, i] != 0.0 else 0.0
        # The motor's own part; that of its link follows.
        stages[STAGE_RESIDUAL, MOTOR, i], stages[STAGE_RESIDUAL + 1, MOTOR, i] = -m0, -m1
    substitute(elastic.system, elastic.pivots, right)
    change = largest = 0.0
    for i in range(n):
        block = blocks[i]
        d0, d1 = right[i], right[n + i]
        if springs[STIFFNESS, i] > 0.0:
            c0 = block[COUPLING] * d0 + block[COUPLING + 1] * d1
            c1 = block[COUPLING + 2] * d0 + block[COUPLING + 3] * d1
            m0 = stages[STAGE_RESIDUAL, MOTOR, i] + block[MOTOR_INVERSE] * c0 + block[MOTOR_INVERSE + 1] * c1
            m1 = stages[STAGE_RESIDUAL + 1, MOTOR, i] + block[MOTOR_INVERSE + 2] * c0 + block[MOTOR_INVERSE + 3] * c1
        else:
            m0, m1 = d0, d1
        stages[STAGE_ACC, MOTOR, i] += m0
        stages[STAGE_ACC + 1, MOTOR, i] += m1
        stages[STAGE_ACC, LINK, i] += d0
        stages[STAGE_ACC + 1, LINK, i] += d1
        change = max(change, abs(m0), abs(m1), abs(d0), abs(d1))
        for s in range(2):
            largest = max(largest, abs(stages[STAGE_ACC + s, MOTOR, i]), abs(stages[STAGE_ACC + s, LINK, i]))
    return change, largest


@kernel
def gauss_step(arrays: at.ArmArrays, elastic: ElasticArrays, h: float, u0: FloatArray, u1: FloatArray) -> bool:
    """Compute positions and velocities after `h` in `stages[END:]`, with torque going linearly from `u0` to `u1`.

    `matrices[MASS]` is that of the links at the start, with the rotor inertia of rigid joints.  False if Newton's
    method does not converge.  Stuck sides stay stuck.
    """
    n = u0.shape[0]
    motion, stages = elastic.motion, elastic.stages
    for s in range(2):
        for side in range(2):
            for i in range(n):
                stages[STAGE_ACC + s, side, i] = motion[ACC, side, i]
    before, per_position = np.inf, 1.0 / (max(h, _NO_STEP_S) * max(h, _SHORT_S))
    done = False
    for k in range(_ITERATIONS):
        _residuals(arrays, elastic, h, u0, u1)
        if k == 0:
            _fill_system(arrays, elastic, h)
            if not factor(elastic.system, elastic.pivots):
                return False
        change, largest = _correct(elastic)
        settled = change > 0.5 * before and change <= _ROUNDING * largest + _MIN_ROUNDING * per_position
        if settled or change <= _TOLERANCE * largest + _MIN * per_position:
            done = True
            break
        before = change
    for side in range(2):
        for i in range(n):
            a0, a1 = stages[STAGE_ACC, side, i], stages[STAGE_ACC + 1, side, i]
            stages[END, side, i] = motion[POS, side, i] + h * (motion[VEL, side, i] + h * (_END[0] * a0 + _END[1] * a1))
            stages[END + 1, side, i] = motion[VEL, side, i] + 0.5 * h * (a0 + a1)
    return done
