"""One interface to all batch estimators: filtered signals in, parameters with their covariance out.

The torque is linear in everything but the velocity constants of friction.  Where the model has such constants, a search
finds them first; then the chosen linear method does the rest:

    ols wls iwls tls iv        least squares with ever fewer assumptions about the noise
    physical                   every link a possible body, drawn towards a prior
    pso pso_linear tcs_pso ga lm pso_lm
                               wls, with this optimiser over the constants alone (separable), or over all standard
                               parameters at once (full), as Jing et al. 2025 do
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, cast

import numpy as np

from rt_core.identification.essential import essential_parameters
from rt_core.identification.instrumental import smoothed, solve_instrumental
from rt_core.identification.least_squares import METHODS as WEIGHTINGS
from rt_core.identification.least_squares import JointTriangle, Solution, compress, solve
from rt_core.identification.least_squares import Method as Weighting
from rt_core.identification.methods import ON_ROWS, SEARCHES, Constants, Formulation, Method
from rt_core.identification.nonlinear.fit import ConstantEstimate, NonlinearFit, fit_torque
from rt_core.identification.nonlinear.search import Search
from rt_core.identification.physical.fit import ConsistentFit, fit_consistent, noise_inflation, viscous_scales
from rt_core.identification.preprocess import DataError, Signals, SignalSettings
from rt_core.identification.robust import Loss
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.status import parameter_status
from rt_core.identification.total_least_squares import encoder_noise, noise_covariance, solve_total
from rt_core.identification.uncertainty import Uncertainty, estimate_covariance
from rt_core.model.base import BaseParameters
from rt_core.model.friction import DRY, LAW_OFFSET
from rt_core.model.robot import RobotModel
from rt_core.optimise.run import Callback
from rt_core.optimise.settings import Name
from rt_core.settings import AtLeastOne, Bounded, Count
from rt_core.types import BoolArray, FloatArray

_MIN_SIGMA = 1e-9  # of the largest: a joint without rows has no residual
_LOAD_ROUNDS = 8
_LOAD_TOLERANCE = 1e-4  # change of a parameter in its standard deviations
_INSTRUMENT_BAND = 0.5  # cut-off of the states of the instruments, as a share of the regressor's


@dataclass(frozen=True)
class EstimatorOptions(Bounded):
    """Choice of the estimator."""

    refusal: ClassVar[type[ValueError]] = DataError
    method: Method = "wls"
    # unknowns of a search: the constants ("separable"), or all standard parameters and the constants ("full")
    formulation: Formulation = "separable"
    loss: Loss | None = "bisquare"  # loss of `iwls` for outliers; None weights joints only
    # whether the velocity constants of friction are searched for or taken from the model
    constants: Constants = "search"
    essential: bool = False  # drop parameters that the data do not support (`ols`, `wls`, `iwls` and the searches)
    seed: Count = 0  # of the search
    starts: AtLeastOne = 8  # likewise
    bounds: Mapping[str, tuple[float, float]] | None = None  # ranges of the search, by parameter name
    prior: RobotModel | None = None  # of `physical`; None for the model itself
    weight: float | None = None  # of the prior; None to choose it from the data; `fit_consistent` has its bound

    def __post_init__(self) -> None:
        """Raise `DataError` for options that contradict each other."""
        super().__post_init__()
        if self.formulation == "full" and self.method not in SEARCHES:
            raise DataError(f"the full formulation is searched: choose one of {', '.join(SEARCHES)}, not {self.method}")
        if self.essential and (self.method not in (*WEIGHTINGS, *SEARCHES) or self.formulation == "full"):
            raise DataError(f"essential parameters are tested on a least-squares fit, not on {self.method}")
        if self.constants == "given" and self.method in SEARCHES and self.formulation == "separable":
            raise DataError(f"{self.method} searches for the constants of friction: they cannot be given")
        if (self.prior is not None or self.weight is not None) and self.method != "physical":
            raise DataError(f"a prior and its weight belong to the method physical, not to {self.method}")

    @property
    def module(self) -> str | None:
        """Module of a method of `ON_ROWS`; `iwls` without a loss is none of them, but a weighting."""
        return None if self.method == "iwls" and self.loss is None else ON_ROWS.get(self.method)


@dataclass(frozen=True)
class Estimate:
    """Estimated parameters and their uncertainty."""

    model: RobotModel  # with the friction constants that were found
    base: BaseParameters  # of `model`
    rows: Rows  # built with them
    solution: Solution
    uncertainty: Uncertainty
    std: FloatArray  # (p,) standard deviations, infinite for undetermined parameters
    constants: tuple[ConstantEstimate, ...]  # velocity constants of friction; empty without a search
    search: NonlinearFit | None
    consistent: ConsistentFit | None  # the full set of standard parameters, of `physical`
    dropped: BoolArray  # (p,) parameters held at zero because the data do not support them
    weights: FloatArray | None  # (K, n) final weights of the rows, of `iwls`
    settled: bool = True  # False if the weights of `iwls`, or load-dependent friction and its load, did not settle
    free: "Estimate | None" = None  # estimate from the same data without the constraints of `consistent`
    full: "Estimate | None" = None  # the fit from which parameters were dropped

    @property
    def theta(self) -> FloatArray:
        """(p,) base parameters."""
        return self.solution.theta


def estimate(
    model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings,
    options: EstimatorOptions | None = None, callback: Callback | None = None,
) -> Estimate:  # fmt: skip
    """Estimate the parameters of `model` from the rows in the part of the signals.

    `callback` receives the progress of a search; it ends it by returning False.

    Raises
    ------
    DataError
        If the data do not suffice, or lack what the method needs.
    """
    options = EstimatorOptions() if options is None else options
    job = _Job(model, base, signals, settings, options, callback)
    try:
        found = job.run(None)
        if base.layout.has_load:
            found = job.settle_load(found)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error
    return found


def disturb(x: FloatArray, seed: int = 0) -> FloatArray:
    """Return channels `x` (N, n) with as much noise of their sensor again, which `tls` compares with."""
    valid = np.isfinite(x).all(axis=1)
    out = x.copy()
    out[valid] += encoder_noise(x[valid], np.random.default_rng(seed))
    return out


@dataclass(frozen=True)
class _Job:
    """Arguments of one estimation, which stay the same while load and parameters are iterated."""

    model: RobotModel
    base: BaseParameters
    signals: Signals
    settings: SignalSettings
    options: EstimatorOptions
    callback: Callback | None

    def settle_load(self, found: Estimate) -> Estimate:
        """Repeat until the load that friction depends on agrees with the estimate."""
        for _ in range(_LOAD_ROUNDS):
            previous = found.theta
            found = self.run(previous)
            if found.search is not None and found.search.stopped == "cancelled":
                return found
            known = np.isfinite(found.std) & (found.std > 0.0)
            if (np.abs(found.theta - previous)[known] <= _LOAD_TOLERANCE * found.std[known]).all():
                return found
        return replace(found, settled=False)

    def run(self, load_theta: FloatArray | None) -> Estimate:
        options = self.options
        is_search = options.method in SEARCHES
        if not is_search and (options.constants == "given" or not self.model.friction.constants):
            if options.bounds:
                raise DataError(f"bounds for {sorted(options.bounds)[0]!r}: nothing is searched for")
            rows = self.rows(self.model, self.base, self.signals, load_theta)
            return self._linear(self.model, self.base, rows, load_theta, None)
        weighting = cast(Weighting, options.method) if options.method in ("ols", "iwls") else "wls"
        search = Search(
            cast(Name, options.method) if is_search else "separable", options.formulation, weighting, options.seed,
            options.starts, options.bounds, callback=self.callback,
        )  # fmt: skip
        fit = fit_torque(self.model, self.base, self.signals, self.settings, search, load_theta)
        if options.method in ("tls", "iv", "physical") or options.module is not None:
            found = self._linear(fit.model, fit.base, fit.rows, load_theta, fit)
            return _widened(found, fit)
        p = len(fit.base)
        uncertainty = Uncertainty(fit.covariance[:p, :p], fit.inflation)
        found = Estimate(
            fit.model, fit.base, fit.rows, fit.solution, uncertainty, fit.std, fit.constants, fit, None,
            np.zeros(p, dtype=bool), None,
        )  # fmt: skip
        return _essential(found) if options.essential else found

    def rows(
        self, model: RobotModel, base: BaseParameters, signals: Signals, load_theta: FloatArray | None, *,
        slow: bool = True,
    ) -> Rows:  # fmt: skip
        rows = build_rows(model, base, signals, self.settings, load_theta=load_theta, slow=slow)
        start_s, stop_s = self.signals.part
        rows = rows.select(start_s, stop_s)
        if rows.t.size == 0:
            raise DataError(f"no rows between {start_s:g} s and {stop_s:g} s: the span lies outside the recording")
        return rows

    def _linear(
        self, model: RobotModel, base: BaseParameters, rows: Rows, load_theta: FloatArray | None,
        search: NonlinearFit | None,
    ) -> Estimate:  # fmt: skip
        """Apply the linear method to rows whose friction constants are fixed."""
        options, p = self.options, len(base)
        weights: FloatArray | None = None
        settled = True
        consistent: ConsistentFit | None = None
        free: Estimate | None = None
        if options.method in ("tls", "iv"):
            # Both methods misjudge friction where noise decides the sign of the velocity.
            rows = self.rows(model, base, self.signals, load_theta, slow=False)
        if options.module is not None:
            fit_rows = import_module(f".{options.module}", __package__).fit_rows
            solution, uncertainty, weights, settled = fit_rows(rows, options.loss)
        elif options.method == "tls":
            if self.signals.disturbed is None:
                raise DataError("tls compares with a recording to which noise was added: give one")
            # Without a mask: a sample that is masked in one of the two alone would pass for noise.
            unmasked = replace(self, settings=replace(self.settings, min_velocity=None))
            plain, other = (unmasked.rows(model, base, s, load_theta) for s in (self.signals, self.signals.disturbed))
            use = rows.use & other.use
            exact = np.isin(base.layout.law, (LAW_OFFSET, *DRY))  # noise does not affect them, away from reversals
            rows = replace(rows, use=use)
            solution = solve_total(rows.Y, rows.tau, use, noise_covariance(plain.Y, other.Y, use, exact))
            uncertainty = estimate_covariance(rows, solution)
        elif options.method == "iv":
            calm = smoothed(self.signals, _INSTRUMENT_BAND * self.settings.cutoff_hz, self.settings)
            other = self.rows(model, base, calm, load_theta, slow=False)
            rows = replace(rows, use=rows.use & other.use)
            found = solve_instrumental(rows.Y, rows.tau, rows.use, other.Y)
            solution = found.solution
            uncertainty = estimate_covariance(rows, solution, design=found.design(other.Y))
        else:
            weighting = cast(Weighting, options.method) if options.method in ("ols", "iwls") else "wls"
            triangles = compress(rows.Y, rows.tau, rows.use)
            solution = solve(triangles, p, weighting)
            uncertainty = estimate_covariance(rows, solution)
            if options.method == "physical":
                consistent = _consistent(base, model, triangles, solution, uncertainty, options)
                nothing = np.zeros(p, dtype=bool)
                free = _opened(
                    Estimate(model, base, rows, solution, uncertainty, uncertainty.std, (), search, None, nothing, None)
                )
                solution = replace(solution, theta=consistent.theta)
                solution = replace(solution, sigma=_spread(triangles, solution))
                uncertainty = Uncertainty(consistent.covariance, uncertainty.inflation)
        std = uncertainty.std
        constants = () if search is None else search.constants
        found_ = Estimate(
            model, base, rows, solution, uncertainty, std, constants, search, consistent, np.zeros(p, dtype=bool),
            weights, settled, free,
        )  # fmt: skip
        found_ = found_ if consistent is not None else _opened(found_)
        return _essential(found_) if options.essential else found_


def _consistent(
    base: BaseParameters, model: RobotModel, triangles: Sequence[JointTriangle], solution: Solution,
    uncertainty: Uncertainty, options: EstimatorOptions,
) -> ConsistentFit:  # fmt: skip
    """Fit consistent parameters in two rounds, the second with the standard deviations that the first left.

    The free fit explains more than possible bodies can, model error included. Taken as the noise, its residual counts
    the data for more than they are worth against the prior: about twice as much on a poorly excited arm. The inflation
    stays that of the free residual: what the consistent one has more is the pull of the prior, slow as the motion
    itself, and taken as noise it would strengthen that pull (the LWR4's data then count a tenth instead of a half, and
    its error on the motion of the fit is larger, and on others hardly smaller).
    The second round also draws viscous friction towards zero, by the scale that the first found (`viscous_scales`).
    """
    inflation = noise_inflation(triangles, solution, uncertainty.covariance)
    given: dict[str, Any] = {"link_weight": options.weight, "prior": options.prior}
    first = fit_consistent(base, model, triangles, solution.sigma, inflation=inflation, **given)
    sigma = _spread(triangles, replace(solution, theta=first.theta))
    scales = viscous_scales(first, base.standard, model)
    return fit_consistent(base, model, triangles, sigma, inflation=inflation, viscous_scale=scales, **given)


def _opened(found: Estimate) -> Estimate:
    """Set the variance of undetermined parameters to infinity, in the covariance and the standard deviations."""
    open_ = ~(found.solution.supported & np.isfinite(found.std))
    covariance = found.uncertainty.covariance.copy()
    covariance[open_] = 0.0
    covariance[:, open_] = 0.0
    covariance[open_, open_] = np.inf
    uncertainty = replace(found.uncertainty, covariance=covariance)
    return replace(found, uncertainty=uncertainty, std=np.where(open_, np.inf, found.std))


def _widened(found: Estimate, fit: NonlinearFit) -> Estimate:
    """Widen a covariance that takes the friction constants as known, by their effect in the search's own fit."""
    p = len(found.base)
    fixed = estimate_covariance(fit.rows, fit.solution).std
    free = np.sqrt(np.diag(fit.covariance)[:p])
    with np.errstate(invalid="ignore", divide="ignore"):
        grown = np.where((fixed > 0.0) & np.isfinite(free), np.maximum(free / fixed, 1.0), 1.0)
    covariance = found.uncertainty.covariance * np.outer(grown, grown)
    covariance[np.isnan(covariance)] = 0.0  # an infinite variance keeps no covariances
    std = np.where(np.isfinite(fit.std), found.std * grown, np.inf)
    full = None if found.full is None else _widened(found.full, fit)
    widened = replace(found, uncertainty=replace(found.uncertainty, covariance=covariance), std=std, full=full)
    return widened if found.consistent is not None else _opened(widened)


