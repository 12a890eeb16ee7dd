"""Where to measure: spiral, inverse kinematics, plan and choice."""

import itertools

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.calibration._inverse import inverse_kinematics
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.planning import PlanningError, PlanSettings, fibonacci_plan, layer_counts, layer_radii, spiral
from rt_core.calibration.selection import Observability, d_optimal
from rt_core.model.frames import link_poses
from tests.lab.arms.calibration import PANDA, PLANAR_2R, SCARA, UR10, forward, random_arm

LIMITED = Geometry.from_model(load_robot("space6").model)


def test_layers_are_those_of_the_paper() -> None:
    assert layer_counts(45, 4) == (18, 13, 9, 5)
    np.testing.assert_allclose(layer_radii(0.850, 0.270, 4), [0.850, 0.705, 0.560, 0.415])
    with pytest.raises(ValueError, match="too few"):
        layer_counts(3, 4)


def test_spiral_spreads_evenly_over_the_half_space() -> None:
    points = spiral(400)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0)
    assert points[:, 2].min() > 0.0
    # As many in each of ten belts of equal area, and no two much nearer than in a hexagonal packing.
    np.testing.assert_array_equal(np.histogram(points[:, 2], np.linspace(0.0, 1.0, 11))[0], 40)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 9.0 * np.eye(400)
    assert apart.min() > 0.5 * np.sqrt(2.0 / np.sqrt(3.0) * 2.0 * np.pi / 400)


@pytest.mark.parametrize("geometry", [UR10, PANDA, random_arm(9, "mdh", np.random.default_rng(3))])
def test_inverse_kinematics_reaches_poses(geometry: Geometry) -> None:
    rng = np.random.default_rng(0)
    model = error_model(geometry, base=False, tool=False)
    x = rng.normal(0.0, 2e-3, model.size)
    errors = dict(zip(model.names, x, strict=True))
    reached = 0
    for q in rng.uniform(-2.5, 2.5, (20, geometry.n)):
        target = forward(geometry, q[None], errors, np.eye(4), np.eye(4))[0]
        found, left = inverse_kinematics(
            model, x, target[:3, 3], target[:3, :3], q + rng.uniform(-0.2, 0.2, geometry.n)
        )
        if left < 1e-9:
            reached += 1
            again = forward(geometry, found[None], errors, np.eye(4), np.eye(4))[0]
            np.testing.assert_allclose(again, target, atol=1e-8)
    assert reached >= 18


def test_plan_reaches_its_points_within_limits_and_away_from_singularities() -> None:
    settings = PlanSettings(singularity=0.03, margin=0.1, floor=0.0)
    plan = fibonacci_plan(LIMITED, settings)
    assert plan.wanted == plan.found == (18, 13, 9, 5)
    lower = np.array([j.lower for j in LIMITED.joints])
    upper = np.array([j.upper for j in LIMITED.joints])
    assert (plan.q >= lower + 0.1 * (upper - lower) - 1e-12).all()
    assert (plan.q <= upper - 0.1 * (upper - lower) + 1e-12).all()
    model = load_robot("space6").model
    for q, point, layer in zip(plan.q, plan.positions, plan.layer, strict=True):
        last = link_poses(model, q)[-1]
        np.testing.assert_allclose(last[:3, :3] @ model.tip_translation + last[:3, 3], point, atol=1e-9)
        assert np.linalg.norm(point) == pytest.approx(plan.radii[layer], abs=2e-6)
        assert min(T[2, 3] for T in link_poses(model, q)) > -1e-9
    assert plan.dexterity.min() >= 0.03
    np.testing.assert_array_equal(fibonacci_plan(LIMITED, settings).q, plan.q)


def test_what_cannot_be_reached_is_said() -> None:
    with pytest.raises(PlanningError, match="reaches none of 45 points"):
        fibonacci_plan(UR10, PlanSettings(r_max=9.0, r_min=8.0, tries=2))
    with pytest.raises(PlanningError, match="r_min < r_max"):
        fibonacci_plan(UR10, PlanSettings(r_max=0.5, r_min=0.6))
    with pytest.raises(PlanningError, match="reaches none"):
        fibonacci_plan(PLANAR_2R, PlanSettings(tries=2))  # its tip is at height 0 always
    assert fibonacci_plan(SCARA, PlanSettings(count=12, layers=2, singularity=0.0)).q.shape[1] == 4


def test_exchange_finds_the_best_of_all_sets() -> None:
    J = np.random.default_rng(1).normal(size=(9, 2, 4)) * np.array([1.0, 10.0, 0.1, 3.0])
    sets = list(itertools.combinations(range(9), 4))
    worth = [np.linalg.slogdet(sum(J[i].T @ J[i] for i in chosen))[1] for chosen in sets]
    found = [d_optimal(J, 4, seed) for seed in range(5)]
    mine = [worth[sets.index(tuple(int(i) for i in chosen))] for chosen in found]
    assert max(mine) == pytest.approx(max(worth))
    assert min(mine) >= np.quantile(worth, 0.9)
    with pytest.raises(ValueError, match="4 parameters"):
        d_optimal(J, 1)
    with pytest.raises(ValueError, match="cannot be chosen"):
        d_optimal(J, 10)


def test_observability_indices() -> None:
    s = np.array([4.0, 2.0, 0.5])
    found = Observability.of(np.diag(s), 16)
    assert pytest.approx((np.cbrt(4.0) / 4.0, 0.125, 0.5)) == (found.O1, found.O2, found.O3)
    assert pytest.approx((0.0625, 1.0 / 2.75)) == (found.O4, found.O5)
    assert Observability.of(np.zeros((2, 3)), 2).O3 == 0.0
