"""Layout of the packed arrays of a simulated arm's kernels."""

from typing import NamedTuple

from rt_core.jit import kernel
from rt_core.model.dynamics import Links
from rt_core.types import FloatArray, IntArray

# Rows of the state (ROWS, n): motor coordinates referred to the joint side.
X, V, A, U, MODE, FRICTION, INTEGRAL, TEMPERATURE, X_SET, V_SET, FEED = range(11)
STATE_ROWS = 11

# Rows of the parameters (PARAMETER_ROWS, n).
ARMATURE, VISCOUS, HOLD, DRY, OFFSET = 0, 1, 2, 3, 4  # the arm's own (offset: motor side); see `friction`
FEED_ARMATURE, FEED_VISCOUS, FEED_HOLD, FEED_OFFSET = 5, 6, 7, 8  # the drive's model of it
LIMIT, KD, KP, KI = 9, 10, 11, 12
RESOLUTION, MOTOR_RESOLUTION, RATIO, MOTOR_OFFSET, CURRENT = 13, 14, 15, 16, 17
TAU_NOISE, CURRENT_NOISE, VELOCITY_NOISE, HEATING = 18, 19, 20, 21
PUSH_POINT, PUSH_FORCE, PUSH_MOMENT = 22, 25, 28  # three rows each: link, base and base coordinates
PARAMETER_ROWS = 31

# Rows of one friction term in the terms (2, T, TERM_ROWS, n): of the arm itself, and of the drive's model of it.
CODE, VALUE, CONSTANT, EXPONENT, SMOOTHING, WIDTH, REACH, RATE = range(8)
VALUE_AT_REFERENCE, VALUE_SLOPE, CONSTANT_AT_REFERENCE, CONSTANT_SLOPE = range(8, 12)  # by temperature, per kelvin
TERM_ROWS = 12

# Scalars (SCALARS,).
PERIOD, SUBSTEPS, FEEDFORWARD, COUPLED, AMBIENT, COOLING = 0, 1, 2, 3, 4, 5
PLAIN_END, SMOOTH_END, DRY_END = 6, 7, 8  # ends of the kinds of friction terms; see `friction`
VARYING, FEED_VARYING, LOADED, STEEP, BASE_RATE = 9, 10, 11, 12, 13
PUSHED = 14  # whether outside forces act
WARM, FRICTION_HEATING = 15, 16  # whether friction follows temperature; kelvins a watt
SCALARS = 17

# Rows of the drive's and the integrator's vectors (VECTORS, n).
VECTORS = 20

# Rows of the integrator's scratch (SCRATCH_ROWS, n).
POSITION, VELOCITY, TORQUE = 0, 1, 2  # joint coordinates
DRAG, BIAS, LEVEL, LOAD, WEIGHT, LOAD_BIAS, SIDE = 3, 4, 5, 6, 7, 8, 9
SCRATCH_ROWS = 10

# Scratch matrices (MATRICES, n, n).
MASS, COPY, PRODUCT, LOAD_MASS = 0, 1, 2, 3
MATRICES = 4

# Rows of one output sample (OUT_ROWS, n): measured channels, then exact values.
OUT_Q, OUT_DQ, OUT_CURRENT, OUT_TAU, OUT_Q_MOTOR, OUT_TEMPERATURE, OUT_SETPOINT = range(7)
OUT_TRUE_Q, OUT_TRUE_DQ, OUT_TRUE_DDQ, OUT_TRUE_TAU, OUT_TRUE_FRICTION = range(7, 12)
OUT_ROWS = 12


class ArmArrays(NamedTuple):
    """Arrays of an arm that all kernels share; rows and entries are those above."""

    arm: FloatArray  # (n, 47) geometry and link parameters side by side
    gravity: FloatArray  # (3,)
    parameters: FloatArray
    terms: FloatArray
    coupling: FloatArray  # (2, n, n) the coupling and its inverse
    scalars: FloatArray
    state: FloatArray
    vectors: FloatArray
    matrices: FloatArray
    scratch: FloatArray
    pivots: IntArray  # (n,)
    work: FloatArray  # (n, FORWARD_WORK)


@kernel
def links_of(arrays: ArmArrays) -> Links:
    """Return the links of the arm."""
    return Links(arrays.arm[:, :37], arrays.gravity, arrays.arm[:, 37:])
