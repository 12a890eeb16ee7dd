"""Diagnosis of measurements that do not fit: single poses, exchanged poses, units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.linalg as la

from rt_core.calibration import _robust as robust
from rt_core.calibration.elements import FRAME, ZERO
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Objective, minimise
from rt_core.calibration.frames import scales_of, settled, with_fitted_frames
from rt_core.calibration.result import Doubts
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import BoolArray, FloatArray, IntArray

#: Error, in scales, from which a pose does not fit: one in 1e13 of normal errors.
GROSS = 8.0
#: Factor on the scale of errors from which poses that do not fit dominate it.
DOMINANT = 3.0
_MAX_EXCHANGED = 60
#: Equations per parameter that a robust fit needs to detect bad poses.
_MIN_REDUNDANCY = 2.2
#: Share of the typical error from which another unit explains the measurements.
_EXPLAINS = 0.2
#: The same for a single joint, where errors of the nominal geometry remain.
_JOINT_EXPLAINS = 0.5
#: Poses that suffice to show a wrong unit, besides those for each station, head and socket.
_ENOUGH = 300
#: Poses that determine a station, a head or a socket.
_ENOUGH_OF_EACH = 6
_SCALE_STEPS = 12
_SCALE_RANGE = (0.3, 3.0)
_SAME_SCALE = 1e-3


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
        objective = replace(
            objective, x=minimise(objective, "lm", width, on_progress=lambda _share, _stage: alive())[0]
        )
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


def likely_unit(
    fresh: Callable[[], ErrorModel], sample: Sample, settings: CalibrationSettings, revolute: tuple[bool, ...],
    alive: Callable[[], None],
) -> str:  # fmt: skip
    """Return the unit, sign or scale of joints or lengths that explains the measurements by the nominal arm, or "".

    `fresh` returns the error model without fitted frames; `alive` is called in between; an exception ends the search.
    """
    careful = replace(settings, robust=True, excluded=())
    sample = thinned(sample)

    def error(candidate: Sample) -> float:
        model = with_fitted_frames(fresh(), candidate, careful, alive)
        r = model.residual(candidate, np.zeros(model.size))[:, :3]
        middle = np.median(np.linalg.norm(r, axis=1))
        spread = model.predict(candidate.q, np.zeros(model.size))[0].std()
        return float(middle / max(spread, 1e-12))

    own = error(sample)
    turns = np.array(revolute)
    candidates = [
        ("joint positions look like degrees, not radians", _with_joints(sample, turns, np.pi / 180.0)),
        ("joint positions look as if converted from degrees twice", _with_joints(sample, turns, 180.0 / np.pi)),
    ]
    if sample.point is None or sample.length is not None:
        candidates += [
            ("lengths look like millimetres, not metres", _with_lengths(sample, 1e-3)),
            ("lengths look as if converted from millimetres twice", _with_lengths(sample, 1e3)),
        ]
    common = len(candidates)
    fitted = with_fitted_frames(fresh(), sample, careful, alive)
    for k, joint in enumerate(np.eye(turns.size, dtype=np.bool_)):
        candidates.append((f"joint {k + 1} looks turned round: try the other sign", _with_joints(sample, joint, -1.0)))
        if turns[k]:
            degrees = _with_joints(sample, joint, np.pi / 180.0)
            candidates.append((f"joint {k + 1} looks like degrees, not radians", degrees))
        scale = _scale_of_joint(fitted, sample, k)
        if abs(scale - 1.0) > _SAME_SCALE:
            text = f"joint {k + 1} looks as if it moved {scale:.4g} times as far as it says: check its gear ratio"
            candidates.append((text, _with_joints(sample, joint, scale)))
    errors = [error(candidate) for _, candidate in candidates]
    best = int(np.argmin(errors))
    share = _EXPLAINS if best < common else _JOINT_EXPLAINS
    return candidates[best][0] if errors[best] < share * own else ""


def thinned(sample: Sample, enough: int = _ENOUGH, of_each: int = _ENOUGH_OF_EACH) -> Sample:
    """Return about `enough` poses of a sample, evenly spread.

    Each station with each head, and each socket or centre, keeps its share, and at least `of_each` poses if it has
    them, because only these determine its frame or position.
    """
    if len(sample) <= enough:
        return sample
    kinds = [numbers for numbers in (sample.station, sample.head, sample.point) if numbers is not None]
    group = np.zeros(len(sample), dtype=np.int64)
    if kinds:
        group = np.unique(np.column_stack(kinds), axis=0, return_inverse=True)[1].ravel()
    keep = np.zeros(len(sample), dtype=np.bool_)
    for g in range(int(group.max()) + 1):
        own = np.flatnonzero(group == g)
        count = min(own.size, max(of_each, round(enough * own.size / len(sample))))
        keep[own[np.linspace(0, own.size - 1, count).astype(np.int64)]] = True
    return sample.take(keep)


def _scale_of_joint(model: ErrorModel, sample: Sample, joint: int) -> float:
    """Return the best scale of one joint's positions, fitted with frames and fixed points (Gauss-Newton)."""
    frames = np.flatnonzero(model.priority == FRAME)
    zero = np.flatnonzero(model.priority == ZERO)[joint]
    one = np.arange(model.revolute.size) == joint
    x, scale = np.zeros(model.size), 1.0
    for _ in range(_SCALE_STEPS):
        moved = _with_joints(sample, one, scale)
        J = model.jacobian(moved, x)
        rows = np.append(J[:, :, frames], J[:, :, [zero]] * sample.q[:, None, [joint]], axis=2)
        r = model.residual(moved, x).ravel()
        step = la.lstsq(rows.reshape(-1, frames.size + 1), -r, cond=1e-8, check_finite=False)[0]
        x[frames] += step[:-1]
        scale = float(np.clip(scale + step[-1], *_SCALE_RANGE))
    return scale


def _with_joints(sample: Sample, turns: BoolArray, factor: float) -> Sample:
    q = np.where(turns, factor * sample.q, sample.q)
    return replace(sample, q=q, cosine=np.cos(q), sine=np.sin(q))


def _with_lengths(sample: Sample, factor: float) -> Sample:
    measured = sample.measured.copy()
    measured[:, 9:] *= factor
    return replace(sample, measured=measured, length=None if sample.length is None else factor * sample.length)
