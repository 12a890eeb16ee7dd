"""Layout of the arrays that the kernels of an elastic arm add to those of `sim_backend.arm.layout`."""

from typing import NamedTuple

from rt_core.types import FloatArray, IntArray
from sim_backend.arm import layout

# Sides of a joint.
MOTOR, LINK = 0, 1

# Rows of the motion (MOTION_ROWS, 2, n) of both sides, in joint coordinates.  A rigid joint's motor follows its link.
POS, VEL, ACC = 0, 1, 2
SLIDE = 3  # -1, 1: slides that way; 0: stuck; 2: free of dry friction
LOSS = 4  # friction of that side
CARRIED = 5  # torque of the spring, and the torque behind it, on the link
MOTION_ROWS = 6

# Rows of the springs (SPRING_ROWS, n).  A joint whose stiffness is zero is rigid.
STIFFNESS, CUBIC, DAMPING, LINK_VISCOUS, LINK_COULOMB = 0, 1, 2, 3, 4
LINK_SINE, LINK_COSINE = 5, 6  # cyclic friction over the link's position
SENSOR_BEHIND = 7  # whether torque is measured behind the springs
SPRING_ROWS = 8

# Layers of the scratch of one step (STAGE_LAYERS, 2, n), two stages each but for the last.
STAGE_ACC, STAGE_POS, STAGE_VEL, STAGE_RESIDUAL = 0, 2, 4, 6
END = 8  # position and velocity of both sides at the end of the step: layers 8 and 9
STAGE_LAYERS = 10

# Columns of the blocks (n, BLOCK_COLUMNS): 2 by 2 matrices of one joint, row-major.
COUPLING, MOTOR_INVERSE = 0, 4
BLOCK_COLUMNS = 8

# Rows of one output sample after those of `sim_backend.arm.layout`: exact values of motors and springs.
OUT_MOTOR_Q, OUT_MOTOR_DQ, OUT_MOTOR_DDQ, OUT_SPRING, OUT_SENSOR, OUT_LINK_FRICTION = range(
    layout.OUT_ROWS, layout.OUT_ROWS + 6
)
ELASTIC_OUT_ROWS = layout.OUT_ROWS + 6


class ElasticArrays(NamedTuple):
    """Arrays that an elastic arm has besides `sim_backend.arm.layout.ArmArrays`; all but the first two are scratch."""

    springs: FloatArray  # (SPRING_ROWS, n)
    motion: FloatArray  # (MOTION_ROWS, 2, n)
    stages: FloatArray  # (STAGE_LAYERS, 2, n)
    blocks: FloatArray  # (n, BLOCK_COLUMNS)
    system: FloatArray  # (2n, 2n)
    pivots: IntArray  # (2n,)
    right: FloatArray  # (2n,)
