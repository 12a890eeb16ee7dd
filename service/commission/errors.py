"""Errors of a commissioning."""

from typing import Any


class CommissionError(ValueError):
    """The request or its folder is wrong; nothing has moved."""


class StepFailedError(RuntimeError):
    """A step failed, or found a problem that must be fixed first; `result` holds its results so far."""

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = result or {}


class DeclinedError(Exception):
    """A question was answered by no."""