def _essential(found: Estimate) -> Estimate:
    """Drop parameters that are known to be small; undetermined ones stay undetermined."""
    rows, solution = found.rows, found.solution
    status = parameter_status(rows, solution, found.std)
    known = np.isfinite(found.std)
    index = np.flatnonzero(known)
    number = np.cumsum(known) - 1
    triangles = compress(rows.Y, rows.tau, rows.use, found.weights)
    spread = _spread(triangles, solution)
    parts = [
        replace(
            t, columns=number[t.columns[known[t.columns]]], R=t.R[:, known[t.columns]],
            z=t.z - t.R[:, ~known[t.columns]] @ solution.theta[t.columns[~known[t.columns]]],
        )
        for t in triangles
    ]  # fmt: skip
    covariance = found.uncertainty.covariance[np.ix_(known, known)]
    inner = replace(
        solution, theta=solution.theta[known], inverse_root=solution.inverse_root[known],
        supported=solution.supported[known], sigma=spread,
    )  # fmt: skip
    keep = np.array([status[k] == "undetermined" for k in index])
    reduced = essential_parameters(parts, inner, replace(found.uncertainty, covariance=covariance), keep=keep)
    theta, std, dropped = solution.theta.copy(), np.full(known.size, np.inf), np.zeros(known.size, dtype=bool)
    theta[index] = reduced.solution.theta
    std[index] = np.where(reduced.kept | keep, np.sqrt(np.maximum(np.diag(reduced.covariance), 0.0)), 0.0)
    std[index[keep & ~reduced.kept]] = np.inf
    dropped[index[~reduced.kept & ~keep]] = True
    whole = np.zeros_like(found.uncertainty.covariance)
    whole[np.ix_(known, known)] = reduced.covariance
    root = np.zeros((known.size, reduced.solution.inverse_root.shape[1]))
    root[index] = reduced.solution.inverse_root
    # condition numbers and support stay those of the full fit: a smaller model does not make the motion richer
    sigma = solution.sigma * reduced.solution.sigma / spread
    smaller = replace(solution, theta=theta, sigma=sigma, inverse_root=root, leverage=reduced.solution.leverage)
    found = replace(
        found, solution=smaller, uncertainty=replace(found.uncertainty, covariance=whole), std=std, dropped=dropped,
        full=found,
    )  # fmt: skip
    return _opened(found)


def _spread(triangles: Sequence[JointTriangle], solution: Solution) -> FloatArray:
    """Return the residual standard deviations (n,) of `solution` in `triangles`."""
    pairs = zip(triangles, solution.leverage, strict=True)
    spread = np.sqrt([t.residual_sum(solution.theta) / max(t.count - h, 1.0) for t, h in pairs])
    return np.asarray(np.maximum(spread, _MIN_SIGMA * max(float(spread.max()), _MIN_SIGMA)))
