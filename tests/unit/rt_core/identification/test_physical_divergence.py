"""The metric on inertias: what it must not depend on, and its derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rt_core.identification.physical.coordinates import Point, Reference, divergence
from rt_core.identification.physical.newton import objective
from rt_core.identification.physical.prior import blocks, physical_prior, stand_in_bodies
from rt_core.model.base import base_parameters
from rt_core.model.inertia import from_pseudo_inertia, is_physical, pseudo_inertia, transform_inertial
from rt_core.types import FloatArray
from tests.lab.arms.batch import arm


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
