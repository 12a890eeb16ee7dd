"""Reduced data against the literal rows: any parameters, any constants, any friction law."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.identification.nonlinear._constants import shaped_terms, with_constants
from rt_core.identification.nonlinear.compressed import CompressedTorque, compress_torque, weighted_solution
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.identification.preprocess import SignalPiece
from rt_core.identification.rows import build_rows
from rt_core.model.base import base_parameters
from rt_core.model.robot import RobotModel, Transmission
from tests.lab.arms.batch import truth as true_theta
from tests.lab.arms.stribeck import SIGMA, harmonic_arm, recording, settings_of, stribeck_arm


def coupled_arm() -> RobotModel:
    """The last motor also turns with the joint before it: its friction acts on two joints."""
    matrix = np.diag([1.0, 1.0, 1.0])
    matrix[2, 1] = 0.6
    return replace(stribeck_arm(), transmission=Transmission(matrix, np.zeros(3), np.ones(3)))


@pytest.mark.parametrize(
    ("share", "arm"), [(None, coupled_arm()), (0.5, stribeck_arm(load=True)), (4.0, harmonic_arm())]
)
def test_costs_are_the_literal_ones(share: float | None, arm: RobotModel) -> None:
    base, settings = base_parameters(arm), settings_of(arm, share)
    signals = recording(arm, seconds=40.0)
    whole, cut = signals.pieces[0], signals.pieces[0].t.size // 3
    parts = (slice(0, cut), slice(cut + 40, None))
    two = (SignalPiece(whole.t[s], whole.q[s], whole.dq[s], whole.ddq[s], whole.tau[s]) for s in parts)
    signals = replace(signals, pieces=tuple(two))
    data = compress_torque(arm, base, signals, settings)
    objective = FullObjective(data, SIGMA)
    rng = np.random.default_rng(0)
    truth = true_theta(arm)
    for k in range(4):
        x = rng.uniform(data.lower, data.upper)
        theta = truth * (rng.uniform(0.5, 1.5, truth.size) if k else 1.0)
        model, shaped = with_constants(arm, base, data.values(x))
        rows = build_rows(model, shaped, signals, settings)
        literal = (np.where(rows.use, rows.tau - rows.predict(theta), 0.0) ** 2).sum(axis=0)
        np.testing.assert_allclose(data.residual_sums(theta, x), literal, rtol=1e-8)
        point = np.concatenate((base.phi(theta), x))
        np.testing.assert_allclose(objective.costs(point[None])[0], (literal / SIGMA**2).sum(), rtol=1e-8)


def test_constants_that_are_no_numbers_have_no_cost() -> None:
    arm = stribeck_arm()
    data = compress_torque(arm, base_parameters(arm), recording(arm, seconds=20.0), settings_of(arm))
    objective = SeparableObjective(data, SIGMA)
    points = np.random.default_rng(2).uniform(data.lower, data.upper, (3, 3))
    points[1, 0], points[2, 2] = np.nan, np.inf
    assert np.isnan(objective.costs(points)).tolist() == [False, True, True]
    assert all(np.isnan(part).all() for part in objective.evaluate(points[1]))
    # that of a term which is switched off does not matter
    assert np.isfinite(SeparableObjective(data, SIGMA, (0,)).costs(points)).tolist() == [True, True, False]


@pytest.mark.parametrize("arm", [harmonic_arm(), coupled_arm()])
def test_normal_equations_against_differences(arm: RobotModel) -> None:
    data = compress_torque(arm, base_parameters(arm), recording(arm, seconds=20.0), settings_of(arm))
    objective = FullObjective(data, SIGMA)
    problem = objective.problem()
    point = np.random.default_rng(3).uniform(problem.lower, problem.upper)
    gradient, normal = objective.normal_equations(point)

    def derivative(k: int) -> float:
        step = np.zeros(point.size)
        step[k] = 1e-5 * max(abs(point[k]), 0.01)
        costs = objective.costs(np.stack((point + step, point - step)))
        return float(costs[0] - costs[1]) / (4.0 * step[k])

    found = [derivative(k) for k in range(point.size)]
    np.testing.assert_allclose(gradient, found, rtol=1e-5, atol=1e-6 * np.abs(gradient).max())
    np.testing.assert_allclose(normal, normal.T, rtol=1e-12)


@pytest.mark.parametrize("arm", [harmonic_arm(), coupled_arm()])
def test_eliminating_the_linear_parameters_is_the_linear_solve(arm: RobotModel) -> None:
    base = base_parameters(arm)
    data = compress_torque(arm, base, recording(arm, seconds=40.0), settings_of(arm))
    objective = SeparableObjective(data, SIGMA)
    full = FullObjective(data, SIGMA)
    rng = np.random.default_rng(5)
    for _ in range(3):
        x = rng.uniform(data.lower, data.upper)
        cost, gradient, normal = objective.evaluate(x)
        theta = weighted_solution(data.triangles(x), len(base), SIGMA).theta
        assert cost == pytest.approx((data.residual_sums(theta, x) / SIGMA**2).sum(), rel=1e-10)
        # the gradient is the full one at the best linear parameters, the matrix that of the slopes left over
        g, N = full.normal_equations(np.concatenate((base.phi(theta), x)))
        p = len(base)
        np.testing.assert_allclose(gradient, g[-x.size :], rtol=1e-6, atol=1e-7 * np.abs(g[-x.size :]).max())
        J = slopes(data, theta, x)
        J_theta = J[:, :p] / np.maximum(np.linalg.norm(J[:, :p], axis=0), 1e-12)
        left = J[:, p:] - J_theta @ np.linalg.lstsq(J_theta, J[:, p:], rcond=1e-12)[0]
        np.testing.assert_allclose(normal, left.T @ left, rtol=1e-5, atol=1e-6 * np.abs(normal).max())
        J_full = np.hstack((J[:, :p] @ base.mapping, J[:, p:]))
        np.testing.assert_allclose(N, J_full.T @ J_full, rtol=1e-7, atol=1e-9 * np.abs(N).max())


def slopes(data: CompressedTorque, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Derivatives of all joints' reduced, whitened predictions by base parameters and constants."""
    blocks = []
    amplitude = data.amplitude @ theta
    for joint, s, (value, derivative) in zip(data.joints, SIGMA, data.shaped(x), strict=True):
        J = np.zeros((joint.z.size, theta.size + x.size))
        J[:, joint.columns] = joint.R
        for k, index in enumerate(joint.terms):
            J[:, : theta.size] += np.outer(value[k], data.amplitude[index])
            J[:, theta.size + data.terms[index].constant] += amplitude[index] * derivative[k]
        blocks.append(J / s)
    return np.vstack(blocks)


def test_terms_and_constants() -> None:
    arm = coupled_arm()
    base = base_parameters(arm)
    constants, terms = shaped_terms(arm, base)
    assert [c.name for c in constants] == ["vb1", "vb2", "vb3"]
    shaped_by_vb3 = {(base.names[t.plus], base.names[t.minus]) for t in terms if t.constant == 2}
    assert shaped_by_vb3 == {("fb3", "fc3"), ("fbm3", "fcm3")}
    model, shaped = with_constants(arm, base, {"vb3": 0.2})
    assert model.dynamics.stribeck_velocity.tolist() == [0.05, 0.04, 0.2]
    at_three = (shaped.standard.source == 2) & np.isin(shaped.standard.law, arm.friction.shaped)
    assert (shaped.standard.shape[at_three, 0] == 0.2).all()
    with pytest.raises(ValueError, match="w9 is not a constant"):
        with_constants(arm, base, {"w9": 1.0})
    for value in (-0.1, np.nan):
        with pytest.raises(ValueError, match="vb3 must be a velocity"):
            with_constants(arm, base, {"vb3": value})
