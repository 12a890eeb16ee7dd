"""Temperatures of a simulated arm's joints, and friction that follows them.

Each joint is one thermal mass, heated by the motor's copper loss and by friction, that follows the ambient temperature
with a time constant.  Temperature and friction terms are constant within a sample period.
"""

from __future__ import annotations

from rt_core.jit import kernel
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.types import FloatArray
from sim_backend.arm.equations import levels
from sim_backend.arm.friction import GAUSSIAN_REACH, dry_level
from sim_backend.arm.layout import (
    AMBIENT,
    CONSTANT,
    CONSTANT_AT_REFERENCE,
    CONSTANT_SLOPE,
    COOLING,
    DRY_END,
    FRICTION,
    FRICTION_HEATING,
    HEATING,
    HOLD,
    PLAIN_END,
    REACH,
    SMOOTH_END,
    TEMPERATURE,
    VALUE,
    VALUE_AT_REFERENCE,
    VALUE_SLOPE,
    VISCOUS,
    WARM,
    WIDTH,
    U,
    V,
)

#: A velocity constant that falls with temperature stays above this share of its value at the reference.
_MIN_SHARE = 0.1


@kernel
def follow_temperature(
    parameters: FloatArray, terms: FloatArray, scalars: FloatArray, state: FloatArray, level: FloatArray
) -> None:
    """Update the friction `terms` (T, TERM_ROWS, n) and what depends on them to the present temperatures.

    Negative coefficients of friction are clamped to zero.
    """
    plain_end, smooth_end, dry_end = int(scalars[PLAIN_END]), int(scalars[SMOOTH_END]), int(scalars[DRY_END])
    for i in range(state.shape[1]):
        warmth = state[TEMPERATURE, i] - REFERENCE_TEMPERATURE
        for t in range(terms.shape[0]):
            slope = terms[t, VALUE_SLOPE, i]
            if slope != 0.0:
                terms[t, VALUE, i] = max(terms[t, VALUE_AT_REFERENCE, i] + slope * warmth, 0.0)
            slope = terms[t, CONSTANT_SLOPE, i]
            if slope != 0.0:
                reference = terms[t, CONSTANT_AT_REFERENCE, i]
                constant = max(reference + slope * warmth, _MIN_SHARE * reference)
                terms[t, CONSTANT, i] = constant
                if terms[t, WIDTH, i] > 0.0:
                    terms[t, WIDTH, i], terms[t, REACH, i] = constant, GAUSSIAN_REACH * constant
        viscous = 0.0
        for t in range(plain_end):
            viscous += terms[t, VALUE, i]
        parameters[VISCOUS, i] = viscous
        parameters[HOLD, i] = dry_level(terms, smooth_end, dry_end, i, 0.0, 0.0)
    levels(terms, scalars, state[V], level)


@kernel
def warm(parameters: FloatArray, terms: FloatArray, scalars: FloatArray, state: FloatArray, level: FloatArray) -> None:
    """Update temperatures for the next sample period, from the heat at its start, and friction."""
    for i in range(state.shape[1]):
        heat = parameters[HEATING, i] * state[U, i] * state[U, i]
        heat += scalars[FRICTION_HEATING] * max(state[FRICTION, i] * state[V, i], 0.0)
        goal = scalars[AMBIENT] + heat
        state[TEMPERATURE, i] = goal + (state[TEMPERATURE, i] - goal) * scalars[COOLING]
    if scalars[WARM] != 0.0:
        follow_temperature(parameters, terms, scalars, state, level)
