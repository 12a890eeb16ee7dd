"""Diagnosis of measurements that do not fit: single poses and exchanged poses."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rt_core.calibration import _robust as robust
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Objective, minimise
from rt_core.calibration.frames import scales_of, settled
from rt_core.calibration.result import Doubts
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import FloatArray, IntArray

#: Error, in scales, from which a pose does not fit: one in 1e13 of normal errors.
GROSS = 8.0
#: Factor on the scale of errors from which poses that do not fit dominate it.
DOMINANT = 3.0
_MAX_EXCHANGED = 60
#: Equations per parameter that a robust fit needs to detect bad poses.
_MIN_REDUNDANCY = 2.2


def doubtful_poses(
    objective: Objective, numbers: IntArray, width: FloatArray, settings: CalibrationSettings,
    alive: Callable[[], None] = lambda: None,
) -> tuple[Doubts, Objective]:  # fmt: skip
    """Find single poses that do not fit, near the fit in `objective`; return them with the fit used.

    A least-squares fit is repeated robustly if some residual is far above the median one.  `numbers` (N,) are those of
    the sample's poses within all poses, `width` (P,) the largest errors.  `alive` is called in between; an exception
    ends the search.
    """
    sample, plain = objective.sample, objective.loss == "squares"
    needed = int(np.ceil(_MIN_REDUNDANCY * objective.free.size / sample.width))
    if len(sample) < needed:
        return Doubts(needed=needed), objective
    scale = scales_of(objective, objective.spent())
    if plain:
        r = objective.model.residual(sample, objective.x)
        lengths = np.linalg.norm(r[:, :3], axis=1)
        if lengths.max() < 0.5 * GROSS * robust.scale(lengths, min(r.shape[1], 3), "huber"):
            return Doubts(), objective
        objective = settled(objective, width, replace(settings, robust=True), alive)
        objective = replace(objective, loss="bisquare")
        objective = replace(objective, x=minimise(objective, width, on_progress=lambda _share, _stage: alive())[0])
    r = objective.model.residual(sample, objective.x)
    fair = scales_of(objective, objective.spent())
    per_row = np.repeat(fair, 3)[: r.shape[1]]
    far = np.flatnonzero(np.linalg.norm(r / per_row, axis=1) > GROSS)
    dominant = plain and bool((scale / fair).max() > DOMINANT) and far.size > 0
    pairs = _exchanged(objective.model, sample, objective.x, far, GROSS * float(fair[0]))
    doubts = Doubts(
        tuple(int(numbers[i]) for i in far), tuple((int(numbers[i]), int(numbers[j])) for i, j in pairs), dominant
    )
    return doubts, objective


def _exchanged(
    model: ErrorModel, sample: Sample, x: FloatArray, far: IntArray, tolerance: float
) -> list[tuple[int, int]]:
    """Return the pairs of poses `far` whose positions fit when exchanged."""
    if sample.point is not None or not 2 <= far.size <= _MAX_EXCHANGED:
        return []
    p, _ = model.predict(sample.q, x, sample.load, sample.head, sample.station)
    found = []
    for a, i in enumerate(far):
        for j in far[a + 1 :]:
            if sample.station is not None and sample.station[i] != sample.station[j]:
                continue
            one = float(np.linalg.norm(p[i] - sample.positions[j]))
            other = float(np.linalg.norm(p[j] - sample.positions[i]))
            if max(one, other) < tolerance:
                found.append((int(i), int(j)))
    return found
