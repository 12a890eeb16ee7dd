"""Motion of an arm with springs through sticking and sliding on both sides, as in `sim_backend.arm.integrate`."""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.forward import mass_and_bias
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm._outside import take_outside_torque
from sim_backend.arm.elastic._gauss import cyclic, gauss_step, motor_friction
from sim_backend.arm.elastic.layout import (
    ACC,
    CARRIED,
    CUBIC,
    DAMPING,
    END,
    LINK,
    LINK_COULOMB,
    LINK_VISCOUS,
    LOSS,
    MOTOR,
    POS,
    SLIDE,
    STIFFNESS,
    VEL,
    ElasticArrays,
)
from sim_backend.arm.equations import accelerate
from sim_backend.arm.friction import dry_level
from sim_backend.arm.integrate import MAX_PIECES, first_zero

#: Zero crossings handled exactly in one substep; beyond them a crossing side simply sticks.
_MAX_EVENTS = 16


@kernel
def settle(arrays: at.ArmArrays, elastic: ElasticArrays) -> bool:
    """Update modes, accelerations and friction, in `motion` and, of motors, `state`.

    Overloaded stuck sides start to slide.  `matrices[MASS]` gets the rotor inertia of rigid joints on its diagonal.
    False if inertia is not positive definite.
    """
    parameters, terms, scalars = arrays.parameters, arrays.terms[0], arrays.scalars
    state, scratch, springs, motion = arrays.state, arrays.scratch, elastic.springs, elastic.motion
    n = state.shape[1]
    mass, copy = arrays.matrices[at.MASS], arrays.matrices[at.COPY]
    force, level, hold, drag = scratch[at.TORQUE], scratch[at.LEVEL], scratch[at.POSITION], scratch[at.VELOCITY]
    slide, loss, position, velocity = motion[SLIDE], motion[LOSS], motion[POS], motion[VEL]
    mass_and_bias(at.links_of(arrays), position[LINK], velocity[LINK], mass, force, arrays.work)
    if scalars[at.PUSHED] != 0.0:
        take_outside_torque(arrays, force)
    smooth_end, dry_end = int(scalars[at.SMOOTH_END]), int(scalars[at.DRY_END])
    for i in range(n):
        x, v, w = position[MOTOR, i], velocity[MOTOR, i], velocity[LINK, i]
        own = motor_friction(arrays, i, x, v, 0.0)
        dry = dry_level(terms, smooth_end, dry_end, i, v, 0.0)
        d = x - position[LINK, i]
        soft = springs[STIFFNESS, i] > 0.0
        if soft:
            torque = (springs[STIFFNESS, i] + springs[CUBIC, i] * d * d) * d + springs[DAMPING, i] * (v - w)
            motion[CARRIED, MOTOR, i] = torque
            _let_slide(parameters[at.DRY, i] != 0.0, v, slide[MOTOR], i)
            left = state[at.U, i] - parameters[at.OFFSET, i] - torque - own
            if slide[MOTOR, i] == 0.0 and abs(left) > parameters[at.HOLD, i]:
                slide[MOTOR, i] = np.sign(left)
            if slide[MOTOR, i] == 0.0:
                motion[ACC, MOTOR, i] = 0.0
                loss[MOTOR, i] = own + left
            else:
                rubbing = slide[MOTOR, i] * dry if slide[MOTOR, i] != 2.0 else 0.0
                motion[ACC, MOTOR, i] = (left - rubbing) / parameters[at.ARMATURE, i]
                loss[MOTOR, i] = own + rubbing
            drag[i] = springs[LINK_VISCOUS, i] * w + cyclic(springs, i, position[LINK, i])
            level[i] = hold[i] = springs[LINK_COULOMB, i]
            force[i] = torque - drag[i] - force[i]
        else:
            mass[i, i] += parameters[at.ARMATURE, i]
            drag[i], level[i], hold[i] = own, dry, parameters[at.HOLD, i]
            force[i] = state[at.U, i] - parameters[at.OFFSET, i] - own - force[i]
        _let_slide(springs[LINK_COULOMB, i] > 0.0 if soft else parameters[at.DRY, i] != 0.0, w, slide[LINK], i)
    for _ in range(n + 1):
        for i in range(n):
            for j in range(n):
                copy[i, j] = mass[i, j]
        if not accelerate(copy, force, slide[LINK], level, motion[ACC, LINK]):
            return False
        released = False
        for i in range(n):
            if slide[LINK, i] == 0.0:
                held = force[i]
                for j in range(n):
                    held -= mass[i, j] * motion[ACC, LINK, j]
                loss[LINK, i] = drag[i] + held
                if abs(held) > hold[i]:
                    slide[LINK, i] = np.sign(held)
                    released = True
            else:
                loss[LINK, i] = drag[i]
                if slide[LINK, i] != 2.0:
                    loss[LINK, i] += slide[LINK, i] * level[i]
        if not released:
            break
    for i in range(n):
        if springs[STIFFNESS, i] > 0.0:
            motion[CARRIED, LINK, i] = motion[CARRIED, MOTOR, i] - loss[LINK, i]
        else:
            for row in (POS, VEL, ACC, SLIDE, LOSS):
                motion[row, MOTOR, i] = motion[row, LINK, i]
            torque = (
                state[at.U, i] - parameters[at.OFFSET, i] - loss[LINK, i]
                - parameters[at.ARMATURE, i] * motion[ACC, LINK, i]
            )  # fmt: skip
            motion[CARRIED, MOTOR, i] = motion[CARRIED, LINK, i] = torque
        state[at.X, i], state[at.V, i], state[at.A, i] = (
            motion[POS, MOTOR, i], motion[VEL, MOTOR, i], motion[ACC, MOTOR, i],
        )  # fmt: skip
        state[at.MODE, i], state[at.FRICTION, i] = slide[MOTOR, i], loss[MOTOR, i]
    return True


