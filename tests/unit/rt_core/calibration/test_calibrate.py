"""Calibration of arms whose true geometry is known, the published one (KIN), and how far predictions may be off."""

import numpy as np
import pytest

from benchmarks.kin import TARGETS, Task, errors, task
from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.prediction import position_std
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.arms.calibration import BASE, PANDA, TOOL, UR10, Truth, as_measured, forward, frame, random_arm, truth


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
@pytest.mark.parametrize(("n", "convention"), [(3, "dh"), (6, "dh"), (9, "mdh")])
def test_exact_data_give_every_identifiable_parameter(n: int, convention: str, orientation: bool) -> None:
    arm = truth(random_arm(n, convention, np.random.default_rng(10 + n)), orientation, 20 * n, seed=n)
    result = calibrate(arm.geometry, arm.q, arm.measured)
    found = {p.name: p.value for p in result.parameters if p.value is not None}
    assert found == pytest.approx(arm.errors, abs=1e-9)
    assert result.verdict == "ok"
    assert result.training.before.mean > 1e-4
    assert result.training.after.maximum < 1e-10
    assert result.base.rotation is not None
    np.testing.assert_allclose(np.array(result.base.translation, dtype=float), BASE[:3, 3], atol=1e-9)
    np.testing.assert_allclose(result.base.rotation, BASE[:3, :3], atol=1e-9)
    np.testing.assert_allclose(np.array(result.tool.translation, dtype=float), TOOL[:3, 3], atol=1e-9)
    if orientation:
        assert result.tool.rotation is not None
        np.testing.assert_allclose(result.tool.rotation, TOOL[:3, :3], atol=1e-9)
    else:
        assert result.tool.rotation is None


def test_stated_intervals_of_poses_cover_the_truth() -> None:
    arm = truth(PANDA, True, 60, seed=1)
    inside = []
    for seed in range(15):
        rng = np.random.default_rng(100 + seed)
        poses = forward(arm.geometry, arm.q, arm.errors, BASE, TOOL)
        poses[:, :3, 3] += rng.normal(0.0, 1e-4, (len(poses), 3))
        turns = np.array([frame((0.0, 0.0, 0.0), tuple(v)) for v in rng.normal(0.0, 3e-4, (len(poses), 3))])
        poses[:, :3, :3] = turns[:, :3, :3] @ poses[:, :3, :3]
        result = calibrate(arm.geometry, arm.q, as_measured(poses, True))
        assert result.scale == pytest.approx((1e-4, 3e-4), rel=0.4)
        known = [p for p in result.parameters if p.value is not None and p.std is not None]
        inside += [abs(p.value - arm.errors.get(p.name, 0.0)) < 1.96 * p.std for p in known]
    assert 0.92 < np.mean(inside) < 0.98


def test_parallel_axes_give_no_large_cancelling_offsets() -> None:
    """Axes 2, 3 and 4 are parallel but for errors of the order of 1e-3, and some of the error is not geometric."""
    arm = truth(UR10, False, 400, seed=6)
    smooth = 3e-4 * np.sin(2.0 * arm.q[:, :3] + 1.0)  # an error that no parameter describes
    measured = arm.measured + smooth + np.random.default_rng(0).normal(0.0, 1e-4, smooth.shape)
    for geometry in (UR10, Geometry.from_model(load_robot("ur10").model)):
        result = calibrate(geometry, arm.q, measured)
        assert result.training.after.rms < 6e-4
        lengths = [abs(p.value) for p in result.parameters if p.unit == "m" and p.value is not None]
        assert max(lengths) < 8e-3
        # Of the offsets along the three axes one is free; a table of rows has tilts for the others.
        along = {"d2", "d3", "d4"} if geometry.rows else {"z2", "z3", "z4", "y5"}
        assert len(along & set(result.free)) == 1
        assert {"beta2", "beta3"} & set(result.free) == ({"beta2", "beta3"} if geometry.rows else set())


def with_noise() -> tuple[Truth, FloatArray]:
    arm = truth(UR10, False, 45, seed=9)
    return arm, arm.measured + np.random.default_rng(1).normal(0.0, 2e-4, arm.measured.shape)


def test_a_swarm_alone_says_how_far_it_is_from_the_minimum() -> None:
    arm, measured = with_noise()
    settings = CalibrationSettings(method="pso", seed=4, range_length=0.01, range_angle=0.01)
    best = calibrate(arm.geometry, arm.q, measured)
    both = calibrate(arm.geometry, arm.q, measured, CalibrationSettings(method="pso_lm", seed=4))
    assert both.verdict == "ok"
    np.testing.assert_allclose(both.x, best.x, atol=1e-7)
    result = calibrate(arm.geometry, arm.q, measured, settings)
    assert result.verdict == "not_converged"
    assert best.training.after.rms < result.training.after.rms < result.training.before.rms
    errors = [(p.value - arm.errors[p.name]) / p.std for p in result.parameters if p.value is not None and p.std]
    assert np.max(np.abs(errors)) < 5.0
    np.testing.assert_array_equal(calibrate(arm.geometry, arm.q, measured, settings).x, result.x)


