"""What goes wrong in evaluating a commissioning motion."""

from __future__ import annotations


class CommissioningError(ValueError):
    """Data from which nothing can be found; the message says why."""
