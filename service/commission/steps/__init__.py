"""The steps of a commissioning, in order."""

from service.commission.context import Step
from service.commission.steps._description import ROBOT
from service.commission.steps._design import DESIGN
from service.commission.steps._friction import FRICTION
from service.commission.steps._model import IDENTIFY, VALIDATE
from service.commission.steps._payload import PAYLOAD
from service.commission.steps._run import RUN
from service.commission.steps._signals import SIGNALS
from service.commission.steps.joints import JOINTS

#: The report is made of what these find.
STEPS: tuple[Step, ...] = (ROBOT, SIGNALS, JOINTS, FRICTION, PAYLOAD, DESIGN, RUN, IDENTIFY, VALIDATE)

__all__ = ["STEPS"]
