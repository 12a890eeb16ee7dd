"""Figures of an identification or a validation, as PNG bytes."""

from service.figures.friction import friction_figure
from service.figures.history import history_figure
from service.figures.residual import histogram_figure, residual_figure, spectrum_figure
from service.figures.torque import torque_figure

__all__ = [
    "friction_figure",
    "histogram_figure",
    "history_figure",
    "residual_figure",
    "spectrum_figure",
    "torque_figure",
]
