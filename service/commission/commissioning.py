"""Run the steps of a commissioning, resuming where an earlier call ended."""

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
class StepProgress:
    """Progress of a commissioning: step `number` of `of`, of which the `share` is finished.

    `left_s` is the estimated time left of all steps.
    """

    step: Step
    number: int
    of: int
    share: float
    what: str
    left_s: float


@dataclass(frozen=True)
class CommissionResult:
    """Results of the `steps`, as in their files; `failed` is the failed step or empty, `reason` says why."""

    steps: Sequence[dict[str, Any]]
    failed: str = ""
    reason: str = ""

    def find(self, name: str) -> dict[str, Any]:
        """Return the result of a step; empty if it has not been done."""
        return next((step for step in self.steps if step["step"] == name), {})

    @property
    def open(self) -> list[str]:
        """Questions about signs and units that the checks left open."""
        return open_checks(self.find("joints"))

    @property
    def validated(self) -> bool:
        """Whether all steps are done and the model predicts the validation run."""
        return not self.failed and bool(self.find("validate").get("validated"))


def commission(
    context: Context, report: Callable[[StepProgress], None], steps: Sequence[Step] = STEPS
) -> CommissionResult:
    """Run all steps that have not been done; each result is in the folder as soon as the step ends.

    Raises `DeclinedError`: a motion was declined; `CommissionError`: a file of the folder cannot be read.
    """
    done: list[dict[str, Any]] = []
    for number, step in enumerate(steps, start=1):
        before = context.folder.result(step.name)
        left = any(context.folder.result(later.name) is None for later in steps[number:])
        if before is not None and not (step.repeated and left and not context.place.rehearsal):
            done.append(before)
            continue
        if before is None:  # results of later steps depend on this step
            context.folder.forget(step.name)
        later_s = sum(s.seconds(context) for s in steps[number:] if context.folder.result(s.name) is None)
        own_s = step.seconds(context)

        def progress(
            share: float, what: str, step: Step = step, number: int = number, own_s: float = own_s,
            later_s: float = later_s,
        ) -> None:  # fmt: skip
            report(StepProgress(step, number, len(steps), share, what, (1.0 - min(share, 1.0)) * own_s + later_s))

        context.report = progress
        progress(0.0, step.help)
        began_s = time.monotonic()
        state, reason = "done", ""
        try:
            summary, found = step.run(context)
        except SkippedError as error:
            state, summary, found = "skipped", str(error), {}
        except StepFailedError as error:
            state, summary, found, reason = "failed", str(error), error.result, str(error)
        if state == "failed" and before is not None:  # reports the arm's present state; the earlier result stays valid
            done.append(before | {"state": state, "summary": summary})
        else:
            done.append(context.folder.write(step.name, state, summary, time.monotonic() - began_s, found))
        if state == "failed":
            return CommissionResult(done, step.name, reason)
    return CommissionResult(done)