def test_a_search_that_ends_where_it_was_told_to_has_converged() -> None:
    arm, measured = with_noise()
    best = calibrate(arm.geometry, arm.q, measured)
    settings = CalibrationSettings(method="pso", tolerance=3e-3, seed=4, range_length=0.01, range_angle=0.01)
    rough = calibrate(arm.geometry, arm.q, measured, settings)
    assert rough.verdict == "ok", rough.reasons
    assert best.training.after.rms < rough.training.after.rms <= 3e-3
    far = 0
    for p, exact in zip(rough.parameters, best.parameters, strict=True):
        if p.value is not None and p.std is not None and exact.value is not None and exact.std is not None:
            assert abs(p.value - arm.errors[p.name]) < 5.0 * p.std, p.name
            assert p.std > 0.99 * exact.std
            far += abs(p.value - exact.value) > 5.0 * exact.std
    assert far > 3  # it did stop short
    exact_one = calibrate(arm.geometry, arm.q, measured, CalibrationSettings(tolerance=3e-3))
    np.testing.assert_array_equal(exact_one.x, best.x)  # least squares go to the minimum


def test_test_poses_do_not_reach_the_fit() -> None:
    arm = truth(UR10, False, 90, seed=2)
    use = np.arange(90) < 60
    measured = arm.measured.copy()
    measured[~use] += 0.5
    result = calibrate(UR10, arm.q, measured, use=use)
    np.testing.assert_array_equal(result.x, calibrate(UR10, arm.q[use], measured[use]).x)
    assert result.test.after.mean == pytest.approx(np.sqrt(0.75), rel=1e-6)


def test_bad_input_is_refused() -> None:
    arm = truth(UR10, False, 30)
    q, measured, pose = arm.q, arm.measured, np.arange(30)[:, None]
    for message, *given in (
        ("shape", q[:, :5], measured), ("shape", q, measured[:-1]),
        ("pose 7", q, np.where(pose == 7, np.nan, measured)),
        (r"measurements of pose 7 \(from 0\) are beyond 1e\+06", q, np.where(pose == 7, 1e200, measured)),
        (r"measurements of pose 7 \(from 0\) are beyond 1e\+06", q, np.where(pose == 7, -2e6, measured)),
        (r"joint positions of pose 3 \(from 0\) are beyond", np.where(pose == 3, 1e9, q), measured),
        ("length", q, np.hstack((measured, np.ones((30, 4))))), ("measure at least 12 postures", q[:8], measured[:8]),
        ("theta12", q, measured, CalibrationSettings(excluded=("theta12",))),
    ):  # fmt: skip
        with pytest.raises(CalibrationError, match=message):
            calibrate(UR10, *given)
    with pytest.raises(CalibrationError, match="method"):
        CalibrationSettings(method="newton")  # type: ignore[arg-type]
    with pytest.raises(CalibrationError, match="no pose"):
        calibrate(UR10, q, measured, use=np.zeros(30, dtype=bool))


SETTINGS = CalibrationSettings(base=False, tool=False)


def check_task(t: Task) -> None:
    nominal = forward(t.geometry, t.q, {}, np.eye(4), np.eye(4))[:, :3, 3]
    off = np.linalg.norm(t.exact - nominal, axis=1)
    assert 11.5e-3 < off[t.use].mean() < 11.7e-3
    radii = np.linalg.norm(nominal[t.use], axis=1)
    for radius, count in zip((0.850, 0.705, 0.560, 0.415), (18, 13, 9, 5), strict=True):
        assert (np.abs(radii - radius) < 1e-4).sum() == count
    assert (t.use.sum(), (~t.use).sum()) == (45, 10)


def test_errors_after_the_calibration() -> None:
    found = []
    for seed in range(10):
        t = task(seed)
        check_task(t)
        result = calibrate(t.geometry, t.q, t.measured, SETTINGS, use=t.use)
        assert result.verdict == "ok"
        found.append(errors(t, result.predict(t.q)[0]))
    for key, target in TARGETS.items():
        assert np.mean([e[key] for e in found]) <= target


@pytest.mark.parametrize(("reach", "target"), [(1.0, 0.05), (3.1, 0.002)], ids=["small range", "held parameters"])
def test_predictions_are_off_by_what_is_stated(reach: float, target: float) -> None:
    """At postures all over, of which a calibration in a small range, or of a target near the last axis, saw few."""
    ratio: list[float] = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        arm = TrackedArm.of(UR10, TrackerSettings(seed=seed, target=target))
        q = np.array([0.1, -1.2, 1.3, 0.3, 1.2, 0.2]) + rng.uniform(-reach, reach, (60, 6))
        found = calibrate(UR10, q, arm.measure(q)[0])
        elsewhere = rng.uniform(-3.0, 3.0, (30, 6))
        missed = np.linalg.norm(found.predict(elsewhere)[0] - arm.exact(elsewhere)[0], axis=1)
        names = (*found.free, *found.held)
        ratio += list(missed / position_std(found.model, found.x, elsewhere, names, found.joint_covariance))
    assert 0.7 < np.sqrt(np.mean(np.square(ratio))) < 1.3
