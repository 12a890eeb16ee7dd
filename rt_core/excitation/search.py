"""Progress and history of a search for a trajectory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rt_core.optimise.run import Stopped
from rt_core.types import FloatArray, IntArray

#: Called after each evaluation with the share of the design done, which never falls, and the lowest cost so far.  An
#: exception ends the design.
Pulse: TypeAlias = Callable[[float, float], None]


@dataclass(frozen=True, eq=False)
class Search:
    """History of one search."""

    seed: int
    iterations: IntArray  # (k,) ascending, from 0 for the first evaluation
    # (k,) lowest cost, penalty included, after each of `iterations`; of the second search if there is one
    # (`Designer.design`)
    history: FloatArray
    evaluations: int  # of both
    stopped: Stopped  # reason of the end, as in `rt_core.optimise.run`

    def thinned(self, most: int) -> "Search":
        """Return the search with at most `most` points of its history, the first and last included."""
        if self.history.size <= most:
            return self
        kept = np.linspace(0, self.history.size - 1, most).round().astype(np.int64)
        return replace(self, iterations=self.iterations[kept], history=self.history[kept])


class EvaluationProgress:
    """Report the progress of a design by evaluations, from `first` on for `length` of it."""

    def __init__(self, report: Pulse, first: float, length: float, iterations: int) -> None:
        self._report = report
        self._first, self._length = first, length
        self._of = iterations + 1
        self._iterations = 0
        self._share = 0.0
        self._cost = np.inf

    def iteration(self) -> None:
        """Count an iteration."""
        self._iterations += 1

    def evaluation(self, done: float, cost: float) -> None:
        """Report an evaluation; `done` is the share of this iteration."""
        # an iteration may evaluate more than once
        self._share = max(self._share, min(1.0, (self._iterations + done) / self._of))
        self._cost = min(self._cost, cost)
        self._report(self._first + self._length * self._share, self._cost)
