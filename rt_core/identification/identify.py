"""Identification of an arm: prepared signals in, a model with a verdict out.

A parameter that the data do not determine is reported without a value, and a fit that does not explain the torque is
reported as such, with the evidence.
"""

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from rt_core.identification._plausibility import SIGNIFICANT, Plausibility, bounded, check_plausibility
from rt_core.identification._verdict import (
    DOUBTFUL_ERROR,
    EXPLAINED_LIMIT,
    RELATIVE_ERROR_LIMIT,
    Evidence,
    Verdict,
    faults,
    finding_text,
    judge,
    weighs,
)
from rt_core.identification.diagnostics.diagnosis import Diagnosis, Fit, diagnose
from rt_core.identification.diagnostics.intervals import consistent_shifts, jackknife_changes, widened
from rt_core.identification.estimate import Estimate, EstimatorOptions, estimate
from rt_core.identification.least_squares import Solution
from rt_core.identification.preprocess import Signals, SignalSettings, Velocity
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.status import ParameterStatus, parameter_status
from rt_core.identification.temperature import temperatures_of, unseen
from rt_core.identification.uncertainty import Uncertainty
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.optimise.run import Callback
from rt_core.robust_loss import OUTLYING_WEIGHT
from rt_core.types import BoolArray, FloatArray
from rt_core.validation import Metrics, torque_metrics

__all__ = [
    "DOUBTFUL_ERROR", "EXPLAINED_LIMIT", "RELATIVE_ERROR_LIMIT", "Identification", "Verdict", "finding_text",
    "identify", "weighs",
]  # fmt: skip

_SEVERITY: tuple[Verdict, ...] = get_args(Verdict)
#: Below this share of information from the data a consistent parameter counts as coming from the prior.
DATA_SHARE_LIMIT = 0.5
#: A deviation this many times the stated one is no scatter of the jackknife over 15 blocks: the root of chi-square over
#: its 14 degrees of freedom is larger for one parameter in a thousand.
_WIDER = 1.6
_ANY_MOUNTING = (
    "no motion of this arm tells its mounting direction from the first moments of its links: that of the robot file is "
    "taken as it is"
)


@dataclass(frozen=True)
class Identification:
    """A fitted model with its verdict.

    `status` is per base parameter, `reasons` explains the verdict in sentences, `diagnosis` has the tests behind it.
    The numbers are in `estimate`, with intervals that allow for model error.
    `notes` state what was done to the data, `impossible_temperatures` counts reported temperatures that were left out
    because no joint can have them, `velocity` says where a recording's velocity was taken from.  `faults` are
    reasons that speak against the data or the robot file, rather than against the motion or the sensors' noise.
    """

    options: EstimatorOptions
    estimate: Estimate
    status: tuple[ParameterStatus, ...]
    metrics: Metrics
    diagnosis: Diagnosis
    plausibility: Plausibility
    verdict: Verdict
    reasons: tuple[str, ...]
    impossible_temperatures: int = 0
    notes: tuple[str, ...] = ()
    velocity: Velocity = "measured"
    faults: tuple[str, ...] = ()

    @property
    def model(self) -> RobotModel:
        """Model of the arm, with the friction constants that were found."""
        return self.estimate.model

    @property
    def base(self) -> BaseParameters:
        """Base parameters of that model."""
        return self.estimate.base

    @property
    def rows(self) -> Rows:
        """Rows that were fitted."""
        return self.estimate.rows

    @property
    def solution(self) -> Solution:
        """Solution of the estimate."""
        return self.estimate.solution

    @property
    def uncertainty(self) -> Uncertainty:
        """Covariance of the base parameters."""
        return self.estimate.uncertainty

    @property
    def std(self) -> FloatArray:
        """(p,) standard deviations, infinite for undetermined parameters."""
        return self.estimate.std

    @property
    def theta(self) -> FloatArray:
        """(p,) base parameters."""
        return self.estimate.theta

    @property
    def temperatures(self) -> TemperatureRange | None:
        """Range of temperatures in the fit, for each joint; None if the model does not follow them."""
        return temperatures_of(self.model, self.rows)


def identify(
    model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings,
    options: EstimatorOptions | None = None, callback: Callback | None = None,
) -> Identification:  # fmt: skip
    """Fit `model` to the rows in the part of the signals; `callback` as in `estimate`.

    Raises
    ------
    DataError
        If there are too few rows, or a joint has none at all.
    """
    options = EstimatorOptions() if options is None else options
    found = estimate(model, base, signals, settings, options, callback)
    result = _judged(options, found, signals, settings)
    if found.full is None:
        return result
    # dropping parameters must not improve the verdict on the full fit
    full = _judged(options, found.full, signals, settings)
    if _SEVERITY.index(full.verdict) <= _SEVERITY.index(result.verdict):
        return result
    return replace(result, status=_downgraded(result.status, full.verdict), verdict=full.verdict, reasons=full.reasons)


