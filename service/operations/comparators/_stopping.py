"""Early stopping: the state that best predicts held-out samples is kept, and training without progress ends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

State = TypeVar("State")


@dataclass
class EarlyStopping(Generic[State]):
    """The best state so far."""

    patience: int  # evaluations without progress after which training ends
    callback: Callable[[int, float], bool | None] | None
    best: State | None = None  # None before the first finite error
    least: float = np.inf  # its error
    _stale: int = 0

    def look(self, done: int, error: float, state: Callable[[], State]) -> bool:
        """Evaluate the `error` after `done` iterations; keep `state()` if it is the least; False to end training."""
        self._stale += 1
        if error < self.least:
            self.best, self.least, self._stale = state(), error, 0
        go_on = True if self.callback is None else self.callback(done, error)
        return go_on is not False and self._stale < self.patience
