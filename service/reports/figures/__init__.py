"""Figures of reports: functions that take numbers and return one image as PNG bytes.

Start with `panels`, which has the style, colours and helpers of all figures.  Figures of an identification or a
validation (torque, residual, friction), of a friction sweep and of hand guiding are offered here by name;
`calibration`, `elastic` and `excitation` (with the cost over the iterations of a search) have those of one report
each; two reports draw their one figure themselves.
"""

from service.reports.figures._friction import SweepCurve, friction_figure, friction_temperature_figure, sweep_figure
from service.reports.figures._hand_guiding import guiding_figure, guiding_torque_figure
from service.reports.figures._residual import histogram_figure, residual_figure, spectrum_figure, torque_figure
from service.reports.figures.excitation import history_figure

__all__ = [
    "SweepCurve", "calibration", "elastic", "excitation", "friction_figure", "friction_temperature_figure",
    "guiding_figure", "guiding_torque_figure", "histogram_figure", "history_figure", "panels",
    "residual_figure", "spectrum_figure", "sweep_figure", "torque_figure",
]  # fmt: skip
