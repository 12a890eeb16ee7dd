"""Identification of an arm: prepared signals in, a model with a verdict out.

A parameter that the data do not determine is reported without a value, and a fit that does not explain the torque is
reported as such, with the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from rt_core.identification._gravity import GravityCheck, check_gravity
from rt_core.identification._plausibility import SIGNIFICANT, Plausibility, check_plausibility
from rt_core.identification.estimate import Estimate, EstimatorOptions, Method, estimate
from rt_core.identification.least_squares import Solution
from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.robust import OUTLYING_WEIGHT
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.status import ParameterStatus, parameter_status
from rt_core.identification.temperature import narrow_reasons, temperatures_of, unseen
from rt_core.identification.uncertainty import Uncertainty
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.optimise.run import Callback
from rt_core.types import FloatArray
from rt_core.validation import Metrics, torque_metrics

Verdict = Literal["ok", "weak_excitation", "doubtful", "not_explained"]
_SEVERITY: tuple[Verdict, ...] = get_args(Verdict)

#: Condition number of the weighted regressor with unit columns above which excitation is called weak.
CONDITION_LIMIT = 50.0
#: A joint counts as explained when the model accounts for this share of its torque's variance ...
EXPLAINED_LIMIT = 0.3
#: ... and the whole arm when the relative torque error is at most this.
RELATIVE_ERROR_LIMIT = 0.3
_NAMED = 8  # parameters listed in a reason
#: Below this share of information from the data a consistent parameter counts as coming from the prior.
DATA_SHARE_LIMIT = 0.5
#: A consistent fit may leave this many times the residual of free parameters.
CONSISTENT_LIMIT = 3.0
#: Share of a joint's rows that may count as outliers.
OUTLYING_LIMIT = 0.2
#: Above this relative torque error the parameters are called doubtful: something is not modelled.
DOUBTFUL_ERROR = 0.15


@dataclass(frozen=True)
class Identification:
    """A fitted model with its verdict.

    `status` is per base parameter, `reasons` explains the verdict in sentences; the numbers are in `estimate`.
    `impossible_temperatures` counts reported temperatures that were left out because no joint can have them.
    """

    options: EstimatorOptions
    estimate: Estimate
    status: tuple[ParameterStatus, ...]
    metrics: Metrics
    gravity: GravityCheck
    plausibility: Plausibility
    verdict: Verdict
    reasons: tuple[str, ...]
    impossible_temperatures: int = 0

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
    model: RobotModel,
    base: BaseParameters,
    signals: Signals,
    settings: SignalSettings,
    options: EstimatorOptions | None = None,
    *,
    method: Method = "wls",
    start_s: float = -np.inf,
    stop_s: float = np.inf,
    disturbed: Signals | None = None,
    callback: Callback | None = None,
) -> Identification:
    """Fit `model` to the rows with `start_s <= t < stop_s`, with `options` or by `method` with default options.

    `disturbed` and `callback` as in `estimate`.

    Raises
    ------
    DataError
        If there are too few rows, or a joint has none at all.
    """
    options = EstimatorOptions(method=method) if options is None else options
    found = estimate(
        model, base, signals, settings, options, start_s=start_s, stop_s=stop_s, disturbed=disturbed, callback=callback
    )
    result = _judged(options, found, signals, settings, start_s, stop_s)
    if found.full is None:
        return result
    # dropping parameters must not improve the verdict on the full fit
    full = _judged(options, found.full, signals, settings, start_s, stop_s)
    if _SEVERITY.index(full.verdict) <= _SEVERITY.index(result.verdict):
        return result
    return replace(result, status=_downgraded(result.status, full.verdict), verdict=full.verdict, reasons=full.reasons)


def _judged(
    options: EstimatorOptions,
    found: Estimate,
    signals: Signals,
    settings: SignalSettings,
    start_s: float,
    stop_s: float,
) -> Identification:
    """Score an estimate on its own data and judge it."""
    model, base, rows, solution = found.model, found.base, found.rows, found.solution
    status = parameter_status(rows, solution, found.std)
    cold = unseen(base.layout, temperatures_of(model, rows))
    status = tuple("undetermined" if c else s for s, c in zip(status, cold, strict=True))
    if found.consistent is not None:
        share = found.consistent.data_share
        status = tuple("prior" if x < DATA_SHARE_LIMIT else s for s, x in zip(status, share, strict=True))
    if found.full is not None:
        # fewer parameters do not make the motion richer: undetermined ones stay undetermined
        before = parameter_status(rows, found.full.solution, found.full.std)
        status = tuple("undetermined" if b == "undetermined" else s for s, b in zip(status, before, strict=True))
    status = tuple("dropped" if gone else s for s, gone in zip(status, found.dropped, strict=True))
    load = solution.theta if base.layout.has_load else None
    scored = build_rows(model, base, signals, settings, load_theta=load, slow=False).select(start_s, stop_s)
    use = scored.use if found.weights is None else scored.use & (found.weights >= OUTLYING_WEIGHT)
    metrics = torque_metrics(scored.tau, scored.predict(solution.theta), use)
    # Wrong signs and channels show in free parameters only: physical ones cannot come out impossible.
    basis = found if found.free is None else found.free
    free = metrics if found.free is None else torque_metrics(scored.tau, scored.predict(basis.theta), use)
    gravity = check_gravity(model, signals, settings, start_s, stop_s, solution.sigma)
    plausibility = check_plausibility(
        model, base, rows, signals, settings, basis.theta, basis.uncertainty.covariance, basis.solution.sigma
    )
    verdict, reasons = judge(found, signals, status, metrics, free, gravity, plausibility)
    return Identification(
        options, found, _downgraded(status, verdict), metrics, gravity, plausibility, verdict, reasons,
        signals.impossible_temperatures,
    )  # fmt: skip


def _downgraded(status: tuple[ParameterStatus, ...], verdict: Verdict) -> tuple[ParameterStatus, ...]:
    """Replace "determined" by "doubtful" where the verdict is doubtful."""
    return tuple("doubtful" if s == "determined" and verdict == "doubtful" else s for s in status)


def judge(
    found: Estimate,
    signals: Signals,
    status: tuple[ParameterStatus, ...],
    metrics: Metrics,
    free: Metrics,
    gravity: GravityCheck,
    plausibility: Plausibility,
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on a fit, with reasons.

    `metrics` are those of the fit, `free` those of a fit without the constraints of a consistent one, which shows
    whether the torque belongs to this arm at all.
    """
    model, rows, solution, search = found.model, found.rows, found.solution, found.search
    reasons: list[str] = []
    for j, joint in enumerate(model.joints):
        used = rows.tau[rows.use[:, j], j]
        raw = np.concatenate([piece.tau[:, j] for piece in signals.pieces])
        if used.size == 0:
            reasons.append(f"joint {joint.name} never moves faster than its min_velocity: it has no rows")
        elif np.ptp(raw) <= 1e-9 * max(1.0, float(np.abs(raw).max())):
            reasons.append(f"joint {joint.name}: the torque channel carries no signal, it stays at {raw[0]:.4g}")
        elif not free.explained[j] >= EXPLAINED_LIMIT:
            reasons.append(
                f"joint {joint.name}: the model explains {100 * max(free.explained[j], 0.0):.0f} % of the torque's "
                f"variance (residual {free.rmse[j]:.3g}, torque {np.std(used):.3g} rms): no signal, wrong joint "
                "order, wrong sign, or a load that is not modelled"
            )
    if not metrics.relative_error <= RELATIVE_ERROR_LIMIT:
        reasons.append(
            f"the relative torque error is {100 * metrics.relative_error:.1f} %: check units, signs, joint order, "
            "time alignment and the mounting direction"
        )
    if gravity.suspicious:
        g = ", ".join(f"{x:.2f}" for x in gravity.best)
        reasons.append(
            f"gravity along ({g}) m/s^2 in the base frame explains the torque better: it leaves "
            f"{100 * gravity.ratio:.0f} % of the weighted residual; the mounting direction in the robot file does not "
            "fit this recording"
        )
    reasons.extend(
        f"joint {model.joints[j].name}: the Coulomb friction comes out negative: the sign of its torque or of its "
        "position is wrong, or channels are swapped"
        for j in plausibility.negative_coulomb
    )
    if plausibility.mass_z < -SIGNIFICANT:
        reasons.append(
            "the mass matrix of the fit is not positive definite along the motion "
            f"({-plausibility.mass_z:.0f} standard deviations): the sign or the order of torque channels is wrong"
        )
    open_ = [name for name, s in zip(found.base.names, status, strict=True) if s == "undetermined"]
    if reasons:
        if open_:
            shown = ", ".join(open_[:_NAMED]) + (" and others" if len(open_) > _NAMED else "")
            reasons.append(f"{len(open_)} of {len(status)} parameters are not determined by these data: {shown}")
        return "not_explained", tuple(reasons)
    reasons.extend(
        f"joint {joint.name}: possible links explain {100 * max(metrics.explained[j], 0.0):.0f} % of the torque's "
        f"variance, free parameters {100 * free.explained[j]:.0f} %"
        for j, joint in enumerate(model.joints)
        if metrics.count[j] and not metrics.explained[j] >= EXPLAINED_LIMIT
    )
    reasons.extend(
        f"joint {joint.name}: possible links leave {metrics.rmse[j] / free.rmse[j]:.1f} times the residual of free "
        "parameters: the torque does not belong to this arm, or friction is not that of the model"
        for j, joint in enumerate(model.joints)
        if metrics.count[j] and metrics.rmse[j] > CONSISTENT_LIMIT * free.rmse[j]
    )
    if found.weights is not None:
        left_out = 1.0 - (rows.use & (found.weights >= OUTLYING_WEIGHT)).sum(axis=0) / np.maximum(
            rows.use.sum(axis=0), 1
        )
        reasons.extend(
            f"joint {joint.name}: {100 * left_out[j]:.0f} % of its rows count as outliers and are left out"
            for j, joint in enumerate(model.joints)
            if left_out[j] > OUTLYING_LIMIT
        )
    if plausibility.delay_s != 0.0:
        late = "late" if plausibility.delay_s > 0.0 else "early"
        reasons.append(
            f"the torque seems to be about {1e3 * abs(plausibility.delay_s):.3g} ms {late} against the motion "
            f"(shifted back, {100 * plausibility.delay_ratio:.0f} % of the residual is left): align the channels"
        )
    if metrics.relative_error > DOUBTFUL_ERROR:
        reasons.append(f"the relative torque error is {100 * metrics.relative_error:.1f} %: something is not modelled")
    reasons.extend(
        f"joint {model.joints[j].name}: the viscous friction comes out negative: the friction law does not fit"
        for j in plausibility.negative_viscous
    )
    if search is not None and not search.converged:
        reasons.append(
            f"the search ended ({search.stopped}) short of a minimum: {search.excess:.3g} of its weighted sum of "
            f"squares of {search.cost:.3g} are above the nearest one; allow it more iterations, or take the separable "
            "formulation"
        )
    if search is not None and search.at_bound:
        reasons.append(
            f"{', '.join(search.at_bound)}: the bounds of the search exclude a significantly better value; widen them"
        )
    if not found.settled:
        reasons.append(
            "the estimate did not settle: the residuals have no clear bulk for the weights of iwls, or the "
            "load-dependent friction explains little; take wls, or leave the load out"
        )
    doubtful = bool(reasons)
    reasons.extend(
        f"{c.name} is not determined by these data: slower and faster motion through the region of falling friction "
        "would show it"
        for c in found.constants
        if c.status == "undetermined"
    )
    reasons.extend(narrow_reasons(model, found.base.layout, temperatures_of(model, rows)))
    if solution.scaled_condition_number > CONDITION_LIMIT:
        reasons.append(
            f"the condition number of the scaled regressor is {solution.scaled_condition_number:.0f} "
            f"(above {CONDITION_LIMIT:.0f}): the motion does not excite all parameters; the model predicts torque "
            "for motions like this one only"
        )
    if gravity.acts and not gravity.sensitive:
        reasons.append(
            "gravity should show in the torque of this arm, yet any mounting direction fits these data equally well: "
            "the motion is too small or of the wrong unit, or the mounting direction cannot be verified by it"
        )
    given = status.count("prior")
    if given:
        reasons.append(f"{given} of {len(status)} parameters come from the prior rather than from these data")
    if open_:
        reasons.append(f"{len(open_)} of {len(status)} parameters are not determined by these data")
    return ("doubtful" if doubtful else "weak_excitation" if reasons else "ok"), tuple(reasons)