@kernel
def _let_slide(dry: bool, v: float, slide: FloatArray, i: int) -> None:
    """Keep the mode of a side with dry friction, or start with that of its velocity; without, it is free."""
    if not dry:
        slide[i] = 2.0
    elif slide[i] == 2.0:
        slide[i] = np.sign(v)


@kernel
def _piece(terms: FloatArray, scalars: FloatArray, motion: FloatArray, h: float, left: float) -> float:
    """Return the share of a substep `h`, at most `left`, in which motors cross half a width of steep friction."""
    if scalars[at.STEEP] == 0.0:
        return left
    length = left * h
    for i in range(terms.shape[2]):
        v, a = motion[VEL, MOTOR, i], motion[ACC, MOTOR, i]
        if motion[SLIDE, MOTOR, i] == 0.0 or a == 0.0:
            continue
        for t in range(terms.shape[0]):
            change = 0.5 * terms[t, at.WIDTH, i]
            if change == 0.0:
                continue
            if abs(v) >= terms[t, at.REACH, i]:
                if v * a >= 0.0:
                    continue
                change += abs(v) - terms[t, at.REACH, i]
            length = min(length, change / abs(a))
    return min(max(length / h, 1.0 / MAX_PIECES), left)


@kernel
def _first_to_stop(springs: FloatArray, motion: FloatArray, speed: FloatArray, h: float) -> tuple[float, int, int]:
    """Return the earliest share of a step at which a sliding side stops, that side and its joint; share 2: none."""
    first, side_first, joint = 2.0, 0, 0
    for side in range(2):
        for i in range(speed.shape[1]):
            slide = motion[SLIDE, side, i]
            if abs(slide) != 1.0 or slide * speed[side, i] >= 0.0 or (side == MOTOR and springs[STIFFNESS, i] == 0.0):
                continue
            share = 0.0
            if slide * motion[VEL, side, i] > 0.0 or slide * motion[ACC, side, i] > 0.0:
                share = first_zero(motion[VEL, side, i], h * motion[ACC, side, i], speed[side, i])
            if share < first:
                first, side_first, joint = share, side, i
    return first, side_first, joint


@kernel
def elastic_substep(
    arrays: at.ArmArrays, elastic: ElasticArrays, h: float, target: FloatArray, jump: FloatArray
) -> bool:
    """Integrate over `h` while motor torque ramps to `target`; False if no step is short enough.

    `jump` (n,) is as in `sim_backend.arm.integrate.substep`.
    """
    n = target.shape[0]
    state, springs, motion, stages = arrays.state, elastic.springs, elastic.motion, elastic.stages
    start, u0, u1 = arrays.vectors[5], arrays.vectors[6], arrays.vectors[7]
    for i in range(n):
        start[i] = state[at.U, i]
    done, events = 0.0, 0
    while done < 1.0:
        left = 1.0 - done
        part = _piece(arrays.terms[0], arrays.scalars, motion, h, left)
        side, joint, stops = 0, 0, False
        for attempt in range(64):
            last = part >= left
            for i in range(n):
                u0[i] = state[at.U, i]
                u1[i] = target[i] if last else start[i] + (done + part) * (target[i] - start[i])
            good = gauss_step(arrays, elastic, part * h, u0, u1)
            if not good:  # too far for Newton's method
                if part <= 1.0 / MAX_PIECES or attempt == 63:
                    return False
                part, stops = 0.5 * part, False
                continue
            if stops or events >= _MAX_EVENTS:
                break
            share, side, joint = _first_to_stop(springs, motion, stages[END + 1], part * h)
            if share > 1.0:
                break
            part, stops = max(share, 0.0) * part, True  # not a zero with a sign
            events += 1
        done = 1.0 if part >= left else done + part
        for i in range(n):
            state[at.U, i] = u1[i]
            for s in range(2):
                motion[POS, s, i], motion[VEL, s, i] = stages[END, s, i], stages[END + 1, s, i]
                here = stops and s == side and i == joint
                slide = motion[SLIDE, s, i]
                if abs(slide) == 1.0 and (here or slide * motion[VEL, s, i] <= 0.0):
                    motion[SLIDE, s, i] = motion[VEL, s, i] = 0.0
                    if s == LINK and springs[STIFFNESS, i] == 0.0:
                        motion[SLIDE, MOTOR, i] = motion[VEL, MOTOR, i] = 0.0
            if jump[i] != 0.0 and (motion[SLIDE, MOTOR, i] == 0.0 or done >= 1.0):
                state[at.U, i] += jump[i]
                start[i] += jump[i]
                target[i] += jump[i]
                jump[i] = 0.0
        if not settle(arrays, elastic):
            return False
    return True
