"""A recording in, a model with a verdict out.

What is reported follows what the data support: a parameter that they do not determine is named and
has no value, and a fit that leaves the torque unexplained is called that, with the evidence, instead
of being reported as parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.batch.gravity import GravityCheck, check_gravity
from rt_core.batch.least_squares import Method, Solution, compress, solve
from rt_core.batch.plausibility import SIGNIFICANT, Plausibility, check_plausibility
from rt_core.batch.preprocess import DataError, Signals, SignalSettings
from rt_core.batch.rows import Rows, build_rows
from rt_core.batch.uncertainty import Uncertainty, estimate_covariance
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from rt_core.validation import Metrics, torque_metrics

ParameterStatus = Literal["determined", "weak", "undetermined", "doubtful"]
Verdict = Literal["ok", "weak_excitation", "doubtful", "not_explained"]

#: A value is called determined when its standard deviation is at most this share of it.
RELATIVE_STD_LIMIT = 0.3
#: One standard deviation may move the torque by this much of the residual noise, else "undetermined".
TORQUE_EFFECT_LIMIT = 1.0
#: Condition number of the weighted regressor with unit columns above which excitation is called weak.
CONDITION_LIMIT = 50.0
#: A joint counts as explained when the model accounts for this share of its torque's variance ...
EXPLAINED_LIMIT = 0.3
#: ... and the whole arm when the relative torque error is at most this.
RELATIVE_ERROR_LIMIT = 0.3
#: Above this relative torque error the parameters are called doubtful: something is not modelled.
DOUBTFUL_ERROR = 0.15


@dataclass(frozen=True)
class Identification:
    """A fitted model and what is known about it.

    `theta`, `std` (p,) and `status` per base parameter; `std` is infinite where the data leave the
    parameter free.  `reasons` explains the verdict in sentences.
    """

    model: RobotModel
    base: BaseParameters
    method: Method
    rows: Rows
    solution: Solution
    uncertainty: Uncertainty
    std: FloatArray
    status: tuple[ParameterStatus, ...]
    metrics: Metrics
    gravity: GravityCheck
    plausibility: Plausibility
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def theta(self) -> FloatArray:
        """(p,) base parameters."""
        return self.solution.theta


def identify(
    model: RobotModel,
    base: BaseParameters,
    signals: Signals,
    settings: SignalSettings,
    *,
    method: Method = "wls",
    start_s: float = -np.inf,
    stop_s: float = np.inf,
) -> Identification:
    """Fit `model` to the rows with `start_s <= t < stop_s`.

    Raises
    ------
    DataError
        If there are too few rows, or a joint has none at all.
    """
    rows = build_rows(model, base, signals, settings).select(start_s, stop_s)
    if rows.t.size == 0:
        raise DataError(f"no rows between {start_s:g} s and {stop_s:g} s: the span lies outside the recording")
    try:
        solution = solve(compress(rows.Y, rows.tau, rows.use), len(base), method)
    except ValueError as error:
        raise DataError(str(error)) from error
    uncertainty = estimate_covariance(rows, solution)
    std = np.where(solution.supported, uncertainty.std, np.inf)
    status = parameter_status(rows, solution, std)
    metrics = torque_metrics(rows.tau, rows.predict(solution.theta), rows.use)
    gravity = check_gravity(model, signals, settings, start_s, stop_s, solution.sigma)
    plausibility = check_plausibility(
        model, base, rows, signals, settings, solution.theta, uncertainty.covariance, solution.sigma
    )
    verdict, reasons = judge(model, rows, signals, solution, status, metrics, gravity, plausibility)
    if verdict == "doubtful":
        status = tuple("doubtful" if s == "determined" else s for s in status)
    return Identification(
        model, base, method, rows, solution, uncertainty, std, status, metrics, gravity, plausibility, verdict, reasons
    )


def parameter_status(rows: Rows, solution: Solution, std: FloatArray) -> tuple[ParameterStatus, ...]:
    """How well the data determine each parameter.

    "determined": the standard deviation is at most 30 % of the value.  "undetermined": it is more,
    and one standard deviation would change the torque by more than the residual noise, so that the
    number says nothing.  "weak": in between; the parameter is small and known to be small.
    """
    p = std.size
    power = np.zeros(p)
    total = 0
    for j in range(rows.Y.shape[0]):
        used = rows.Y[j][:, rows.use[:, j]]
        power += (used**2).sum(axis=1) / solution.sigma[j] ** 2
        total += used.shape[1]
    known = np.isfinite(std)
    effect = np.where(known, np.where(known, std, 0.0) * np.sqrt(power / max(total, 1) * rows.Y.shape[0]), np.inf)
    out: list[ParameterStatus] = []
    for k in range(p):
        if 0.0 < std[k] <= RELATIVE_STD_LIMIT * abs(solution.theta[k]):
            out.append("determined")
        else:
            out.append("undetermined" if not effect[k] <= TORQUE_EFFECT_LIMIT else "weak")
    return tuple(out)


def judge(
    model: RobotModel,
    rows: Rows,
    signals: Signals,
    solution: Solution,
    status: tuple[ParameterStatus, ...],
    metrics: Metrics,
    gravity: GravityCheck,
    plausibility: Plausibility,
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on a fit, with reasons."""
    reasons: list[str] = []
    for j, joint in enumerate(model.joints):
        used = rows.tau[rows.use[:, j], j]
        raw = np.concatenate([piece.tau[:, j] for piece in signals.pieces])
        if used.size == 0:
            reasons.append(f"joint {joint.name} never moves faster than its min_velocity: it has no rows")
        elif np.ptp(raw) <= 1e-9 * max(1.0, float(np.abs(raw).max())):
            reasons.append(f"joint {joint.name}: the torque channel carries no signal, it stays at {raw[0]:.4g}")
        elif not metrics.explained[j] >= EXPLAINED_LIMIT:
            reasons.append(
                f"joint {joint.name}: the model explains {100 * max(metrics.explained[j], 0.0):.0f} % of the torque's "
                f"variance (residual {metrics.rmse[j]:.3g}, torque {np.std(used):.3g} rms): no signal, wrong joint "
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
    if reasons:
        return "not_explained", tuple(reasons)
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
    doubtful = bool(reasons)
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
    undetermined = status.count("undetermined")
    if undetermined:
        reasons.append(f"{undetermined} of {len(status)} parameters are not determined by these data")
    return ("doubtful" if doubtful else "weak_excitation" if reasons else "ok"), tuple(reasons)
