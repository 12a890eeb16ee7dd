"""A full set of consistent links from base parameters alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import NonlinearConstraint, minimize
from scipy.spatial.transform import Rotation

from drivers.files.robots.file import load_robot
from rt_core.identification.physical.coordinates import Point, Reference, divergence
from rt_core.identification.physical.newton import objective
from rt_core.identification.physical.prior import ConsistencyError, blocks, physical_prior, stand_in_bodies
from rt_core.identification.physical.recovery import complete_parameters
from rt_core.model.base import base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.inertia import from_pseudo_inertia, is_physical, pseudo_inertia, transform_inertial
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.types import FloatArray
from tests.lab.arms.batch import arm, motion, truth
from tests.lab.arms.physical import fit_simulated, links_of, log_cholesky, perturbed


@pytest.mark.parametrize("name", ["arm7", "space6", "kuka_lwr4"])
@pytest.mark.parametrize("known", [True, False])
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
    rng = np.random.default_rng(1)
    q, dq, ddq = rng.uniform(-2.0, 2.0, (3, 40, model.n))
    torque = np.array(regressor(model, base.standard, q, dq, ddq)) @ found.phi
    expected = np.array(regressor(model, base.standard, q, dq, ddq)) @ phi
    np.testing.assert_allclose(torque, expected, atol=1e-9 * np.abs(expected).max())


def test_rigid_torque_of_the_links_by_inverse_dynamics() -> None:
    """The links themselves, through the recursive algorithm that knows nothing of regressors."""
    model = arm()
    base = base_parameters(model)
    found = complete_parameters(base, model, truth(model, base), prior=perturbed(model, 2))
    data = motion(model, 1.0, 50.0)
    links = found.phi[blocks(base.standard).links]
    effects = np.where(base.standard.is_link, 0.0, found.phi)
    rest = np.array(regressor(model, base.standard, data.q, data.dq, data.ddq)) @ effects
    rigid = inverse_dynamics(model.geometry, model.gravity, links, data.q, data.dq, data.ddq)
    np.testing.assert_allclose(rigid + rest, data.tau, atol=1e-9 * np.abs(data.tau).max())


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
    with pytest.raises(ConsistencyError, match="finite base parameters"):
        complete_parameters(base, model, theta[:-1])
    with pytest.raises(ConsistencyError, match="finite base parameters"):
        complete_parameters(base, model, theta * np.nan)
    with pytest.raises(ConsistencyError, match="covariance"):
        complete_parameters(base, model, theta, np.eye(3))
    with pytest.raises(ConsistencyError, match="zero"):
        complete_parameters(base, model, theta, np.zeros((len(base), len(base))))


def body(rng: np.random.Generator) -> FloatArray:
    points = rng.standard_normal((20, 3)) * rng.uniform(0.02, 0.2, 3) + rng.uniform(-0.2, 0.2, 3)
    cloud = np.column_stack((points, np.ones(20)))
    return from_pseudo_inertia(rng.uniform(0.5, 5.0) / 20.0 * cloud.T @ cloud)


def reference() -> Reference:
    model = arm()
    layout = base_parameters(model).standard
    columns = blocks(layout)
    prior = physical_prior(model, layout)
    scale = np.linspace(0.5, 3.0, columns.positive.size)
    width = np.linspace(0.2, 2.0, columns.free.size)
    return Reference.build(columns, prior.links, scale, prior.effects[columns.free], width)


@pytest.mark.parametrize("seed", range(5))
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


def test_penalties_are_the_divergence_of_each_link() -> None:
    ref = reference()
    rng = np.random.default_rng(1)
    point = Point.at_prior(ref).moved(0.1 * rng.standard_normal(ref.size), ref)
    phi = point.phi(ref)
    prior = Point.at_prior(ref).phi(ref)
    links = ref.blocks.links
    expected = [divergence(phi[c], prior[c]) for c in links]
    found = point.penalties(ref)[: links.size].reshape(links.shape).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    y = phi[ref.blocks.positive] / ref.scale
    n = links.size
    np.testing.assert_allclose(point.penalties(ref)[n : n + y.size], y - np.log(y) - 1.0, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_hessian_against_differences(seed: int) -> None:
    """Along a straight line in the coordinates of the point: first and second difference of the whole objective."""
    ref = reference()
    rng = np.random.default_rng(seed)
    point = Point.at_prior(ref).moved(0.15 * rng.standard_normal(ref.size), ref)
    A, z = rng.standard_normal((20, ref.size)), rng.standard_normal(20)
    weight = ref.spread(0.7, np.full(ref.scale.size, 0.3))
    local = A @ point.directions(ref)
    gradient = local.T @ (A @ point.phi(ref) - z) + weight * point.gradient(ref)
    hessian = local.T @ local + np.diag(weight)
    for _ in range(5):
        d = rng.standard_normal(ref.size)
        d /= np.linalg.norm(d)
        h = 1e-3
        up, here, down = (objective(A, z, ref, weight, point.moved(s * h * d, ref)) for s in (1.0, 0.0, -1.0))
        assert (up - down) / (2.0 * h) == pytest.approx(float(gradient @ d), rel=1e-5, abs=1e-5)
        assert (up - 2.0 * here + down) / h**2 == pytest.approx(float(d @ hessian @ d), rel=1e-4)


def test_room_ends_where_a_link_stops_being_a_body() -> None:
    ref = reference()
    rng = np.random.default_rng(2)
    point = Point.at_prior(ref)
    step = rng.standard_normal(ref.size)
    room = point.room(step)
    assert 0.0 < room < np.inf
    inside = point.moved(0.999 * room * step, ref)
    assert (inside.positive > 0.0).all()
    with np.errstate(all="ignore"):
        try:
            outside = point.moved(1.001 * room * step, ref)
        except np.linalg.LinAlgError:
            return
    assert (outside.positive < 0.0).any()


def test_stand_in_bodies_are_real_for_any_arm() -> None:
    model = arm()
    for phi in stand_in_bodies(model):
        assert is_physical(phi)
    assert stand_in_bodies(model, 2000.0)[0, 0] == pytest.approx(2.0 * stand_in_bodies(model, 1000.0)[0, 0])
