"""Error of an excitation design."""

from __future__ import annotations


class ExcitationError(ValueError):
    """Settings, limits or coefficients do not allow a trajectory."""
