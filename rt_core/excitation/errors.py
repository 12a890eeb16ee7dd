"""What can be wrong with a design of excitation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rt_core.excitation.design import ExcitationDesign


class ExcitationError(ValueError):
    """Settings, limits or coefficients that no trajectory can be designed with."""


class InfeasibleError(ExcitationError):
    """The search found no trajectory within the limits; `design` is the best that it found, and must not be used."""

    def __init__(self, message: str, design: ExcitationDesign) -> None:
        super().__init__(message)
        self.design = design
