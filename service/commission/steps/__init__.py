"""The steps of a commissioning, in order."""

from service.commission.context import Step
from service.commission.steps.description import ROBOT
from service.commission.steps.design import DESIGN
from service.commission.steps.friction import FRICTION
from service.commission.steps.joints import JOINTS
from service.commission.steps.model import IDENTIFY, VALIDATE
from service.commission.steps.payload import PAYLOAD
from service.commission.steps.run import RUN
from service.commission.steps.signals import SIGNALS

#: The report is made of what these find.
STEPS: tuple[Step, ...] = (ROBOT, SIGNALS, JOINTS, FRICTION, PAYLOAD, DESIGN, RUN, IDENTIFY, VALIDATE)

__all__ = ["STEPS"]
