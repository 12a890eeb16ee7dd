"""When training ends: the state that predicted held-out samples best is kept, and no progress is waited for in vain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

State = TypeVar("State")


@dataclass
class EarlyStopping(Generic[State]):
    """The best state so far.

    Attributes
    ----------
    patience : int
        Looks without progress after which training ends.
    callback : callable or None
        Told the iterations done and the error on held-out samples; ends the training by returning False.
    best : State or None
        None before the first look with a finite error.
    least : float
        Its error.
    """

    patience: int
    callback: Callable[[int, float], bool | None] | None
    best: State | None = None
    least: float = np.inf
    _stale: int = 0

    def look(self, done: int, error: float, state: Callable[[], State]) -> bool:
        """Note the `error` after `done` iterations, and `state()` if it is the least; False if training is to end."""
        self._stale += 1
        if error < self.least:
            self.best, self.least, self._stale = state(), error, 0
        go_on = True if self.callback is None else self.callback(done, error)
        return go_on is not False and self._stale < self.patience
