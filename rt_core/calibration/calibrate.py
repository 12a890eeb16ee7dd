"""Kinematic calibration: geometric errors, base and tool from postures and measurements.

1. Base and tool, if unknown, are fitted with the nominal geometry, which gives the accuracy "before".
2. Parameters that postures and priors determine are free, the others stay nominal (`identifiability`).
3. Levenberg-Marquardt finds the scales of positions and rotations, and imprecise parameters: one whose standard
   deviation moves the tool by more than the noise, and is more than 30 % of its value or 1e-3, is fixed, the worst
   first, and the others are fitted again.
4. The selected method fits the rest: `lm`, `pso` or `pso_lm` of KIN (`rt_core.optimise`).

All residuals are of the exact model, not its linearisation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from rt_core.calibration import input_checks as checks
from rt_core.calibration import result as results
from rt_core.calibration._alignment import in_first_frame, leave_one_out, tested_poses, with_sockets
from rt_core.calibration._imprecise import imprecise, without_imprecise, worse_by_more_than_chance
from rt_core.calibration._verdict import (
    BLIND,
    MAX_OUTLYING,
    SIZE_UNKNOWN,
    at_bound,
    given_up_reason,
    judged,
    outliers_reason,
)
from rt_core.calibration.doubts.causes import likely_cause
from rt_core.calibration.doubts.change import change_in_time
from rt_core.calibration.doubts.poses import doubtful_poses
from rt_core.calibration.error_model import ErrorModel, Targets, error_model
from rt_core.calibration.fit import Objective, minimise
from rt_core.calibration.frames import WIDE, scales_of, settled, with_fitted_frames
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.identifiability import (
    NOISE,
    Fixed,
    Identifiability,
    condition_number,
    correlated_pairs,
    identifiability,
    shows_size,
    triangle,
)
from rt_core.calibration.prediction import expected_error
from rt_core.calibration.repeats import averaged, distinct_postures, merged
from rt_core.calibration.result import Verdict
from rt_core.calibration.sample import Contacts, Distances, Sample, Spacing
from rt_core.calibration.selection import Observability
from rt_core.calibration.settings import MAX, CalibrationError, CalibrationSettings
from rt_core.calibration.uncertainty import prior_share, statistics, with_held
from rt_core.optimise.run import SearchOutcome
from rt_core.robust_loss import OUTLYING_WEIGHT, loss_weights
from rt_core.types import BoolArray, FloatArray, IntArray

_CONVERGED_STEP = 0.1  # of a standard deviation
_CONVERGED_EFFECT = 1e-12  # [m]
_BUILD_COMPLIANCE = 1e-5  # standard deviation of a compliance that is held nominal as imprecise
_BEYOND = 10.0  # times the largest errors, to see what lies beyond them

ProgressCallback = Callable[[float, str], None]


def calibrate(
    geometry: Geometry, q: FloatArray, measured: FloatArray | Contacts | Distances,
    settings: CalibrationSettings | None = None, *, use: BoolArray | None = None, load: FloatArray | None = None,
    head: IntArray | None = None, station: IntArray | None = None, on_progress: ProgressCallback | None = None,
) -> results.Calibration:  # fmt: skip
    """Estimate the geometric errors of an arm.

    Parameters
    ----------
    geometry : Geometry
        Nominal.
    q : (N, n) float64
        Joint positions [rad] or [m].
    measured : (N, 3) or (N, 7) float64, Contacts or Distances
        Positions x, y, z [m] of the tool in the measuring frame, or poses x, y, z, qx, qy, qz, qw; or contacts or
        distances, whose measuring frame is the robot's base.
    settings : CalibrationSettings or None
    use : (N,) bool or None
        Poses to fit; the others test the result.  All if None.
    load : (N, n) float64 or None
        Load of each joint by gravity [N*m or N], for compliance.
    head : (N,) int64 or None
        Measured point on the tool, from 0, if there are several; only for positions in a measuring frame.
    station : (N,) int64 or None
        Station of the instrument, from 0, each with its own frame; arm and tool are the same.
    on_progress : callable or None
        Called with the share done, 0 to 1, and the present step.

    Raises
    ------
    CalibrationError
        If shapes do not match, a number is not finite or beyond 1e6, a quaternion is not of unit length, a name is
        unknown, or there are too few poses for the parameters.
    """
    settings = CalibrationSettings() if settings is None else settings
    on_progress = on_progress or (lambda _share, _what: None)
    sample, use = checks.checked_sample(geometry, q, measured, use)
    if head is not None:
        sample = replace(sample, head=checks.checked_heads(head, sample, use, settings.tool))
    if station is not None:
        sample = replace(sample, station=checks.checked_stations(station, sample, use, settings.base))
    if settings.compliance:
        sample = replace(sample, load=checks.checked_load(load, sample.q.shape))
    spacings = measured.spacings if isinstance(measured, Contacts) else ()
    _check_spacings(spacings, sample.points)
    fitted = set() if sample.point is None else set(sample.point[use].tolist())
    targets = Targets(
        1 if sample.head is None else int(sample.head.max()) + 1, sample.points,
        [known for known in spacings if {known.first, known.second} <= fitted],
        1 if sample.station is None else int(sample.station.max()) + 1, sample.length is not None,
    )  # fmt: skip
    modelled = partial(
        error_model, base=settings.base and sample.point is None, tool=settings.tool, orientation=sample.width == 6,
        compliance=settings.compliance, targets=targets,
    )  # fmt: skip
    fresh = modelled(geometry)
    checks.check_excluded(fresh, settings)
    # repeats of a posture are one measurement, in the fit and in every test
    group = distinct_postures(sample.q, sample.point, sample.head, sample.station, use.astype(np.int64))
    rows = np.unique(group, return_index=True)[1]
    training = merged(sample, group, robust=settings.robust).take(use[rows])
    on_progress(0.0, "base and tool")
    model = with_fitted_frames(fresh, training, settings, lambda: on_progress(0.0, "base and tool"))
    nothing = np.zeros(model.size)
    shown = identifiability(model, training, excluded=settings.excluded)
    _check_count(model, shown, training)
    prior, found = checks.prior_deviations(model, settings), shown
    if prior is not None:
        noise = settings.expected_noise or NOISE
        found = identifiability(model, training, excluded=settings.excluded, prior=prior, noise=noise)
    sized = shows_size(model, training, excluded=settings.excluded, prior=prior)
    start = Objective(model, training, found.free, nothing, np.ones(2), prior=prior)
    width = _largest_errors(model, settings)
    share, scales = 0.3, 0.05
    on_progress(scales, "scales")
    begun = settled(start, width, settings, lambda: on_progress(scales, "scales"))

    def report_dropped(dropped: int) -> None:
        on_progress(scales + (share - scales) * dropped / found.free.size, "imprecise parameters")

    objective, dropped = without_imprecise(begun, width, settings, report_dropped)
    on_progress(share, settings.method)
    final = replace(objective, loss="bisquare") if settings.robust else objective
    if settings.method != "lm":
        final = replace(final, x=nothing)

    def fit(objective: Objective) -> tuple[Objective, SearchOutcome]:
        x, outcome = minimise(
            objective, width, settings, lambda done, stage: on_progress(share + (1.0 - share) * done, stage)
        )
        return replace(objective, x=x), outcome

    final, outcome = fit(final)
    if bound := int(at_bound(final, width).sum()):
        calm, its = fit(_regularised(final, width))
        beyond = replace(final, x=minimise(final, _BEYOND * width)[0])
        if not at_bound(calm, width).any() and not worse_by_more_than_chance(
            calm, beyond, statistics(beyond).dependence, bound
        ):
            final, outcome = calm, its
    doubts, judge = doubtful_poses(final, rows[use[rows]], width, settings, lambda: on_progress(1.0, "diagnosis"))
    fitted_poses = _Poses(sample, use, group)
    result = _result(
        _Fit(final, outcome, judge, width, shown.free, found.fixed + dropped), fitted_poses, doubts, sized, settings
    )
    if result.verdict in ("not_explained", "at_bound", "undetermined", "outliers", "overfit"):
        unit, left = likely_cause(modelled, geometry, training, settings, lambda: on_progress(1.0, "diagnosis"))
        result = replace(result, doubts=replace(doubts, unit=unit, unit_left=left))
    if result.verdict in ("ok", "overfit", "outliers", "not_explained", "no_gain") and (
        change := change_in_time(judge, settings.seed)
    ):
        change = replace(change, at=int(rows[use[rows]][change.at]))
        result = replace(result, doubts=replace(result.doubts, change=change))
    on_progress(1.0, "done")
    return result


def _regularised(objective: Objective, width: FloatArray) -> Objective:
    """Return the objective with a prior of the arm's errors: three standard deviations are the largest error.

    It decides in directions of which the poses say less.
    """
    prior = np.where(objective.model.of_arm, width / 3.0, np.inf)
    return replace(objective, prior=prior if objective.prior is None else np.minimum(prior, objective.prior))


def _check_spacings(spacings: Sequence[Spacing], sockets: int) -> None:
    for known in spacings:
        if not (0 <= known.first < sockets and 0 <= known.second < sockets and known.first != known.second):
            raise CalibrationError(
                f"spacing between sockets {known.first} and {known.second} (from 0): there are {sockets} sockets"
            )
        if not (0.0 < known.distance <= MAX and 0.0 < known.std <= MAX):
            raise CalibrationError(
                f"spacing between sockets {known.first} and {known.second} (from 0): distance {known.distance:g} m and "
                f"standard deviation {known.std:g} m must be above 0"
            )


def _check_count(model: ErrorModel, found: Identifiability, sample: Sample) -> None:
    rows = len(sample) * sample.width
    if found.rank == 0:
        raise CalibrationError("these poses determine none of the parameters: measure others, or exclude fewer")
    candidates = model.size - sum(item.reason == "excluded" for item in found.fixed)
    if rows <= found.rank:
        needed = candidates // sample.width + 1
        raise CalibrationError(
            f"{len(sample)} distinct postures to fit give {rows} equations for {candidates} parameters (repeats of a "
            f"posture say nothing new): measure at least {needed} postures, or exclude parameters"
        )


def _shown_errors(model: ErrorModel, sample: Sample, use: BoolArray, x: FloatArray) -> FloatArray:
    """Return the residuals of all poses at the errors `x` (P,), see `Calibration.residual_after`."""
    residual = leave_one_out(sample, use)[:, None] * model.residual(sample, with_sockets(model, sample, use, x))
    return in_first_frame(model, sample, x, residual)


def _weights(objective: Objective, residual: FloatArray) -> FloatArray:
    """Return the weights (N,) of poses with these residuals (N, k)."""
    u = np.linalg.norm(residual / objective.per_row, axis=1)
    return loss_weights(u, objective.loss, objective.limit)


class _Poses(NamedTuple):
    """All poses, those that are fitted (N,), and the distinct posture of each (N,)."""

    sample: Sample
    use: BoolArray
    group: IntArray


class _Fit(NamedTuple):
    """The objective at its minimum, that by which poses are judged, and the parameters shown and fixed."""

    objective: Objective
    outcome: SearchOutcome
    judge: Objective
    width: FloatArray
    shown: IntArray
    fixed: tuple[Fixed, ...]


def _result(
    fit: _Fit, poses: _Poses, doubts: results.Doubts, sized: bool, settings: CalibrationSettings
) -> results.Calibration:
    objective, outcome, judge, width, shown, fixed = fit
    sample, use, group = poses
    model, free, x = objective.model, objective.free, objective.x
    found = statistics(objective)
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = bool((np.abs(found.step) > _CONVERGED_STEP * found.std).any())
    converged = not missed or found.effect_of_step < _CONVERGED_EFFECT
    # a remaining distance to the minimum is part of the uncertainty
    covariance = found.covariance if converged else found.covariance + np.outer(found.step, found.step)
    nominal = np.array([model.index(item.name) for item in fixed if item.reason == "imprecise"], dtype=np.int64)
    joint = with_held(covariance, found.R, free, nominal, _build_deviations(model, settings)[nominal])
    covariance = joint[: free.size, : free.size]
    names = tuple(model.names[k] for k in free)
    doubtful = {
        name for name, on in zip(names, imprecise(objective, found, np.sqrt(np.diag(covariance)))[0], strict=True) if on
    }
    std = dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    carried = results.carried_by_prior(names, prior_share(found, objective))
    before, after = (_shown_errors(model, sample, use, errors) for errors in (np.zeros(model.size), x))
    # errors from the mean of other poses vary more than those from a known point, by the variance of the mean
    even = 1.0 / np.sqrt(leave_one_out(sample, use))[:, None]
    tested = tested_poses(sample, use)

    def accuracy(part: BoolArray) -> results.Accuracy:
        return results.Accuracy(
            int(part.sum()), results.Errors.of(before[part]), results.Errors.of(after[part]),
            np.unique(group[part]).size,
        )  # fmt: skip

    test = accuracy(tested) if tested.any() else None
    scale = scales_of(objective, objective.spent())
    weights = _weights(objective, even * after)
    judged_errors = after if judge is objective else _shown_errors(model, sample, use, judge.x)
    outlying = _weights(judge, even * judged_errors) < OUTLYING_WEIGHT
    if sample.width < 6:
        scale[1] = np.nan
    held = {item.name for item in fixed if item.reason == "excluded"}
    wanted = any(model.of_arm[k] and name not in held for k, name in enumerate(model.names))
    seen = np.isin(free, shown)
    blind = wanted and not model.of_arm[free[seen]].any()
    errors = averaged(even * before, group), averaged(even * after, group)
    first = np.unique(group, return_index=True)[1]
    finished = converged or outcome.stopped == "tolerance"
    verdict: Verdict = "undetermined"
    reasons: tuple[str, ...] = (BLIND,)
    if not blind:
        parts = use[first], tested[first]
        verdict, reasons = judged(objective, errors, parts, width, finished, settings.expected_noise)
    if not sized:
        verdict, reasons = "undetermined", (SIZE_UNKNOWN,)
    if doubts.dominant and verdict != "undetermined":
        verdict, reasons = "outliers", (outliers_reason(len(doubts.poses)),)
    given_up = int((weights[use] < OUTLYING_WEIGHT).sum())
    if given_up > MAX_OUTLYING * use.sum() and verdict in ("ok", "not_converged", "no_gain", "overfit"):
        verdict, reasons = "outliers", (given_up_reason(given_up, int(use.sum())),)
    build = np.where(model.of_arm & ~np.isin(model.names, list(held)), _build_deviations(model, settings), 0.0)
    nominal_error = float(np.sqrt(np.mean(np.sum(before[:, :3] ** 2, axis=1))))
    expected = expected_error(objective, found.dependence, scale, build, nominal_error)
    known = {} if not sized or verdict in ("not_explained", "outliers", "at_bound", "overfit") else std
    raw = triangle(model.jacobian(objective.sample, x, free), model.spacing_rows(x)[1][:, free])[:, seen]
    valid = std if verdict in ("ok", "not_converged") else {}
    bases = [results.frame_estimate(model, name, x, known) for name in model.base_names[1:]]
    return results.Calibration(
        model, x, results.arm_parameters(model, x, valid, doubtful, carried, objective.prior),
        results.frame_estimate(model, "base", x, known), results.frame_estimate(model, "tool", x, known),
        tuple(frame for frame in bases if frame is not None), names, covariance, found.dependence, found.freedom, fixed,
        correlated_pairs(names, found.covariance),
        condition_number(raw), Observability.of(raw, len(objective.sample)), scale,
        accuracy(use), test, before, after, weights, outlying, verdict, reasons, outcome.evaluations, doubts,
        tuple(model.names[k] for k in nominal), joint, expected,
    )  # fmt: skip


def _largest_errors(model: ErrorModel, settings: CalibrationSettings) -> FloatArray:
    """Return the largest errors (P,), in the parameters' units; those of frames bound the box of swarms only."""
    by_unit = {"m": settings.range_length, "rad": settings.range_angle}
    arm = np.array([by_unit.get(unit, settings.range_compliance) for unit in model.units])
    if settings.method != "lm":
        return arm
    return np.where(model.of_arm, arm, [WIDE.get(unit, 1.0) for unit in model.units])


def _build_deviations(model: ErrorModel, settings: CalibrationSettings) -> FloatArray:
    """Return the standard deviations (P,) of the errors of an arm as built, in the parameters' units."""
    by_unit = {"m": settings.build_length, "rad": settings.build_angle}
    return np.array([by_unit.get(unit, _BUILD_COMPLIANCE) for unit in model.units])
