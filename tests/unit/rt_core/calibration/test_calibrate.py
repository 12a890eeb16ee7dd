"""Calibration of arms whose true geometry is known."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.fit import Method
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from tests.lab.arms.calibration import (
    BASE,
    PANDA,
    SCARA,
    TOOL,
    UR10,
    as_measured,
    forward,
    frame,
    postures,
    random_arm,
    truth,
)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
@pytest.mark.parametrize(
    ("n", "convention"), [(3, "dh"), (4, "mdh"), (5, "dh"), (6, "mdh"), (6, "dh"), (7, "mdh"), (8, "dh"), (9, "mdh")]
)
def test_exact_data_give_every_identifiable_parameter(n: int, convention: str, orientation: bool) -> None:
    arm = truth(random_arm(n, convention, np.random.default_rng(10 + n)), orientation, 20 * n, seed=n)
    result = calibrate(arm.geometry, arm.q, arm.measured)
    found = {p.name: p.value for p in result.parameters if p.value is not None}
    assert set(found) == set(arm.errors)
    for name, value in arm.errors.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name
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


@pytest.mark.parametrize("geometry", [UR10, PANDA, SCARA], ids=["ur10", "panda", "scara"])
def test_exact_data_of_common_arms(geometry: Geometry) -> None:
    # Along the parallel axes of a SCARA the length of the tool cannot be told from the height of the base.
    tool = frame((0.06, -0.04, 0.0), (0.2, 0.1, -0.5))
    arm = truth(geometry, True, 120, tool=tool)
    result = calibrate(arm.geometry, arm.q, arm.measured)
    found = {p.name: p.value for p in result.parameters if p.value is not None}
    assert found == pytest.approx(arm.errors, abs=1e-9)


def test_known_frames_need_no_parameters() -> None:
    arm = truth(random_arm(6, "dh", np.random.default_rng(2)), True, 60)
    poses = forward(arm.geometry, arm.q, arm.errors, np.eye(4), np.eye(4))
    result = calibrate(arm.geometry, arm.q, as_measured(poses, True), CalibrationSettings(base=False, tool=False))
    assert (result.base, result.tool) == (None, None)
    found = {p.name: p.value or 0.0 for p in result.parameters}
    assert found == pytest.approx({name: arm.errors.get(name, 0.0) for name in found}, abs=1e-9)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
def test_stated_intervals_cover_the_truth(orientation: bool) -> None:
    arm = truth(PANDA, orientation, 60, seed=1)
    inside, total = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(100 + seed)
        poses = forward(arm.geometry, arm.q, arm.errors, BASE, TOOL)
        poses[:, :3, 3] += rng.normal(0.0, 1e-4, (len(poses), 3))
        turns = np.array([frame((0.0, 0.0, 0.0), tuple(v)) for v in rng.normal(0.0, 3e-4, (len(poses), 3))])
        poses[:, :3, :3] = turns[:, :3, :3] @ poses[:, :3, :3]
        result = calibrate(arm.geometry, arm.q, as_measured(poses, orientation))
        assert result.scale[0] == pytest.approx(1e-4, rel=0.4)
        if orientation:
            assert result.scale[1] == pytest.approx(3e-4, rel=0.4)
        for p in result.parameters:
            if p.value is not None and p.std is not None:
                inside += abs(p.value - arm.errors.get(p.name, 0.0)) < 1.96 * p.std
                total += 1
    assert 0.92 < inside / total < 0.98


def test_bad_poses_hardly_matter_to_a_robust_fit() -> None:
    arm = truth(UR10, False, 150, seed=3)
    rng = np.random.default_rng(5)
    measured = arm.measured + rng.normal(0.0, 5e-5, arm.measured.shape)
    bad = rng.permutation(150)[:22]
    measured[bad] += rng.normal(0.0, 0.02, (22, 3))
    result = calibrate(arm.geometry, arm.q, measured, CalibrationSettings(robust=True))
    assert set(bad) <= set(np.flatnonzero(result.outlying))
    assert result.outlying.sum() <= 24
    assert result.scale[0] == pytest.approx(5e-5, rel=0.25)
    z = [(p.value - arm.errors[p.name]) / p.std for p in result.parameters if p.value is not None and p.std]
    assert np.sqrt(np.mean(np.square(z))) < 1.6
    plain = calibrate(arm.geometry, arm.q, measured)
    assert plain.scale[0] > 1e-3


def test_parallel_axes_give_no_large_cancelling_offsets() -> None:
    """Axes 2, 3 and 4 are parallel but for errors of the order of 1e-3, and some of the error is not geometric."""
    arm = truth(UR10, False, 400, seed=6)
    smooth = 3e-4 * np.sin(2.0 * arm.q[:, :3] + 1.0)  # an error that no parameter describes
    measured = arm.measured + smooth + np.random.default_rng(0).normal(0.0, 1e-4, smooth.shape)
    for geometry in (UR10, as_placements()):
        result = calibrate(geometry, arm.q, measured)
        assert result.training.after.rms < 6e-4
        lengths = [abs(p.value) for p in result.parameters if p.unit == "m" and p.value is not None]
        assert max(lengths) < 8e-3
        # Of the offsets along the three axes one is free; a table of rows has tilts for the others.
        along = {"d2", "d3", "d4"} if geometry.rows else {"z2", "z3", "z4", "y5"}
        assert len(along & set(result.free)) == 1
        assert {"beta2", "beta3"} & set(result.free) == ({"beta2", "beta3"} if geometry.rows else set())


def as_placements() -> Geometry:
    return Geometry.from_model(load_robot("ur10").model)


def test_what_noise_hides_has_no_value() -> None:
    """Joint 5 hardly moves: what is left of its errors is named, and predictions stay as good."""
    arm = truth(UR10, False, 120, seed=7)
    rng = np.random.default_rng(8)
    q = arm.q.copy()
    q[:, 4] = 1.2 + 0.002 * rng.normal(size=120)
    measured = as_measured(forward(UR10, q, arm.errors, BASE, TOOL), False) + rng.normal(0.0, 2e-4, (120, 3))
    result = calibrate(UR10, q, measured)
    imprecise = [item for item in result.fixed if item.reason == "imprecise"]
    assert imprecise
    assert all(item.on for item in imprecise)
    for p in result.parameters:
        assert (p.value is None) == (p.status == "undetermined") == (p.name not in result.free)
        if p.std is not None and p.value is not None:
            assert p.std < 5e-3
    assert result.scale[0] == pytest.approx(2e-4, rel=0.15)


@pytest.mark.parametrize("method", ["lm", "pso_lm"])
def test_methods_agree(method: Method) -> None:
    arm = truth(UR10, False, 45, seed=9)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 2e-4, arm.measured.shape)
    reference = calibrate(arm.geometry, arm.q, measured)
    result = calibrate(arm.geometry, arm.q, measured, CalibrationSettings(method=method, seed=4))
    assert result.verdict == "ok"
    np.testing.assert_allclose(result.x, reference.x, atol=1e-7)


def test_a_swarm_alone_says_how_far_it_is_from_the_minimum() -> None:
    arm = truth(UR10, False, 45, seed=9)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 2e-4, arm.measured.shape)
    settings = CalibrationSettings(method="pso", seed=4, range_length=0.01, range_angle=0.01)
    best = calibrate(arm.geometry, arm.q, measured)
    result = calibrate(arm.geometry, arm.q, measured, settings)
    assert result.verdict == "not_converged"
    assert best.training.after.rms < result.training.after.rms < result.training.before.rms
    errors = [(p.value - arm.errors[p.name]) / p.std for p in result.parameters if p.value is not None and p.std]
    assert np.max(np.abs(errors)) < 5.0
    again = calibrate(arm.geometry, arm.q, measured, settings)
    np.testing.assert_array_equal(again.x, result.x)


@pytest.mark.parametrize("method", ["pso", "pso_lm"])
def test_a_search_that_ends_where_it_was_told_to_has_converged(method: Method) -> None:
    arm = truth(UR10, False, 45, seed=9)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 2e-4, arm.measured.shape)
    best = calibrate(arm.geometry, arm.q, measured)
    settings = CalibrationSettings(method=method, tolerance=3e-3, seed=4, range_length=0.01, range_angle=0.01)
    rough = calibrate(arm.geometry, arm.q, measured, settings)
    assert rough.verdict == "ok", rough.reasons
    assert best.training.after.rms < rough.training.after.rms <= 3e-3
    far = 0
    for p, exact in zip(rough.parameters, best.parameters, strict=True):
        if p.value is not None and p.std is not None and exact.value is not None and exact.std is not None:
            assert abs(p.value - arm.errors[p.name]) < 5.0 * p.std, p.name
            assert p.std > 0.99 * exact.std
            far += abs(p.value - exact.value) > 5.0 * exact.std
    assert method == "pso_lm" or far > 3  # it did stop short; one step of least squares brings the other near
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


def test_predicts_new_postures() -> None:
    arm = truth(UR10, True, 80, seed=11)
    result = calibrate(UR10, arm.q, arm.measured)
    q = postures(UR10, 10, np.random.default_rng(99))
    expected = forward(UR10, q, arm.errors, BASE, TOOL)
    positions, rotations = result.predict(q)
    np.testing.assert_allclose(positions, expected[:, :3, 3], atol=1e-9)
    np.testing.assert_allclose(rotations, expected[:, :3, :3], atol=1e-9)


def test_bad_input_is_refused() -> None:
    arm = truth(UR10, False, 30)
    with pytest.raises(CalibrationError, match="shape"):
        calibrate(UR10, arm.q[:, :5], arm.measured)
    with pytest.raises(CalibrationError, match="shape"):
        calibrate(UR10, arm.q, arm.measured[:-1])
    broken = arm.measured.copy()
    broken[7, 1] = np.nan
    with pytest.raises(CalibrationError, match="pose 7"):
        calibrate(UR10, arm.q, broken)
    for value in (1e200, -2e6):
        broken[7, 1] = value
        with pytest.raises(CalibrationError, match=r"measurements of pose 7 \(from 0\) are beyond 1e\+06"):
            calibrate(UR10, arm.q, broken)
    huge = arm.q.copy()
    huge[3, 2] = 1e9
    with pytest.raises(CalibrationError, match=r"joint positions of pose 3 \(from 0\) are beyond"):
        calibrate(UR10, huge, arm.measured)
    with pytest.raises(CalibrationError, match="length"):
        calibrate(UR10, arm.q, np.hstack((arm.measured, np.ones((30, 4)))))
    with pytest.raises(CalibrationError, match="measure at least 12 poses"):
        calibrate(UR10, arm.q[:8], arm.measured[:8])
    with pytest.raises(CalibrationError, match="theta12"):
        calibrate(UR10, arm.q, arm.measured, CalibrationSettings(excluded=("theta12",)))
    with pytest.raises(CalibrationError, match="method"):
        CalibrationSettings(method="newton")  # type: ignore[arg-type]
    with pytest.raises(CalibrationError, match="no pose"):
        calibrate(UR10, arm.q, arm.measured, use=np.zeros(30, dtype=bool))
