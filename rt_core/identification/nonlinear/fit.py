"""Torque fit with free velocity constants of friction, by the separable or the papers' full formulation.

The weights of the joints belong to the fit: the search is repeated with those of its result until they agree.  An
undetermined term is switched off before the linear parameters are reported.  A constant with one open bound stays, and
the standard deviations of the linear parameters include the effect of its freedom.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from scipy.special import chdtri

from rt_core.identification.least_squares import Method, Solution
from rt_core.identification.methods import Formulation
from rt_core.identification.nonlinear._linear import linear_fit, standard_deviations
from rt_core.identification.nonlinear.compressed import CompressedTorque, compress_torque, weighted_solution
from rt_core.identification.nonlinear.profile import SEEN, ConstantStatus, Profile, pool, profile
from rt_core.identification.nonlinear.search import (
    TOLERANCE,
    Search,
    SearchResult,
    refine_weights,
    search_full,
    search_separable,
)  # fmt: skip
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.identification.preprocess import DataError, Signals, SignalSettings
from rt_core.identification.rows import Rows
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

_ROUNDS = 4
#: A full search has converged if it ends in the joint confidence region of this level about the minimum ...
_LEVEL = 0.95
#: ... and one over the constants alone if its cost exceeds the minimum by at most that of one standard deviation.
_NEAR = 1.0


@dataclass(frozen=True, eq=False)
class ConstantEstimate:
    """A constant with its 95 % interval; value and bounds are NaN where they are unknown."""

    name: str
    unit: str
    value: float
    lower: float
    upper: float
    status: ConstantStatus


@dataclass(frozen=True, eq=False)
class NonlinearFit:
    """Result of `fit_torque`."""

    model: RobotModel  # with the fitted constants; zero (off) for undetermined terms
    base: BaseParameters  # of `model`
    rows: Rows  # built with them
    # base parameters at these constants; with formulation "full" those of the search, not the linear solve's
    solution: Solution
    constants: tuple[ConstantEstimate, ...]
    # (p + m, p + m) of base parameters and logarithms of all constants, with the correlations of the linear fit;
    # infinite on the diagonal where undetermined
    covariance: FloatArray
    # (p,) of the base parameters: the roots of its diagonal.  Includes the freedom of constants without narrow bounds;
    # infinite where undetermined
    std: FloatArray
    inflation: FloatArray  # (n,) as in `Uncertainty`
    sigma: FloatArray  # (n,) the weights' standard deviations [N*m]
    cost: float  # sum of weighted squared residuals at the result
    excess: float  # of `cost` over the minimum
    # whether the excess is within the noise: a full search ends in the joint 95 % region about the minimum, one over
    # the constants alone so near that each is off by at most its standard deviation; `std` includes the distance. If
    # False, uncertainties are infinite
    converged: bool
    at_bound: tuple[str, ...]  # parameters whose bounds exclude a significantly lower cost
    phi: FloatArray | None  # (P,) standard parameters of the full formulation
    # lowest cost after each iteration (or start), with the weights that the search began with
    history: FloatArray
    evaluations: int
    stopped: str  # as in `SearchOutcome`; "minimum" for the separable search


def fit_torque(
    model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings,
    search: Search | None = None, load_theta: FloatArray | None = None,
) -> NonlinearFit:  # fmt: skip
    """Fit base parameters and velocity constants to the rows in the part of the signals.

    `search` says how the constants are found, by default as `Search()`; `load_theta` (p,) is as in `build_rows`.

    Raises
    ------
    DataError
        If the signals are not finite, or there are no more rows than unknowns.
    ValueError
        For bounds of an unknown parameter, an unknown formulation, a method that does not fit it, or no starts.
    """
    search = Search() if search is None else search
    if search.formulation not in get_args(Formulation):
        known = ", ".join(get_args(Formulation))
        raise ValueError(f"unknown formulation {search.formulation!r}: choose from {known}")
    if search.starts < 1:
        raise ValueError(f"the search needs at least one start, not {search.starts}")
    for number, piece in enumerate(signals.pieces):
        for name in ("q", "dq", "ddq", "tau"):
            if not np.isfinite(getattr(piece, name)).all():
                raise DataError(f"stretch {number + 1}, channel {name}: not a number; mark such samples invalid")
    symbols = {name for name, _, _ in model.friction.constants}
    bounds = search.bounds or {}
    own = {k: v for k, v in bounds.items() if any(k.startswith(s) for s in symbols)}
    other = {k: v for k, v in bounds.items() if k not in own}
    data = compress_torque(model, base, signals, settings, bounds=own, load_theta=load_theta)
    if search.formulation == "full":
        result, held = search_full(data, replace(search, bounds=other))
        return conclude(data, result, bounded=bool(own), held=held, limits=other)
    if other:
        raise ValueError(f"bounds for {sorted(other)[0]!r}: the separable formulation searches constants only")
    return conclude(data, search_separable(data, search), weights=search.weights, bounded=bool(own))


def conclude(
    data: CompressedTorque, search: SearchResult, *, weights: Method | None = None, bounded: bool = False,
    held: tuple[str, ...] = (), limits: Mapping[str, tuple[float, float]] | None = None,
) -> NonlinearFit:  # fmt: skip
    """Fit the linear parameters at the end of a search, with intervals of the constants and covariance.

    `weights` renews the weights where the constants still move; None keeps those of the search.  `bounded`: the user
    gave the range of some constants; `held` are parameters that are known to be at a bound, `limits` the bounds of
    standard parameters.
    """
    m, p = len(data.constants), len(data.base)
    x, sigma = search.x, search.sigma
    without: tuple[int, ...] = ()
    profiles: dict[int, Profile] = {}
    nearest, least = _nearest(data, x, sigma)
    for _ in range(_ROUNDS):
        # With the final weights another of several minima may be the lowest.
        if not search.sweeps or m == 0 or SeparableObjective(data, sigma).costs(x[None])[0] <= least:
            break
        x = nearest
        if weights is not None:
            x, sigma, _ = refine_weights(data, x, sigma, weights)
        nearest, least = _nearest(data, x, sigma)
    state = linear_fit(data, x, sigma, search.phi, without)
    cost = float((data.residual_sums(state.solution.theta, x) / sigma**2).sum())
    noise = float(np.max(state.solution.sigma**2 / sigma**2))
    reach = noise * (_NEAR if search.phi is None else float(chdtri(p + m, 1.0 - _LEVEL)))
    converged = cost - least <= reach and search.stopped != "cancelled"
    displaced = _distance(data, state.solution.theta, nearest, sigma)
    if converged:
        for _ in range(_ROUNDS):
            objective = SeparableObjective(data, sigma, without)
            better: FloatArray | None = None
            for c in range(m):
                if c not in without:
                    absent = SeparableObjective(data, sigma, (*without, c))
                    profiles[c] = profile(objective, absent, nearest, c, state.kappa(data, c))
                    if _inverted(data, state.solution.theta, c):
                        profiles[c] = replace(profiles[c], seen=False)
                    better = profiles[c].better if better is None else better
            unseen = tuple(c for c in range(m) if c not in without and not profiles[c].seen)
            if search.phi is not None or (better is None and not unseen):
                break
            without = without if better is not None else (*without, *unseen)
            free = np.array([c not in without for c in range(m)], dtype=bool)
            objective = SeparableObjective(data, sigma, without)
            nearest, least = objective.descend(nearest if better is None else better, free, TOLERANCE)
            if search.descends:
                x = nearest
                if weights is not None:
                    x, sigma, _ = refine_weights(data, x, sigma, weights, without)
                nearest = x
            state = linear_fit(data, x, sigma, None, without)
            displaced = _distance(data, state.solution.theta, nearest, sigma, without)
            if not search.descends and float(objective.costs(x[None])[0]) - least > reach:
                converged = False
                profiles.clear()
                break
        profiles = pool(data, profiles)
        triangles = data.triangles(x, without)
        cost = sum(t.residual_sum(state.solution.theta) / s**2 for t, s in zip(triangles, sigma, strict=True))
    if not converged:
        held += tuple(n for n in _excluded(data, nearest, sigma, limits) if n not in held)
    if bounded:
        held += tuple(n for n in _outside(data, sigma, without, x, noise) if n not in held)
    std = np.full(p, np.inf)
    if converged:
        std = np.hypot(standard_deviations(data, state, profiles, without, sigma), displaced)
    constants = []
    for c, constant in enumerate(data.constants):
        status: ConstantStatus = profiles[c].status if c in profiles else "doubtful"
        status = "doubtful" if constant.name in held else status
        low, high = np.nan, np.nan
        if c in profiles:
            seen = profiles[c].seen
            ends = min(profiles[c].lower, float(x[c])), max(profiles[c].upper, float(x[c]))
            low, high = (np.exp(ends[0]), np.exp(ends[1])) if seen else (0.0, np.inf)
        known = status in ("determined", "weak")
        if status == "doubtful":
            low = high = np.nan
            shaped = [k for t in data.terms if t.constant == c for k in (t.plus, t.minus) if k >= 0]
            std[shaped] = np.inf
        value = float(np.exp(x[c])) if known else float("nan")
        constants.append(ConstantEstimate(constant.name, constant.unit, value, float(low), float(high), status))
    excess = max(float(cost - SeparableObjective(data, sigma, without).costs(nearest[None])[0]), 0.0)
    covariance = _scaled_to(state.covariance, std)
    if not converged:
        covariance[np.diag_indices(p + m)] = np.inf
    return NonlinearFit(
        state.model, state.base, state.rows, state.solution, tuple(constants), covariance, std, state.inflation, sigma,
        float(cost), excess, converged, held, search.phi, search.history, search.evaluations, search.stopped,
    )  # fmt: skip


def _distance(
    data: CompressedTorque, theta: FloatArray, x: FloatArray, sigma: FloatArray, without: tuple[int, ...] = ()
) -> FloatArray:
    """Return the distance (p,) of `theta` from the base parameters at constants `x`."""
    return np.abs(theta - weighted_solution(data.triangles(x, without), theta.size, sigma).theta)


def _scaled_to(covariance: FloatArray, std: FloatArray) -> FloatArray:
    """Scale a covariance so that its first parameters have the standard deviations `std` (p,)."""
    p = std.size
    variance = np.diag(covariance)[:p]
    known = np.isfinite(std) & (variance > 0.0)
    grown = np.ones(covariance.shape[0])
    grown[:p][known] = std[known] / np.sqrt(variance[known])
    scaled = covariance * np.outer(grown, grown)
    scaled[np.arange(p), np.arange(p)] = std**2
    return scaled


def _nearest(data: CompressedTorque, x: FloatArray, sigma: FloatArray) -> tuple[FloatArray, float]:
    """Return the lower minimum of a descent from constants `x` and one after a sweep from there, and its cost."""
    objective = SeparableObjective(data, sigma)
    everything = np.ones(x.size, dtype=bool)
    found = [objective.descend(start, everything, TOLERANCE) for start in (x, objective.sweep(x))]
    return min(found, key=lambda pair: pair[1])


def _inverted(data: CompressedTorque, theta: FloatArray, c: int) -> bool:
    """Whether breakaway friction is below Coulomb friction: a model error, not a Stribeck effect."""
    rows = [k for k, term in enumerate(data.terms) if term.constant == c and term.minus >= 0 and not term.warm]
    return bool(rows) and float((data.amplitude[rows] @ theta).sum()) <= 0.0


def _excluded(
    data: CompressedTorque, x: FloatArray, sigma: FloatArray, limits: Mapping[str, tuple[float, float]] | None
) -> tuple[str, ...]:
    """Return the parameters whose value without bounds, at constants `x`, lies outside `limits`."""
    theta = weighted_solution(data.triangles(x), len(data.base), sigma).theta
    alone = np.count_nonzero(data.base.mapping, axis=1) == 1
    values = {name: theta[k] for k, name in enumerate(data.base.names) if alone[k]}
    return tuple(n for n, (low, high) in (limits or {}).items() if n in values and not low <= values[n] <= high)


def _outside(
    data: CompressedTorque, sigma: FloatArray, without: tuple[int, ...], x: FloatArray, noise: float
) -> tuple[str, ...]:
    """Return the constants whose bounds exclude a significantly lower cost."""
    narrowed = (data.box[0] > data.lower) | (data.box[1] < data.upper)
    off = tuple(c for c in without if not narrowed[c])  # bounds may be why a term is off
    inner = SeparableObjective(data, sigma, without)
    wide = SeparableObjective(data, sigma, off, np.stack((data.lower, data.upper)))
    free = np.array([c not in off for c in range(x.size)], dtype=bool)
    far, cost = wide.descend(wide.sweep(x), free, TOLERANCE)
    if inner.evaluate(x)[0] - cost <= SEEN * noise:
        return ()
    out = free & ((far < data.box[0]) | (far > data.box[1]))
    return tuple(c.name for c, o in zip(data.constants, out, strict=True) if o)
