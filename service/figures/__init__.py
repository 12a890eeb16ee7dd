"""Figures of an identification, a validation or a guided arm, as PNG bytes."""

from service.figures.friction import friction_figure, friction_temperature_figure
from service.figures.guiding import guiding_figure, guiding_torque_figure
from service.figures.history import history_figure
from service.figures.residual import histogram_figure, residual_figure, spectrum_figure
from service.figures.torque import torque_figure
from service.guiding_record import GuidingRecord

__all__ = [
    "GuidingRecord",
    "friction_figure",
    "friction_temperature_figure",
    "guiding_figure",
    "guiding_torque_figure",
    "histogram_figure",
    "history_figure",
    "residual_figure",
    "spectrum_figure",
    "torque_figure",
]