def _judged(options: EstimatorOptions, found: Estimate, signals: Signals, settings: SignalSettings) -> Identification:
    """Score an estimate on its own data and judge it."""
    # Wrong signs, channels and zeros show in free parameters only: physical ones cannot come out impossible.
    basis = found if found.free is None else found.free
    load = basis.solution.theta if basis.base.layout.has_load else None
    scored = build_rows(basis.model, basis.base, signals, settings, load_theta=load, slow=False).select(*signals.part)
    use = scored.use if found.weights is None else scored.use & (found.weights >= OUTLYING_WEIGHT)
    free = torque_metrics(scored.tau, scored.predict(basis.theta), use)
    plausibility = check_plausibility(basis.model, basis.base, basis.rows, basis.theta, basis.uncertainty.covariance)
    whole = basis if basis.full is None else basis.full
    changes = jackknife_changes(whole.rows, whole.solution, whole.weights)
    fit = Fit(
        whole.model, whole.base, whole.rows, whole.theta, whole.solution.inverse_root, whole.solution.sigma,
        free.explained, bounded(whole.uncertainty.covariance), changes, whole.weights,
        bool(plausibility.negative_coulomb) or plausibility.mass_z < -SIGNIFICANT,
    )  # fmt: skip
    diagnosis = diagnose(fit, signals, settings)
    stated = found
    found = _with_model_error(found, whole, changes, diagnosis)
    model, base, rows, solution = found.model, found.base, found.rows, found.solution
    wider = found.std > _WIDER * stated.std
    before, after = (parameter_status(rows, solution, std) for std in (stated.std, found.std))
    status = _with_doubts(before, after, wider)
    cold = unseen(base.layout, temperatures_of(model, rows))
    status = tuple("undetermined" if c else s for s, c in zip(status, cold, strict=True))
    if found.consistent is not None:
        share = found.consistent.data_share
        status = tuple("prior" if x < DATA_SHARE_LIMIT else s for s, x in zip(status, share, strict=True))
    if found.full is not None:
        # fewer parameters do not make the motion richer: undetermined ones stay undetermined
        before = parameter_status(rows, found.full.solution, whole.std)
        status = tuple("undetermined" if b == "undetermined" else s for s, b in zip(status, before, strict=True))
    status = tuple("dropped" if gone else s for s, gone in zip(status, found.dropped, strict=True))
    metrics = free
    if found.free is not None:
        load = solution.theta if base.layout.has_load else None
        scored = build_rows(model, base, signals, settings, load_theta=load, slow=False).select(*signals.part)
        metrics = torque_metrics(scored.tau, scored.predict(solution.theta), use)
    if found.free is not None:
        # What is delivered counts: free parameters of a poor motion come out impossible, possible links do not.  But a
        # Coulomb friction that is clearly negative belongs to a channel with the wrong sign.
        delivered = check_plausibility(model, base, rows, found.theta, found.uncertainty.covariance)
        plausibility = replace(delivered, negative_coulomb=plausibility.negative_coulomb)
    evidence = Evidence(found, signals, status, metrics, free, diagnosis, plausibility)
    verdict, reasons = judge(evidence)
    notes = () if diagnosis.gravity_seen or diagnosis.gravity_tells or not diagnosis.gravity_acts else (_ANY_MOUNTING,)
    return Identification(
        options, found, _downgraded(status, verdict), metrics, diagnosis, plausibility, verdict, reasons,
        signals.impossible_temperatures, notes, settings.velocity, faults(evidence),
    )  # fmt: skip


def _with_model_error(found: Estimate, whole: Estimate, changes: FloatArray, diagnosis: Diagnosis) -> Estimate:
    """Widen the covariance of an estimate to what blocks of the recording support, and by errors that are not named.

    Both come from the free fit `whole` to the same rows; `changes` (B, p) are those of its jackknife.
    """
    deviation = np.sqrt(np.sum(changes**2, axis=0))
    stated = whole.std
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.where(np.isfinite(stated) & (stated > 0.0), np.maximum(deviation / stated, 1.0), 1.0)

    def widen(estimate: Estimate) -> Estimate:
        shifts = diagnosis.shifts
        if estimate.consistent is not None and shifts.size:
            shifts = consistent_shifts(whole.rows, estimate.solution.sigma, estimate.uncertainty.covariance, shifts)
        covariance = widened(estimate.uncertainty.covariance, grown * estimate.std, shifts)
        own = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        std = np.where(np.isfinite(estimate.std) & (estimate.std > 0.0), own, estimate.std)
        full = None if estimate.full is None else widen(estimate.full)
        return replace(estimate, uncertainty=replace(estimate.uncertainty, covariance=covariance), std=std, full=full)

    return widen(found)


def _with_doubts(
    stated: tuple[ParameterStatus, ...], widened: tuple[ParameterStatus, ...], wider: BoolArray
) -> tuple[ParameterStatus, ...]:
    """Return the status by the noise, "doubtful" where only model errors keep a value from being determined.

    Where the deviation is not clearly `wider` (p,), a value that is near the limit is what its own deviation says.
    """
    return tuple(
        a if a != "determined" or b == "determined" else "doubtful" if w else b
        for a, b, w in zip(stated, widened, wider, strict=True)
    )


def _downgraded(status: tuple[ParameterStatus, ...], verdict: Verdict) -> tuple[ParameterStatus, ...]:
    """Replace "determined" by "doubtful" where the verdict is doubtful or worse."""
    wrong = verdict in ("doubtful", "not_explained")
    return tuple("doubtful" if s == "determined" and wrong else s for s in status)
