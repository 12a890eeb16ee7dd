"""Temperatures of a simulated arm's joints, and friction that follows them.

Each joint is one thermal mass, heated by the motor's copper loss and by friction, that follows the ambient temperature
with a time constant.  Temperature and friction terms are constant within a sample period.
"""

from rt_core.jit import kernel
from rt_core.model.friction import REFERENCE_TEMPERATURE
from sim_backend.arm import layout as at
from sim_backend.arm.equations import levels
from sim_backend.arm.friction import GAUSSIAN_REACH, dry_level

#: A velocity constant that falls with temperature stays above this share of its value at the reference.
_MIN_SHARE = 0.1


@kernel
def follow_temperature(arrays: at.ArmArrays) -> None:
    """Update the arm's friction terms and what depends on them to the present temperatures.

    Negative coefficients of friction are clamped to zero.
    """
    parameters, terms, scalars, state = arrays.parameters, arrays.terms[0], arrays.scalars, arrays.state
    plain_end, smooth_end, dry_end = int(scalars[at.PLAIN_END]), int(scalars[at.SMOOTH_END]), int(scalars[at.DRY_END])
    for i in range(state.shape[1]):
        warmth = state[at.TEMPERATURE, i] - REFERENCE_TEMPERATURE
        for t in range(terms.shape[0]):
            slope = terms[t, at.VALUE_SLOPE, i]
            if slope != 0.0:
                terms[t, at.VALUE, i] = max(terms[t, at.VALUE_AT_REFERENCE, i] + slope * warmth, 0.0)
            slope = terms[t, at.CONSTANT_SLOPE, i]
            if slope != 0.0:
                reference = terms[t, at.CONSTANT_AT_REFERENCE, i]
                constant = max(reference + slope * warmth, _MIN_SHARE * reference)
                terms[t, at.CONSTANT, i] = constant
                if terms[t, at.WIDTH, i] > 0.0:
                    terms[t, at.WIDTH, i], terms[t, at.REACH, i] = constant, GAUSSIAN_REACH * constant
        viscous = 0.0
        for t in range(plain_end):
            viscous += terms[t, at.VALUE, i]
        parameters[at.VISCOUS, i] = viscous
        parameters[at.HOLD, i] = dry_level(terms, smooth_end, dry_end, i, 0.0, 0.0)
    levels(arrays, state[at.V])


@kernel
def warm(arrays: at.ArmArrays) -> None:
    """Update temperatures for the next sample period, from the heat at its start, and friction."""
    parameters, scalars, state = arrays.parameters, arrays.scalars, arrays.state
    for i in range(state.shape[1]):
        heat = parameters[at.HEATING, i] * state[at.U, i] * state[at.U, i]
        heat += scalars[at.FRICTION_HEATING] * max(state[at.FRICTION, i] * state[at.V, i], 0.0)
        goal = scalars[at.AMBIENT] + heat
        state[at.TEMPERATURE, i] = goal + (state[at.TEMPERATURE, i] - goal) * scalars[at.COOLING]
    if scalars[at.WARM] != 0.0:
        follow_temperature(arrays)
