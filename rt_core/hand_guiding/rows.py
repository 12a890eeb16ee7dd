"""Rows, columns and codes of the arrays that the kernels of zero-force control share."""

# Rows of the limits and gains (LIMIT_ROWS, n).
LOWER, UPPER, WALL_WIDTH, WALL_SPRING, WALL_DAMPER = 0, 1, 2, 3, 4
SPEED, DAMPER, BRAKE, TORQUE, TORQUE_RATE, HOLD_SPRING, HOLD_DAMPER, HOLD_REACH = 5, 6, 7, 8, 9, 10, 11, 12
MARGIN, JUMP, DISAGREEMENT = 13, 14, 15
MAX_DAMPING = 16  # with velocity measured; the next row: observed
LIMIT_ROWS = 18

# Rows of the state (STATE_ROWS, n).
Q, V, ACCELERATION, HOLD_AT, BEFORE = 0, 1, 2, 3, 4  # acceleration: the observer's
RESIDUAL, THRESHOLD, RESIDUAL_TIME, SHORT_TIME, MODEL, OUT, MEASURED = 5, 6, 7, 8, 9, 10, 11
HISTORY = 12  # torques of the cycles before, latest first
HISTORY_ROWS = 6
# integral of measured velocity less position; time for which the drive gives another torque
APART, UNFOLLOWED_TIME = HISTORY + HISTORY_ROWS, HISTORY + HISTORY_ROWS + 1
STATE_ROWS = HISTORY + HISTORY_ROWS + 2

# Rows of the scratch (SCRATCH_ROWS, n) beyond the mass matrix and the links' work rows: the model's torques, the torque
# of friction at rest and what compensates it in motion, the torque that acted, the change of velocity.
W_BIAS, W_WEIGHT, W_POSITION, W_FRICTION, W_SLACK, W_GIVEN, W_APPLIED, W_CHANGE, W_ZERO, W_WANTED = range(10)
SCRATCH_ROWS = 10

# Rows of the sample (SAMPLE_ROWS, n).
S_Q, S_DQ, S_TAU = 0, 1, 2
SAMPLE_ROWS = 3

# Scalars (SCALARS,): settings, then contents of the sample and state of the session.
FRICTION_SHARE, RESIDUAL_FILTER, DISCOUNT, DELAY, SOFT_SPEED, SHORT, UNFOLLOWED, FROZEN_AFTER = range(8)
HAS_DQ, HAS_TAU, FIRST, LATE, GUIDING_SHARE, BEFORE_SHARE, GRIP = range(8, 15)
# Time since the last sample [s]: in full, for the filters, and without torque meanwhile; and time for which measured
# torque has been constant to the bit.
SINCE, DT, STEP, FROZEN_TIME = range(15, 19)
SCALARS = 19

# What holds the arm, in the order in which it loosens.  HOLD: feedback.  WEIGHT: the model's torque of the last valid
# sample.  NOTHING: torque goes to zero.
HOLD, WEIGHT, NOTHING = range(3)

# Findings of a cycle, with joint, value and limit in `finding` (3,).
GOOD, UNUSABLE, ABSURD, JUMPED, FROZEN = range(5)
NOT_FOLLOWED, DISAGREEING, TOO_FAST, BEYOND, UNEXPLAINED, LIMITED = range(5, 11)  # most dangerous first

# Columns of the effects (C, EFFECT_WIDTH + n): law, shape (3), value, coordinate or -1; then the motor's weights.
E_LAW, E_SHAPE, E_VALUE, E_COORDINATE = 0, 1, 4, 5
EFFECT_WIDTH = 6
# Columns of the coordinates (K, COORDINATE_WIDTH + n); then the weights.
C_DRY, C_SLOPE, C_BREAKAWAY, C_DEADBAND, C_RISE = range(5)
COORDINATE_WIDTH = 5
