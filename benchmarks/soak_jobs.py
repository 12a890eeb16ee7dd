"""Batch jobs during a soak, of several kinds, one after the other."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from service.client import Control, ControlError, Jobs, UnreachableError

#: Last seconds of a soak, in which no job is submitted any more.
LAST_S = 10.0
PATIENCE_S = 5.0  # for one answer: what stands still may be a fault
FINISH_S = 180.0
LIVE = "live:20"
QUICK = {"robot": "space6", "methods": ["ols"], "seconds": 2.0, "seeds": 1}
FINISHED = ("succeeded", "failed", "cancelled")


class JobsClient:
    """Submits jobs; each has to succeed in the end, however often it is interrupted.

    Attributes
    ----------
    refused : Counter
        Submissions that were refused or not answered, by the kind of the answer; a fault explains it.
    problems : list of str
    """

    LAST_S = LAST_S

    def __init__(self, control: Control, arms: tuple[str, ...], every_s: float) -> None:
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.problems: list[str] = []
        self._jobs, self._arms = Jobs(control, PATIENCE_S), arms
        self._kinds = itertools.cycle((self._compare, self._identify, self._validate))
        self._turn = itertools.cycle(arms)
        self._open: dict[int, str] = {}
        self._models: dict[str, int] = {}  # newest identification of each arm
        self._every_s = every_s  # between the end of a job and the next
        self._next_s = time.monotonic() + every_s

    def step(self, more: bool) -> None:
        """Look whether the present job is at its end, and submit the next."""
        for id in list(self._open):
            self._look(id)
        if more and not self._open and time.monotonic() >= self._next_s:
            submit: Callable[[], tuple[str, int] | None] = next(self._kinds)
            self._next_s = time.monotonic() + self._every_s
            try:
                if (submitted := submit()) is not None:
                    self._open[submitted[1]] = submitted[0]
            except ControlError as error:
                self.refused[error.type] += 1
            except UnreachableError:
                self.refused["no answer"] += 1

    def _look(self, id: int) -> None:
        try:
            job = self._jobs.job(id)
        except (ControlError, UnreachableError):
            return  # the jobs process is being restarted; the job is on the disk
        if job.state in FINISHED:
            kind = self._open.pop(id)
            self.ended[f"{kind} {job.state}"] += 1
            self._next_s = time.monotonic() + self._every_s
            if job.attempts:  # an interruption, by a fault, is none
                self.problems.append(f"job {id}, {kind}: {job.attempts} attempts failed by themselves")
            if job.state != "succeeded":
                self.problems.append(f"job {id}, {kind}: {job.state}: {job.reason}")
            elif kind == "identify" and job.arm is not None:
                self._models[job.arm] = id

    def _compare(self) -> tuple[str, int]:
        return "compare", self._jobs.submit("compare", QUICK).id

    def _identify(self) -> tuple[str, int]:
        arm = next(self._turn)
        return "identify", self._jobs.submit("identify", {"recording": LIVE}, arm=arm).id

    def _validate(self) -> tuple[str, int] | None:
        if not self._models:
            return None
        arm, model = next(reversed(self._models.items()))
        asked = {"recording": LIVE, "model": f"job:{model}"}
        return "validate", self._jobs.submit("validate", asked, arm=arm).id

    def finish(self) -> None:
        """Wait for the job that is not at its end."""
        deadline = time.monotonic() + FINISH_S
        while self._open and time.monotonic() < deadline:
            self.step(more=False)
            time.sleep(0.2)
        self.problems += [f"job {id}, {kind}: has not ended within {FINISH_S:g} s" for id, kind in self._open.items()]

    def told(self) -> str:
        """How many have ended, for people."""
        return f"{sum(self.ended.values())} jobs"

    def result(self) -> dict[str, Any]:
        """What has become of them."""
        return {"ended": dict(self.ended), "refused": dict(self.refused)}
