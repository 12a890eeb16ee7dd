"""Models of each arm, and the history of the active one."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from service.jobs.queue.state import JobStateError
from service.jobs.queue.store import Event, Promotion, Store, Transaction

P = ParamSpec("P")
T = TypeVar("T")


def asked(question: Callable[Concatenate[Transaction, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that asks a transaction of its own."""

    @functools.wraps(question)
    def ask(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.store.read() as tx:
            return question(tx, *args, **kwargs)

    return ask


def active_model(tx: Transaction, arm: str) -> str | None:
    """Return the arm's active model; None if there is none."""
    history = tx.promotions(arm)
    return history[-1].model if history else None


class ModelHistory:
    """The models in a store; every method may raise `StoreError`, after which nothing has changed."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store, self.clock = store, clock

    models = asked(Transaction.models)
    promotions = asked(Transaction.promotions)
    active = asked(active_model)

    def roll_back(self, arm: str, reason: str) -> Promotion:
        """Make the previous model active again; raises `JobStateError` if there was none."""
        now_ns = self.clock()
        with self.store.write() as tx:
            history = tx.promotions(arm)
            steps = _stack(history)
            if not steps or steps[-1] is None:
                raise JobStateError(f"arm {arm}: no model is active")
            if len(steps) < 2:
                raise JobStateError(f"arm {arm}: there is no model before the present one")
            promotion = Promotion(now_ns, arm, steps[-2], steps[-1], "rolled_back", reason=reason)
            tx.add(promotion)
            text = f"rolled back from model {short(steps[-1])} to {short(steps[-2])}" + (
                f": {reason}" if reason else ""
            )
            tx.add(Event(now_ns, "model_rolled_back", text, arm, None, {"model": steps[-2]}))
        return promotion


def _stack(history: Sequence[Promotion]) -> list[str | None]:
    """Return the models in the order of successive rollbacks, the active one last."""
    steps: list[str | None] = []
    for entry in history:
        if entry.action == "rolled_back":
            if steps[-1:] == [entry.previous]:
                steps.pop()
            _down_to(entry.model, steps)
        else:
            _down_to(entry.previous, steps)
            steps.append(entry.model)
    return steps


def _down_to(model: str | None, steps: list[str | None]) -> None:
    """Move `model` to the top, where it is unless entries were lost with a damaged file."""
    if model in steps:
        while steps[-1] != model:
            steps.pop()
    else:
        steps.append(model)


def short(model: str | None) -> str:
    """Return the first digits of a model's hash, for texts."""
    return "none" if model is None else model[:12]
