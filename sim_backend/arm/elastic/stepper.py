"""Drive, sensors and integration of an elastic arm: one compiled call for any number of samples.

Drive and feed-forward are those of `sim_backend.arm.stepper`, on the motors' encoders, without a model of the springs.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.types import FloatArray, IntArray
from sim_backend.arm import layout as at
from sim_backend.arm.elastic import layout as el
from sim_backend.arm.elastic._motion import elastic_substep, settle
from sim_backend.arm.stepper import SCRATCH, control, measure, setpoint
from sim_backend.arm.temperature import warm


@kernel
def measure_elastic(
    parameters: FloatArray, springs: FloatArray, coupling: FloatArray, scalars: FloatArray, state: FloatArray,
    motion: FloatArray, noise: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Compute one sample: `q, dq` of the links, `q_motor` and `current` of the motors, `tau` of the measured side."""
    measure(parameters, coupling, scalars, state, noise, out)
    for i in range(state.shape[1]):
        q, dq = motion[el.POS, el.LINK, i], motion[el.VEL, el.LINK, i]
        out[at.OUT_TRUE_Q, i], out[at.OUT_TRUE_DQ, i], out[at.OUT_TRUE_DDQ, i] = q, dq, motion[el.ACC, el.LINK, i]
        step = parameters[at.RESOLUTION, i]
        out[at.OUT_Q, i] = step * np.floor(q / step + 0.5) if step > 0.0 else q
        out[at.OUT_DQ, i] = dq + parameters[at.VELOCITY_NOISE, i] * noise[2, i]
        if springs[el.SENSOR_BEHIND, i] != 0.0:
            out[at.OUT_TAU, i] = motion[el.CARRIED, el.LINK, i] + parameters[at.TAU_NOISE, i] * noise[0, i]
        out[el.OUT_MOTOR_Q, i], out[el.OUT_MOTOR_DQ, i] = motion[el.POS, el.MOTOR, i], motion[el.VEL, el.MOTOR, i]
        out[el.OUT_MOTOR_DDQ, i], out[el.OUT_LINK_FRICTION, i] = (
            motion[el.ACC, el.MOTOR, i],
            motion[el.LOSS, el.LINK, i],
        )
        out[el.OUT_SPRING, i], out[el.OUT_SENSOR, i] = motion[el.CARRIED, el.MOTOR, i], motion[el.CARRIED, el.LINK, i]


@kernel
def _is_finite(motion: FloatArray) -> bool:
    total = 0.0
    for row in (el.POS, el.VEL, el.ACC):
        for side in range(2):
            for i in range(motion.shape[2]):
                total += motion[row, side, i]
    return bool(np.isfinite(total))


@kernel
def advance_elastic(
    arm: FloatArray, gravity: FloatArray, parameters: FloatArray, springs: FloatArray, terms: FloatArray,
    coupling: FloatArray, scalars: FloatArray, table: FloatArray, centre: FloatArray, series: FloatArray, period: float,
    state: FloatArray, motion: FloatArray, vectors: FloatArray, matrices: FloatArray, stages: FloatArray,
    blocks: FloatArray, system: FloatArray, pivots: IntArray, right: FloatArray, work: FloatArray, sample: int,
    noise: FloatArray, out: FloatArray,
) -> int:  # fmt: skip
    """Write samples `sample, sample + 1, ...` to `out` (N, ELASTIC_OUT_ROWS, n); return how many before it diverged.

    `springs` (SPRING_ROWS, n) and `motion` (MOTION_ROWS, 2, n) are those of `sim_backend.arm.elastic.layout`; `stages`
    (STAGE_LAYERS, 2, n), `blocks` (n, BLOCK_COLUMNS), `system` (2n, 2n), `pivots` and `right` (2n,) are scratch.  All
    others are as in `sim_backend.arm.stepper.advance`.
    """
    n = centre.shape[0]
    substeps = int(scalars[at.SUBSTEPS])
    h = scalars[at.PERIOD] / substeps
    error, target, jump, scratch = vectors[16], vectors[17], vectors[19], vectors[SCRATCH:]
    for k in range(out.shape[0]):
        index = sample + k
        if index > 0:
            warm(parameters, terms[0], scalars, state, scratch[at.LEVEL])
            for s in range(substeps):
                for i in range(n):
                    error[i] = (
                        state[at.V_SET, i] + parameters[at.KP, i] * (state[at.X_SET, i] - state[at.X, i])
                        - state[at.V, i]
                    )  # fmt: skip
                t = ((index - 1) * substeps + s + 1) * h
                setpoint(
                    arm, gravity, parameters, terms[1], coupling, scalars, table, centre, series, period, t, state,
                    vectors, work,
                )  # fmt: skip
                control(parameters, state, h, error, target, jump)
                if not elastic_substep(
                    arm, gravity, parameters, springs, terms[0], scalars, state, motion, h, target, jump, vectors,
                    matrices, stages, blocks, system, pivots, right, scratch, work,
                ):  # fmt: skip
                    return k
            if not _is_finite(motion):
                return k
        measure_elastic(parameters, springs, coupling, scalars, state, motion, noise[k], out[k])
    return int(out.shape[0])


@kernel
def refresh_elastic(
    arm: FloatArray, gravity: FloatArray, parameters: FloatArray, springs: FloatArray, terms: FloatArray,
    scalars: FloatArray, state: FloatArray, motion: FloatArray, vectors: FloatArray, matrices: FloatArray,
    work: FloatArray,
) -> bool:  # fmt: skip
    """Update modes and accelerations of the present state, after a change of `parameters` or `springs`."""
    return settle(
        arm, gravity, parameters, springs, terms[0], scalars, state, motion, matrices, vectors[SCRATCH:], work
    )
