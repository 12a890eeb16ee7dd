"""Layout of the arrays of the online estimator of an elastic joint."""

from typing import NamedTuple

from rt_core.types import FloatArray, IntArray

# Scalars.
STEP, LAST_T, TIME, MAX_GAP, MIN_VELOCITY, SMOOTHING, LIMIT, INERTIA, ZERO, FASTEST, RATIO = range(11)
ALPHA, BETA, CONSTANT, LAM, A_TORQUE, A_SIGMA, A_BLOCK, A_POWER, INFLATION, ERROR2, MEAN_ERROR2 = range(11, 22)
A_RECENT, CHANGED, FORGOTTEN, LOW, HIGH, LEFT, A_RANGE, TOP_VELOCITY, MEAN_STEP, A_STEP = range(22, 32)
OUTLIERS, TAKEN = 32, 33
SCALARS = 34
# Integers.
LENGTH, LENGTH2, FACTOR, RING_AT, SIGNALS_AT, COUNT, CLEAN, GOOD, SINCE, SHORT_AGE, WINDOW = range(11)
FRAMES, MASKED, REPEATED, GAPS, UPDATES, REJECTED, REJECTED_RUN, MAX_REJECTED, BLOCK_ROWS, SETTLE_ROWS = range(11, 21)
ROWS, MAX_EXCESS, CHANGE_ROWS = 21, 22, 23
INTEGERS = 24
#: Low-passed signals of a row: deflection, its cube, speeds of motor and link, sign, torques of motor and sensor.
SIGNALS = 7
#: Kinds of parameters, by `kinds`.
K1, K2, B_IN, B_IN_D, B_OUT, B_OUT_C = range(6)
#: Smallest root of information in the window of the excitation report, in units of the prior's.
SHORT_FLOOR = 1e-4


class JointArrays(NamedTuple):
    """Arrays of one joint; `r` rows, of the motor and of a sensor, and `p` parameters."""

    s: FloatArray  # (SCALARS,)
    ints: IntArray  # (INTEGERS,)
    kinds: IntArray  # (p,)
    taps: FloatArray  # of the filters before the cube
    low: FloatArray  # of the low-pass of the rows
    ring: FloatArray  # latest samples
    signals: FloatArray  # latest filtered signals
    last: FloatArray  # channels of the last frame
    theta: FloatArray  # (p,), in `units`
    R: FloatArray  # (p, width) root of the information
    short: FloatArray  # (2, p, width) windows of the excitation report
    level: FloatArray  # (r, LEVELS) noise
    power: FloatArray  # (p,)
    D: FloatArray  # (r + p, width) scratch
    scratch: FloatArray  # (3, width)
    units: FloatArray  # (p,) initial spread
    start: FloatArray  # (p,) initial values, in `units`
