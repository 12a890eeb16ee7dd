"""Start of a fit: base, tool and fixed points with the nominal geometry, and the scales of errors."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rt_core.calibration import _robust as robust
from rt_core.calibration._alignment import aligned, aligned_points
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Objective, minimise
from rt_core.calibration.identifiability import identifiability
from rt_core.calibration.prediction import NOTHING
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.robust_loss import Loss
from rt_core.types import FloatArray

#: Range of base, tool, fixed points and sensor: they may be anywhere.
WIDE = {"m": 100.0, "rad": 3.0 * np.pi}
_SCALE_ROUNDS = 20
_SCALE_CHANGE = 0.01
_MIN_SCALE = 1e-9
_FRAME_ROUNDS = 5
_FRAME_GAIN = 0.95


def with_fitted_frames(
    model: ErrorModel, sample: Sample, settings: CalibrationSettings, alive: Callable[[], None]
) -> ErrorModel:
    """Return the model with base and tool, if they are parameters, fitted with the nominal geometry."""
    frames = np.flatnonzero(~model.of_arm & ~np.isin(model.names, settings.excluded))
    if frames.size == 0:
        return model
    nothing = np.zeros(model.size)
    _, nominal = model.frame("tool", nothing)
    model = aligned(model, sample) if sample.point is None else aligned_points(model, sample)
    arm = [name for k, name in enumerate(model.names) if k not in frames]
    wide = np.array([WIDE.get(unit, 1.0) for unit in model.units])
    last = np.inf
    for k in range(_FRAME_ROUNDS):
        free = identifiability(model, sample, excluded=arm).free
        if k == 0 and model.belongs_to("tool").size:
            # undetermined offsets, such as along axes that are all parallel, stay nominal
            R, t = model.frame("tool", nothing)
            shown = np.isin(model.belongs_to("tool")[:3], free)
            model = model.with_frame("tool", R, np.where(shown, t, nominal))
        objective = settled(Objective(model, sample, free, nothing, np.ones(2)), wide, settings, alive)
        model = model.with_found_points(objective.x)
        for which in (*model.base_names, "tool"):
            if model.belongs_to(which).size:
                model = model.with_frame(which, *model.frame(which, objective.x))
        # where frames are far off, other parameters may be dependent
        now = float(np.sqrt(np.mean(model.residual(sample, nothing)[:, :3] ** 2)))
        if now > _FRAME_GAIN * last or now < NOTHING:
            break
        last = now
    return model


def settled(
    objective: Objective, width: FloatArray, settings: CalibrationSettings, alive: Callable[[], None]
) -> Objective:
    """Fit by Levenberg-Marquardt, with Huber's loss if robust, until the scales converge.

    `alive` is called at each step; an exception ends the fit.
    """
    loss: Loss = "huber" if settings.robust else "squares"
    objective = replace(objective, loss=loss)
    follow = settings.robust or objective.sample.width == 6 or objective.informed
    if follow:
        objective = replace(objective, scale=scales_of(objective, 0))
    for _ in range(_SCALE_ROUNDS if follow else 1):
        x, _outcome = minimise(objective, width, replace(settings, method="lm"), lambda _share, _stage: alive())
        objective = replace(objective, x=x)
        if not follow:
            break
        scale = scales_of(objective, objective.spent())
        change = float(np.abs(scale / objective.scale - 1.0).max())
        objective = replace(objective, scale=scale)
        if change < _SCALE_CHANGE:
            break
    return objective


def scales_of(objective: Objective, spent: float) -> FloatArray:
    """Return the scales (2,) of the objective's residual; a fit has used `spent` degrees of freedom."""
    sample = objective.sample
    r = objective.model.residual(sample, objective.x)
    share = spent / r.size
    found = [
        robust.scale(np.linalg.norm(r[:, k : k + 3], axis=1), min(r.shape[1], 3), objective.loss, share)
        for k in range(0, r.shape[1], 3)
    ]
    return np.array([max(found[0], _MIN_SCALE), max(found[-1], _MIN_SCALE)])
