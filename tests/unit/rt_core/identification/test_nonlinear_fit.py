"""The whole fit: recovery with intervals, both formulations, and honest answers where data say nothing."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

from rt_core.identification.nonlinear.compressed import compress_torque
from rt_core.identification.nonlinear.fit import NonlinearFit, fit_torque
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.search import Search, search_separable
from rt_core.identification.preprocess import Signals
from rt_core.identification.rows import build_rows, row_filter, standing_velocity
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import base_parameters
from rt_core.model.friction import LAW_BREAKAWAY, LAW_COULOMB, Friction
from rt_core.model.robot import RobotModel
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import SearchProgress
from rt_core.optimise.settings import Budget, Settings
from tests.lab.arms.batch import truth as true_theta
from tests.lab.arms.stribeck import SIGMA, harmonic_arm, recording, settings_of, stribeck_arm


def fit_arm(arm: RobotModel | None = None, signals: Signals | None = None, **options: Any) -> NonlinearFit:
    """Fit an arm to a recording of its own; by default the Stribeck arm and a minute."""
    arm = stribeck_arm() if arm is None else arm
    signals = recording(arm) if signals is None else signals
    return fit_torque(arm, base_parameters(arm), signals, settings_of(arm), Search(**options))


fitted = cache(fit_arm)  # without arguments: the fit that several tests look at


def changed(signals: Signals, **channels: np.ndarray) -> Signals:
    return replace(signals, pieces=(replace(signals.pieces[0], **channels),))


def test_constants_and_parameters_lie_in_their_intervals() -> None:
    arm = stribeck_arm()
    base, truth = base_parameters(arm), true_theta(arm)
    inside, z = [], []
    for seed in range(3):
        fit = fit_torque(arm, base, recording(arm, seed=seed), settings_of(arm))
        assert fit.converged
        for c, vb in zip(fit.constants, arm.dynamics.stribeck_velocity, strict=True):
            assert c.status == "determined"
            assert c.value == pytest.approx(vb, rel=0.25)
            assert c.lower < c.value < c.upper
            inside.append(c.lower <= vb <= c.upper)
        z.append((fit.solution.theta - truth) / fit.std)
    assert np.mean(inside) >= 0.85
    assert 0.88 <= np.mean(np.abs(z) < 1.96) <= 1.0
    assert np.abs(z).max() < 4.5


def test_the_result_carries_the_constants() -> None:
    arm, fit = stribeck_arm(), fitted()
    values = [c.value for c in fit.constants]
    np.testing.assert_allclose(fit.model.dynamics.stribeck_velocity, values)
    rows = build_rows(fit.model, fit.base, recording(arm), settings_of(arm))
    np.testing.assert_allclose(fit.rows.Y, rows.Y, rtol=1e-9, atol=1e-12)
    error = np.where(rows.use, rows.tau - rows.predict(fit.solution.theta), 0.0)
    assert fit.cost == pytest.approx((error**2 / fit.sigma**2).sum(), rel=1e-8)
    std = np.sqrt(np.diag(fit.covariance))
    np.testing.assert_allclose(std[: len(fit.base)], fit.std, rtol=1e-12)
    width = [np.log(c.upper / c.lower) / (2 * 1.96) for c in fit.constants]
    np.testing.assert_allclose(std[len(fit.base) :], width, rtol=0.2)  # the profile is nearly a parabola here


def test_the_covariance_holds_what_a_weak_constant_adds() -> None:
    arm = stribeck_arm()
    fit = fit_arm(arm, recording(arm, noise=6.0, seed=1))
    assert [c.status for c in fit.constants] == ["determined", "determined", "weak"]
    p = len(fit.base)
    np.testing.assert_allclose(np.sqrt(np.diag(fit.covariance)[:p]), fit.std, rtol=1e-12)
    # the linear fit's covariance, made larger: its correlations, and still a covariance
    near = estimate_covariance(fit.rows, fit.solution).covariance
    grown = fit.std / np.sqrt(np.diag(near))
    assert grown[fit.base.names.index("fb3")] > 1.5
    correlation = fit.covariance / np.sqrt(np.outer(np.diag(fit.covariance), np.diag(fit.covariance)))
    assert np.abs(correlation).max() <= 1.0 + 1e-9
    assert np.linalg.eigvalsh(correlation).min() > -1e-9


def test_both_formulations_have_the_same_minimum_as_scipy() -> None:
    arm = stribeck_arm()
    base, settings, signals = base_parameters(arm), settings_of(arm), recording(arm, seconds=30.0)
    data = compress_torque(arm, base, signals, settings)
    found = search_separable(data, Search(), SIGMA)
    objective = FullObjective(data, SIGMA)
    near = np.concatenate((base.phi(true_theta(arm)), np.log([0.06, 0.035, 0.09])))
    bounds = {name: (-50.0, 50.0) for name in base.standard.names}
    full = optimise(
        "lm", objective.problem(bounds), Settings(scaling="diagonal", mu_start=1e-4), Budget(lm_iterations=200), x0=near
    )
    assert not full.at_bound.any()
    x = full.x[len(base.standard) :]
    np.testing.assert_allclose(x, found.x, rtol=1e-5)

    rows = data.rows
    layout = base.layout
    fc, fb = np.flatnonzero(layout.law == LAW_COULOMB), np.flatnonzero(layout.law == LAW_BREAKAWAY)

    standing, taps = standing_velocity(arm, settings), row_filter(settings, 200.0, 4)

    def residual(point: np.ndarray) -> np.ndarray:
        theta, vb = point[: len(base)], np.exp(point[len(base) :])
        speed = signals.pieces[0].dq
        effect = np.where(np.abs(speed) >= standing, np.sign(speed) * np.exp(-((speed / vb) ** 2)), 0.0)
        centres = np.searchsorted(signals.pieces[0].t, rows.t)
        smooth = np.stack([np.convolve(e, taps, mode="same") for e in effect.T], axis=1)[centres]
        predicted = rows.predict(theta) + (theta[fb] - theta[fc]) * smooth
        return np.asarray(((rows.tau - predicted) * rows.use / SIGMA).ravel())

    start = np.concatenate((true_theta(arm), np.log([0.05, 0.04, 0.08])))
    peer = least_squares(residual, start, x_scale="jac", xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=15)
    own = float((data.residual_sums(objective.split(full.x)[0], x) / SIGMA**2).sum())
    assert own == pytest.approx(2.0 * peer.cost, rel=1e-8)
    np.testing.assert_allclose(found.x, peer.x[len(base) :], atol=2e-4)


def test_constants_below_the_slowest_speed_are_undetermined() -> None:
    arm = stribeck_arm((1e-3, 1e-3, 1e-3))
    base = base_parameters(arm)
    fit = fit_torque(arm, base, recording(arm), settings_of(arm))
    assert [c.status for c in fit.constants] == ["undetermined"] * 3
    assert all(np.isnan(c.value) and c.lower == 0.0 for c in fit.constants)
    z = (fit.solution.theta - true_theta(arm)) / fit.std
    for name in ("fb1", "fb2", "fb3"):
        assert fit.std[base.names.index(name)] == np.inf
    for name in ("fc1", "fc2", "fc3", "kv1_1"):  # the term is off, the rest as good as ever
        k = base.names.index(name)
        assert fit.std[k] < 0.2
        assert abs(z[k]) < 4.0


@pytest.mark.parametrize("excess", [0.0, -1.0])
def test_without_breakaway_friction_above_coulomb_friction_its_velocity_is_undetermined(excess: float) -> None:
    arm = stribeck_arm()
    arm = replace(arm, dynamics=replace(arm.dynamics, breakaway=arm.dynamics.coulomb + excess))
    fit = fit_arm(arm, recording(arm, seed=3))
    assert [(c.status, c.lower, c.upper) for c in fit.constants] == [("undetermined", 0.0, np.inf)] * 3


@pytest.mark.parametrize("formulation", ["separable", "full"])
def test_bounds_that_exclude_the_truth_are_named(formulation: str) -> None:
    method = "separable" if formulation == "separable" else "pso_lm"
    fit = fit_arm(bounds={"vb1": (0.1, 1.0)}, method=method, formulation=formulation)
    assert fit.at_bound == ("vb1",)
    assert fit.constants[0].status == "doubtful"
    assert np.isnan(fit.constants[0].value)
    assert fit.std[fit.base.names.index("fb1")] == np.inf


def test_a_linear_parameter_at_its_bound_leaves_a_full_search_without_uncertainty() -> None:
    arm = stribeck_arm()
    bounds = {"fc2": (0.0, 3.0)}
    fit = fit_arm(arm, recording(arm, seconds=30.0), method="pso_lm", formulation="full", bounds=bounds)
    assert "fc2" in fit.at_bound
    assert not fit.converged
    assert np.isinf(fit.std).all()


@pytest.mark.parametrize(("formulation", "iterations", "excess"), [("full", 20, 100.0), ("separable", 3, 1.0)])
def test_a_search_that_is_not_done_states_no_uncertainty(formulation: str, iterations: int, excess: float) -> None:
    few = {"budget": Budget(swarm_iterations=iterations), "settings": Settings(particles=20), "seed": 1}
    arm = stribeck_arm()
    fit = fit_arm(arm, recording(arm, seconds=30.0), method="pso_linear", formulation=formulation, **few)
    assert not fit.converged
    assert fit.excess > excess
    assert fit.stopped == "iterations"
    assert {c.status for c in fit.constants} == {"doubtful"}
    assert np.isinf(fit.std).all()
    if formulation == "full":
        np.testing.assert_allclose(fit.base.mapping @ fit.phi, fit.solution.theta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formulation": "Full", "method": "pso_lm"}, "unknown formulation 'Full'"),
        ({"formulation": "full"}, "needs an optimiser"),
        ({"method": "magic"}, "magic"),
        ({"starts": 0}, "at least one start"),
        ({"bounds": {"fc1": (0.0, 1.0)}}, "searches constants only"),
        ({"method": "lm", "formulation": "full", "bounds": {"fx1": (0.0, 1.0)}}, "no such parameter"),
        ({"bounds": {"vb1": (-0.1, 1.0)}}, "not a range of positive"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    arm = stribeck_arm()
    with pytest.raises(ValueError, match=message):
        fit_arm(arm, recording(arm, seconds=30.0), **options)


def test_law_without_constants() -> None:
    arm = replace(stribeck_arm(), friction=Friction())
    base, settings = base_parameters(arm), settings_of(arm)
    signals = recording(arm, seconds=30.0)
    linear = fit_torque(arm, base, signals, settings, Search(weights="ols"))
    assert linear.constants == ()
    full = fit_torque(arm, base, signals, settings, Search("pso_lm", "full", "ols"))
    assert full.converged
    assert full.cost == pytest.approx(linear.cost, rel=1e-4)
    z = (linear.solution.theta - true_theta(arm)) / linear.std
    assert np.abs(z).max() < 4.5


def test_the_harmonic_drive_law() -> None:
    arm = harmonic_arm()
    fit = fit_arm(arm, recording(arm, seed=2))
    truth = dict(zip(("w1_1", "w1_2", "w1_3", "ws1", "ws2", "ws3"), (0.06, 0.08, 0.05, 0.3, 0.25, 0.4), strict=True))
    assert sorted(truth) == sorted(c.name for c in fit.constants)
    assert sum(c.lower <= truth[c.name] <= c.upper for c in fit.constants) >= 5


def test_progress_and_cancellation() -> None:
    arm = stribeck_arm()
    signals = recording(arm, seconds=30.0)
    seen: list[int] = []

    def watch(progress: SearchProgress) -> bool:
        seen.append(progress.iteration)
        return len(seen) % 3 != 0

    fit = fit_arm(arm, signals, callback=watch)
    assert fit.history.size == 3
    assert (seen, fit.stopped, fit.converged) == ([1, 2, 3], "cancelled", False)
    fit = fit_arm(arm, signals, callback=watch, method="pso_lm", formulation="full")
    assert (seen[3:], fit.stopped, fit.converged) == ([0, 1, 2], "cancelled", False)
    for answer, stopped in ((np.False_, "cancelled"), (None, "minimum")):
        fit = fit_arm(arm, signals, starts=2, callback=lambda _, answer=answer: answer)
        assert (fit.stopped, fit.history.size) == (stopped, 1 if stopped == "cancelled" else 2)
