"""Where everything is in the packed arrays of a simulated arm's kernels."""

from __future__ import annotations

# Rows of the state (ROWS, n): motor coordinates referred to the joint side.
X, V, A, U, MODE, FRICTION, INTEGRAL, TEMPERATURE, X_SET, V_SET, FEED = range(11)
STATE_ROWS = 11

# Rows of the parameters (PARAMETER_ROWS, n).
ARMATURE, VISCOUS, COULOMB, OFFSET = 0, 1, 2, 3  # the arm's own (offset: motor side)
FEED_ARMATURE, FEED_VISCOUS, FEED_COULOMB, FEED_OFFSET = 4, 5, 6, 7  # the drive's model of it
LIMIT, KD, KP, KI = 8, 9, 10, 11
RESOLUTION, MOTOR_RESOLUTION, RATIO, MOTOR_OFFSET, CURRENT = 12, 13, 14, 15, 16
TAU_NOISE, CURRENT_NOISE, VELOCITY_NOISE, HEATING = 17, 18, 19, 20
PARAMETER_ROWS = 21

# Scalars (SCALARS,).
PERIOD, SUBSTEPS, FEEDFORWARD, COUPLED, AMBIENT, COOLING = 0, 1, 2, 3, 4, 5
SCALARS = 6

# Rows of one output sample (OUT_ROWS, n): measured channels, then exact values.
OUT_Q, OUT_DQ, OUT_CURRENT, OUT_TAU, OUT_Q_MOTOR, OUT_TEMPERATURE, OUT_SETPOINT = range(7)
OUT_TRUE_Q, OUT_TRUE_DQ, OUT_TRUE_DDQ, OUT_TRUE_TAU, OUT_TRUE_FRICTION = range(7, 12)
OUT_ROWS = 12
