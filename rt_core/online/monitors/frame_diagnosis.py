"""Examination of the estimator's own frames, by the fit and the diagnosis of batch identification.

The data or the robot file are wrong by `Identification.faults`: of clean recordings 5e-5 have a named one, and of
150 clean random arms none had any after 15 s.  Significant
errors without such certainty (one clean recording in a hundred, and every real arm, has some) widen the intervals by
what they move, as those of `identify`.
"""

import numpy as np

from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import finding_text, identify
from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.online.monitors.examination import Examination


def examine(model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings) -> Examination:
    """Fit and diagnose `signals`, with the velocity constants of `base`; `DataError` if the motion does not suffice."""
    found = identify(model, base, signals, settings, EstimatorOptions(constants="given"))
    diagnosis = found.diagnosis
    moved = np.sqrt(np.sum(np.square(diagnosis.shifts), axis=0))
    texts = found.faults or [finding_text(f, model) for f in sorted(diagnosis.findings, key=lambda f: f.left)]
    return Examination(moved, texts[0] if texts else "", bool(found.faults))
