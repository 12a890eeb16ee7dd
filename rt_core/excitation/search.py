"""How a search for a trajectory goes, and how it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rt_core.optimise.run import Stopped
from rt_core.types import FloatArray, IntArray

#: Told after each evaluation of the objective: the share of the design that is done, which never falls, and the
#: lowest cost of the search so far.  What it raises ends the design.
Pulse: TypeAlias = Callable[[float, float], None]


@dataclass(frozen=True, eq=False)
class Search:
    """How one search went.

    Attributes
    ----------
    seed : int
    iterations : (k,) int64
        Ascending, from 0, which is the first evaluation.
    history : (k,) float64
        Lowest cost, penalty included, after each of `iterations`; of the second search where the first ended beyond
        a limit (`Designer.design`).
    evaluations : int
        Of both.
    stopped : str
        What ended it, as in `rt_core.optimise.run.Outcome`.
    """

    seed: int
    iterations: IntArray
    history: FloatArray
    evaluations: int
    stopped: Stopped

    def thinned(self, most: int) -> Search:
        """Return the search with `most` points of its history at the most, the first and the last among them."""
        if self.history.size <= most:
            return self
        kept = np.linspace(0, self.history.size - 1, most).round().astype(np.int64)
        return replace(self, iterations=self.iterations[kept], history=self.history[kept])


class EvaluationProgress:
    """Progress of a design by evaluations, from `first` on for `length` of it."""

    def __init__(self, told: Pulse, first: float, length: float, iterations: int) -> None:
        self._told = told
        self._first, self._length = first, length
        self._of = iterations + 1
        self._reported = 0
        self._share = 0.0
        self._cost = np.inf

    def iteration(self) -> None:
        """Count an iteration."""
        self._reported += 1

    def evaluation(self, done: float, cost: float) -> None:
        """Report an evaluation, `done` of those of this iteration."""
        # An iteration may evaluate more than once.
        self._share = max(self._share, min(1.0, (self._reported + done) / self._of))
        self._cost = min(self._cost, cost)
        self._told(self._first + self._length * self._share, self._cost)
