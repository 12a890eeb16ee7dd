"""The whole commissioning: step by step, from where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from service.commission.context import Context, SkippedError, Step
from service.commission.errors import StepFailedError
from service.commission.steps import STEPS
from service.commission.steps.joints import open_checks

STEP_NAMES = tuple(step.name for step in STEPS)


@dataclass(frozen=True)
class Told:
    """How far a commissioning is.

    Attributes
    ----------
    step : Step
    number, of : int
    share : float
        Of the step.
    what : str
    left_s : float
        About the time left of all steps.
    """

    step: Step
    number: int
    of: int
    share: float
    what: str
    left_s: float


@dataclass(frozen=True)
class Commissioned:
    """What came of it.

    Attributes
    ----------
    steps : sequence of dict
        What the steps found, as their files hold it.
    failed : str
        Name of the step at which it ended; empty if none.
    reason : str
        Why.
    """

    steps: Sequence[dict[str, Any]]
    failed: str = ""
    reason: str = ""

    def find(self, name: str) -> dict[str, Any]:
        """Return what a step found; empty if it has not been done."""
        return next((step for step in self.steps if step["step"] == name), {})

    @property
    def open(self) -> list[str]:
        """What the checks of signs and units could not tell."""
        return open_checks(self.find("joints"))

    @property
    def validated(self) -> bool:
        """Whether all steps are over and the model predicts the validation run."""
        return not self.failed and bool(self.find("validate").get("validated"))


def commission(context: Context, tell: Callable[[Told], None], steps: Sequence[Step] = STEPS) -> Commissioned:
    """Do all steps that have not been done; what each finds is in the folder as soon as it ends.

    Raises
    ------
    DeclinedError
        Somebody was asked before a motion, and said no.
    CommissionError
        A file of the folder cannot be read.
    """
    done: list[dict[str, Any]] = []
    for number, step in enumerate(steps, start=1):
        before = context.folder.result(step.name)
        left = any(context.folder.result(later.name) is None for later in steps[number:])
        if before is not None and not (step.repeated and left and not context.place.rehearsal):
            done.append(before)
            continue
        if before is None:  # what came after an earlier one of it does not follow from this one
            context.folder.forget(step.name)
        later_s = sum(s.seconds(context) for s in steps[number:] if context.folder.result(s.name) is None)
        own_s = step.seconds(context)

        def told(
            share: float,
            what: str,
            step: Step = step,
            number: int = number,
            own_s: float = own_s,
            later_s: float = later_s,
        ) -> None:
            tell(Told(step, number, len(steps), share, what, (1.0 - min(share, 1.0)) * own_s + later_s))

        context.tell = told
        told(0.0, step.help)
        began_s = time.monotonic()
        state, reason = "done", ""
        try:
            summary, found = step.run(context)
        except SkippedError as error:
            state, summary, found = "skipped", str(error), {}
        except StepFailedError as error:
            state, summary, found, reason = "failed", str(error), error.result, str(error)
        if state == "failed" and before is not None:  # how the arm is now; what was found before holds as it did
            done.append(before | {"state": state, "summary": summary})
        else:
            done.append(context.folder.write(step.name, state, summary, time.monotonic() - began_s, found))
        if state == "failed":
            return Commissioned(done, step.name, reason)
    return Commissioned(done)
