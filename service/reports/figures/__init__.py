"""Figures of an identification, a validation or a guided arm, as PNG bytes."""

from service.operations.hand_guiding_replay import GuidingRecord
from service.reports.figures._friction import friction_figure, friction_temperature_figure
from service.reports.figures._hand_guiding import guiding_figure, guiding_torque_figure
from service.reports.figures._residual import histogram_figure, residual_figure, spectrum_figure
from service.reports.figures._torque import torque_figure
from service.reports.figures.history import history_figure

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
