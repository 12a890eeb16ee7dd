"""The consistent fit against an independent solver, on poor data, on impossible data, and on bad input."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import wishart

from drivers.files.robots.file import load_robot
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.least_squares import compress
from rt_core.identification.physical._evidence import UNKNOWN_EFFECT, log_normaliser
from rt_core.identification.physical.coordinates import divergence
from rt_core.identification.physical.fit import effect_scales, fit_consistent
from rt_core.identification.physical.prior import NON_NEGATIVE, ConsistencyError, blocks, physical_prior
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.friction import LAW_VISCOUS
from rt_core.model.inertia import is_physical
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from tests.lab.arms.batch import arm, motion, truth
from tests.lab.arms.physical import fit_simulated, is_consistent, links_of, log_cholesky, perturbed

SIGMA = np.array([0.5, 0.4, 0.2])


def noisy(model: RobotModel, seed: int, noise: float = 1.0) -> tuple[BaseParameters, FloatArray, FloatArray]:
    base = base_parameters(model)
    data = motion(model, 4.0, 50.0, seed)
    Y = np.array(regressor(model, base.layout, data.q, data.dq, data.ddq)).transpose(1, 2, 0)
    rng = np.random.default_rng(seed)
    return base, Y, data.tau + noise * SIGMA[: model.n] * rng.standard_normal(data.tau.shape)


def all_rows(tau: FloatArray) -> np.ndarray:
    return np.ones(tau.shape, dtype=bool)


def two_joints() -> RobotModel:
    model = arm()
    return replace(model, joints=model.joints[1:], inertial=model.inertial[1:], dynamics=None)


@pytest.mark.slow
@pytest.mark.parametrize("viscous", [None, 0.3])
def test_optimum_against_an_independent_solver(viscous: float | None) -> None:
    """The same objective by BFGS over log-Cholesky factors and log effects, from stacked rows."""
    model = two_joints()
    base, Y, tau = noisy(model, 1, 10.0)
    sigma = 10.0 * SIGMA[:2]
    triangles = compress(Y, tau, all_rows(tau))
    drawn = None if viscous is None else np.where(base.standard.law == LAW_VISCOUS, viscous, np.inf)
    fit = fit_consistent(base, model, triangles, sigma, link_weight=2.0, viscous_scale=drawn)
    columns = blocks(base.standard)
    scale, width = effect_scales(columns, base.standard, base.mapping, triangles, fit.prior)
    A = np.concatenate([Y[j].T / sigma[j] for j in range(2)]) @ base.mapping
    z = np.concatenate([tau[:, j] / sigma[j] for j in range(2)])
    R = np.linalg.qr(np.column_stack((A, z)), mode="r")
    A, z = R[:-1, :-1], R[:-1, -1]
    positive = slice(20, 20 + scale.size)

    def cost_of(phi: FloatArray) -> float:
        e = z - A @ phi
        distance = sum(divergence(phi[c], fit.prior.links[i]) for i, c in enumerate(columns.links))
        y, free = phi[columns.positive] / scale, phi[columns.free] / width
        return (
            0.5 * float(e @ e) + 2.0 * distance + UNKNOWN_EFFECT * float((y - np.log(y) - 1.0).sum())
            + 0.5 * float(free @ free) + (0.0 if drawn is None else 0.5 * float(((phi / drawn) ** 2).sum()))
        )  # fmt: skip

    def phi_of(x: FloatArray) -> FloatArray:
        phi = np.zeros(len(base.standard))
        phi[columns.links] = links_of(x[:20])
        phi[columns.positive] = scale * np.exp(x[positive])
        phi[columns.free] = width * x[positive.stop :]
        return phi

    x = np.zeros(len(base.standard))
    x[:20] = log_cholesky(fit.prior.links)
    for _ in range(3):  # restarts with a fresh Hessian: its differences are coarse
        x = minimize(lambda v: cost_of(phi_of(v)), x, method="BFGS", options={"gtol": 1e-6, "maxiter": 300}).x
    assert cost_of(fit.phi) <= cost_of(phi_of(x)) + 1e-9
    assert cost_of(fit.phi) == pytest.approx(cost_of(phi_of(x)), rel=1e-5)
    np.testing.assert_array_less(np.abs(fit.theta - base.theta(phi_of(x))), 0.02 * fit.std + 1e-4)


@pytest.mark.parametrize("weight", [None, 1e-3, 1e3])
def test_every_weight_gives_real_bodies_and_torque_of_the_links(weight: float | None) -> None:
    model = arm()
    base, Y, tau = noisy(model, 2, 5.0)
    fit = fit_consistent(base, model, compress(Y, tau, all_rows(tau)), 5.0 * SIGMA, link_weight=weight)
    assert is_consistent(fit)
    assert (fit.smallest_eigenvalue > 0.0).all()
    assert (fit.phi[np.isin(base.standard.law, NON_NEGATIVE)] > 0.0).all()
    found = replace(model, inertial=fit.inertial, dynamics=fit.dynamics)
    np.testing.assert_allclose(standard_parameters(found, base.standard), fit.phi, rtol=1e-12)
    data = motion(model, 1.0, 50.0, 9)
    full = np.array(regressor(model, base.standard, data.q, data.dq, data.ddq)) @ fit.phi
    reduced = np.array(regressor(model, base.layout, data.q, data.dq, data.ddq)) @ fit.theta
    np.testing.assert_allclose(full, reduced, atol=1e-9 * np.abs(full).max())


def test_a_large_weight_returns_the_prior_and_a_small_one_the_data() -> None:
    model = arm()
    base, Y, tau = noisy(model, 3)
    triangles = compress(Y, tau, all_rows(tau))
    stiff = fit_consistent(base, model, triangles, SIGMA, link_weight=1e9)
    np.testing.assert_allclose(stiff.inertial, stiff.prior.links, atol=2e-3)
    free = fit_consistent(base, model, triangles, SIGMA, link_weight=1e-3)
    z = (free.theta - truth(model, base)) / free.std
    assert np.mean(np.abs(z) < 1.96) > 0.85
    assert np.median(free.data_share) > np.median(stiff.data_share)


def test_negative_friction_becomes_nearly_zero_and_offsets_stay_free() -> None:
    model = arm()
    base, Y, tau = noisy(model, 4)
    names = {name: k for k, name in enumerate(base.names)}
    for joint, name in enumerate(("fv1", "fv2", "fv3")):
        tau[:, joint] -= Y[joint, names[name]] * 8.0  # friction that would drive the joint
    tau[:, 0] -= Y[0, names["off1"]] * 3.0
    fit = fit_consistent(base, replace(model, dynamics=None), compress(Y, tau, all_rows(tau)), SIGMA)
    assert all(0.0 < fit.theta[names[f"fv{j}"]] < 0.3 for j in (1, 2, 3))
    assert fit.theta[names["off1"]] < -1.0


def test_intervals_hold_the_truth_and_shares_tell_data_from_prior() -> None:
    model = load_robot("arm7").model
    base = base_parameters(model)
    true = base.theta(standard_parameters(model, base.standard))
    inside = []
    for seed in range(1, 3):
        fit = fit_simulated(model, seed, base).consistent(prior=perturbed(model, seed))
        inside.append(np.abs(fit.theta - true) < 1.96 * fit.std)
        assert (fit.data_share > 0.5).mean() > 0.7
    assert 0.8 <= np.mean(inside) <= 1.0


def test_a_joint_without_rows_keeps_its_prior_and_says_so() -> None:
    model = arm()
    base, Y, tau = noisy(model, 5)
    use = all_rows(tau)
    use[:, 2] = False
    Y[2] = 0.0
    fit = fit_consistent(base, model, compress(Y, tau, use), SIGMA)
    share = dict(zip(base.names, fit.data_share, strict=True))
    assert is_consistent(fit)
    assert share["fc3"] < 1e-6 < 0.5 < share["fc1"]
    assert fit.phi[base.standard.names.index("fc3")] == pytest.approx(3.0)


def test_impossible_priors_are_replaced_and_named() -> None:
    model = arm()
    layout = base_parameters(model).standard
    inertial = model.inertial.copy()
    inertial[0] = 0.0
    inertial[1, 4:] = 0.0  # a mass and a centre, no inertia
    inertial[2, 9] = 5.0  # breaks the triangle inequality
    prior = physical_prior(replace(model, inertial=inertial), layout)
    assert prior.sources == ("assumed", "shape assumed", "shape assumed")
    assert all(is_physical(phi) for phi in prior.links)
    np.testing.assert_allclose(prior.links[1:, :4], inertial[1:, :4], rtol=1e-12)
    inertial[1, 2] = np.nan
    with pytest.raises(ConsistencyError, match=r"link 2 \(shoulder\)"):
        physical_prior(replace(model, inertial=inertial), layout)
    dynamics = replace(model.dynamics, viscous=np.array([4.0, np.inf, 2.0]))
    with pytest.raises(ConsistencyError, match="prior of fv2 is not finite"):
        physical_prior(replace(model, dynamics=dynamics), layout)


def test_log_normaliser_against_sampling() -> None:
    """The integral over 4x4 matrices by importance sampling from the Wishart density that it should be."""
    weight = 3.0
    density = wishart(df=2.0 * weight + 5.0, scale=np.eye(4) / (2.0 * weight))
    other = wishart(df=2.0 * weight + 6.0, scale=np.eye(4) / (2.0 * weight))
    X = other.rvs(4000, random_state=1)
    distance = np.array([np.trace(x) - np.linalg.slogdet(x)[1] - 4.0 for x in X])
    log_q = np.array([other.logpdf(x) for x in X])
    estimate = np.log(np.mean(np.exp(-weight * distance - log_q)))
    assert estimate == pytest.approx(log_normaliser(1, weight), abs=0.1)
    one = X[0]
    exact = -weight * distance[0] - log_normaliser(1, weight)
    assert exact == pytest.approx(float(density.logpdf(one)), abs=1e-9)


def test_bad_input_is_refused() -> None:
    model = arm()
    base, Y, tau = noisy(model, 6)
    triangles = compress(Y, tau, all_rows(tau))
    none = compress(Y[:, :, :0], tau[:0], all_rows(tau[:0]))
    broken = (replace(triangles[0], z=triangles[0].z * np.nan), *triangles[1:])
    for rows, sigma, options, message in (
        (none, SIGMA, {}, "no rows"), (broken, SIGMA, {}, "NaN"), (triangles, SIGMA, {"prior": two_joints()}, "joints"),
        (triangles, np.array([1.0, np.nan, 1.0]), {}, "positive and finite"),
        (triangles, SIGMA, {"link_weight": EstimatorOptions("physical", weight=0.0).weight}, "at least"),
    ):  # fmt: skip
        with pytest.raises(ConsistencyError, match=message):
            fit_consistent(base, model, rows, sigma, **options)
