"""Drive, sensors and integration of an elastic arm: one compiled call for any number of samples.

Drive and feed-forward are those of `sim_backend.arm.stepper`, on the motors' encoders, without a model of the springs.
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.arm.elastic import layout as el
from sim_backend.arm.elastic._motion import elastic_substep
from sim_backend.arm.elastic._motion import settle as settle
from sim_backend.arm.stepper import control, control_error, measure, setpoint
from sim_backend.arm.temperature import warm
from sim_backend.arm.trajectory import MotionArrays


@kernel
def measure_elastic(arrays: at.ArmArrays, elastic: el.ElasticArrays, noise: FloatArray, out: FloatArray) -> None:
    """Compute one sample: `q, dq` of the links, `q_motor` and `current` of the motors, `tau` of the measured side."""
    parameters, springs, motion = arrays.parameters, elastic.springs, elastic.motion
    measure(arrays, noise, out)
    for i in range(parameters.shape[1]):
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
    arrays: at.ArmArrays, elastic: el.ElasticArrays, motion: MotionArrays, sample: int, noise: FloatArray,
    out: FloatArray,
) -> int:  # fmt: skip
    """Write samples `sample, sample + 1, ...` to `out` (N, ELASTIC_OUT_ROWS, n); return how many before it diverged.

    As `sim_backend.arm.stepper.advance` otherwise.
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
                if not elastic_substep(arrays, elastic, h, target, jump):
                    return k
            if not _is_finite(elastic.motion):
                return k
        measure_elastic(arrays, elastic, noise[k], out[k])
    return int(out.shape[0])
