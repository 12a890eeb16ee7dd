"""A full set of consistent links from base parameters alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import NonlinearConstraint, minimize
from scipy.spatial.transform import Rotation

from drivers.files.robots.file import load_robot
from rt_core.identification.physical.coordinates import divergence
from rt_core.identification.physical.prior import ConsistencyError, blocks, physical_prior, stand_in_bodies
from rt_core.identification.physical.recovery import complete_parameters
from rt_core.model.base import base_parameters
from rt_core.model.inertia import from_pseudo_inertia, is_physical, pseudo_inertia, transform_inertial
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import Joint, RobotModel
from rt_core.types import FloatArray
from tests.lab.arms.batch import arm, truth
from tests.lab.arms.physical import fit_simulated, links_of, log_cholesky, perturbed


@pytest.mark.parametrize(("name", "known"), [("arm7", True), ("space6", False)])
def test_consistent_base_parameters_come_back_with_the_same_torque(name: str, known: bool) -> None:
    model = load_robot(name).model
    base = base_parameters(model)
    phi = standard_parameters(model, base.standard)
    theta = base.theta(phi)
    prior = perturbed(model, 1) if known else replace(model, inertial=None, dynamics=None)
    found = complete_parameters(base, model, theta, prior=prior)
    assert found.exact
    links = found.phi[blocks(base.standard).links]
    assert all(is_physical(link) for link in links)
    q, dq, ddq = np.random.default_rng(1).uniform(-2.0, 2.0, (3, 40, model.n))
    torque = np.array(regressor(model, base.standard, q, dq, ddq)) @ found.phi
    expected = np.array(regressor(model, base.standard, q, dq, ddq)) @ phi
    np.testing.assert_allclose(torque, expected, atol=1e-9 * np.abs(expected).max())


def test_it_is_the_nearest_to_the_prior() -> None:
    """Against an SQP solver over log-Cholesky factors with the base parameters as constraints."""
    full = arm()
    model = replace(full, joints=full.joints[1:], inertial=full.inertial[1:], dynamics=None, armature=False)
    model = replace(model, offset=False)
    base = base_parameters(model)
    prior = perturbed(model, 3, 0.4)
    theta = base.theta(standard_parameters(model, base.standard))
    theta[~np.asarray(base.layout.is_link)] = 1.0
    found = complete_parameters(base, model, theta, prior=prior)
    assert found.exact
    columns = blocks(base.standard)
    links = physical_prior(prior, base.standard).links

    def distance(x: FloatArray) -> float:
        return sum(divergence(phi, links[i]) for i, phi in enumerate(links_of(x)))

    rigid = np.flatnonzero(base.layout.is_link)
    mapping = base.mapping[np.ix_(rigid, columns.links.ravel())]
    constraint = NonlinearConstraint(lambda v: mapping @ links_of(v).ravel() - theta[rigid], 0.0, 0.0)
    other = minimize(
        distance, log_cholesky(links), method="SLSQP", constraints=[constraint], options={"ftol": 1e-13, "maxiter": 500}
    )
    assert np.abs(constraint.fun(other.x)).max() < 1e-8
    own = sum(divergence(found.phi[c], links[i]) for i, c in enumerate(columns.links))
    assert own == pytest.approx(distance(other.x), rel=1e-4)


def test_impossible_base_parameters_are_moved_as_little_as_possible() -> None:
    model = load_robot("kuka_lwr4").model
    data = fit_simulated(model, 1, amplitude=0.12, harmonics=2, candidates=1)
    theta = data.solution.theta.copy()
    theta[data.base.names.index("fv1")] = -20.0 * np.sqrt(data.covariance[0, 0])
    found = complete_parameters(data.base, model, theta, data.covariance, perturbed(model, 1))
    assert not found.exact
    assert all(is_physical(link) for link in found.phi[blocks(data.base.standard).links])
    assert 0.0 < found.deviation < np.inf
    moved = data.base.theta(found.phi) - theta
    information = np.linalg.inv(data.covariance)
    consistent = data.base.theta(standard_parameters(model, data.base.standard)) - theta  # another possible set
    assert moved @ information @ moved <= consistent @ information @ consistent


def test_directions_without_variance_are_left_to_the_prior() -> None:
    model = arm()
    base = base_parameters(model)
    theta = truth(model, base)
    free = base.names.index("fc3")
    covariance = 1e-4 * np.eye(len(base))
    covariance[free] = covariance[:, free] = 0.0
    theta[free] = 0.0
    found = complete_parameters(base, model, theta, covariance)
    assert found.exact
    assert base.theta(found.phi)[free] == pytest.approx(3.0, rel=1e-6)


def test_bad_input_is_refused() -> None:
    model = arm()
    base = base_parameters(model)
    theta = truth(model, base)
    for given, message in (
        ((theta[:-1],), "finite base parameters"), ((theta * np.nan,), "finite base parameters"),
        ((theta, np.eye(3)), "covariance"), ((theta, np.zeros((len(base), len(base)))), "zero"),
    ):  # fmt: skip
        with pytest.raises(ConsistencyError, match=message):
            complete_parameters(base, model, *given)


def body(rng: np.random.Generator) -> FloatArray:
    points = rng.standard_normal((20, 3)) * rng.uniform(0.02, 0.2, 3) + rng.uniform(-0.2, 0.2, 3)
    cloud = np.column_stack((points, np.ones(20)))
    return from_pseudo_inertia(rng.uniform(0.5, 5.0) / 20.0 * cloud.T @ cloud)


@pytest.mark.parametrize("seed", range(2))
def test_divergence_depends_on_neither_frame_nor_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = body(rng), body(rng)
    value = divergence(a, b)
    assert value > 0.0
    turn, shift = Rotation.random(random_state=seed).as_matrix(), rng.uniform(-2.0, 2.0, 3)
    moved = divergence(transform_inertial(a, turn, shift), transform_inertial(b, turn, shift))
    assert moved == pytest.approx(value, rel=1e-8)
    units = np.diag([1e3, 1e3, 1e3, 1.0])  # millimetres and grams
    other = [from_pseudo_inertia(1e3 * units @ pseudo_inertia(x) @ units) for x in (a, b)]
    assert divergence(*other) == pytest.approx(value, rel=1e-8)


def test_divergence_is_zero_at_the_prior_and_infinite_outside() -> None:
    a = body(np.random.default_rng(0))
    assert divergence(a, a) == pytest.approx(0.0, abs=1e-12)
    assert divergence(0.5 * a, a) == pytest.approx(4.0 * (0.5 - np.log(0.5) - 1.0))
    flat = a.copy()
    flat[4] = -flat[4]
    assert divergence(flat, a) == np.inf


def test_stand_in_bodies_are_real_for_any_arm() -> None:
    model = arm()
    point = RobotModel("point", (Joint("only", "revolute", np.eye(3), np.zeros(3), np.array([0.0, 0.0, 1.0])),))
    for phi in (*stand_in_bodies(model), *stand_in_bodies(point)):
        assert is_physical(phi)
    assert stand_in_bodies(model, 2000.0)[0, 0] == pytest.approx(2.0 * stand_in_bodies(model, 1000.0)[0, 0])
