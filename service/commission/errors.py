"""How a commissioning ends before its time."""

from __future__ import annotations

from typing import Any


class CommissionError(ValueError):
    """Something about the request or its folder is wrong; nothing has moved for it."""


class StepFailedError(RuntimeError):
    """A step came to nothing, or found what must be put right first.

    Attributes
    ----------
    result : dict
        What the step found until then.
    """

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = result or {}


class DeclinedError(Exception):
    """Somebody was asked, and said no."""
