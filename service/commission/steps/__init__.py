"""The steps of a commissioning, in order.

Where to start: each module defines a `Step` (`service.commission.context`) with its function. `_signals` checks the
robot file and the frames at rest, `joints` signs and units by small motions, `_friction` measures friction at constant
speeds, `_payload` torque constants, `_design` designs the trajectories, `_run` runs and records them, and `_model`
identifies and validates. A step returns a summary and a result, which the folder keeps for the later ones.
"""

from service.commission.context import Step
from service.commission.steps._design import DESIGN
from service.commission.steps._friction import FRICTION
from service.commission.steps._model import IDENTIFY, VALIDATE
from service.commission.steps._payload import PAYLOAD
from service.commission.steps._run import RUN
from service.commission.steps._signals import ROBOT, SIGNALS
from service.commission.steps.joints import JOINTS

#: In order; the report shows their results.
STEPS: tuple[Step, ...] = (ROBOT, SIGNALS, JOINTS, FRICTION, PAYLOAD, DESIGN, RUN, IDENTIFY, VALIDATE)

__all__ = ["STEPS", "joints"]
