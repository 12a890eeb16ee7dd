"""Verdicts, each by the branch that gives it."""

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.settings import CalibrationSettings
from service.operations.calibration.document import doubts_text
from tests.lab.arms.calibration import BASE, TOOL, UR10, as_measured, forward, postures, truth


def test_a_perfect_arm_gains_nothing() -> None:
    q = postures(UR10, 100, np.random.default_rng(0))
    poses = as_measured(forward(UR10, q, {}, BASE, TOOL), False)
    noisy = poses + np.random.default_rng(1).normal(0.0, 1e-4, poses.shape)
    for measured in (noisy, poses):
        result = calibrate(UR10, q, measured)
        assert result.verdict == "no_gain"
        assert "no larger than chance explains" in result.reasons[0]


def test_errors_beyond_the_range_are_reported() -> None:
    errors = {"a2": 0.03, "theta3": 0.01}
    q = postures(UR10, 80, np.random.default_rng(0))
    measured = as_measured(forward(UR10, q, errors, BASE, TOOL), False)
    result = calibrate(UR10, q, measured, CalibrationSettings(range_length=0.01))
    assert result.verdict == "at_bound"
    assert "a2" in result.reasons[0]
    assert all(p.value is None for p in result.parameters)
    assert result.base.translation == (None, None, None)


def test_poses_of_one_joint_determine_nothing_of_the_arm() -> None:
    q = np.tile([0.1, -1.0, 1.2, 0.3, 1.0, 0.2], (40, 1))
    q[:, 0] = np.linspace(-2.0, 2.0, 40)
    measured = as_measured(forward(UR10, q, {"a2": 1e-3}, BASE, TOOL), False)
    result = calibrate(UR10, q, measured)
    assert result.verdict == "undetermined"
    assert result.training.before.maximum < 1e-6  # a circle has a base and a radius
    assert {p.value for p in result.parameters} == {None}
    frames = tuple(p.name for p in result.parameters)
    assert calibrate(UR10, q, measured, CalibrationSettings(excluded=frames)).verdict == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["degrees", "base", "sign"])
def test_data_of_another_kind_are_not_explained(wrong: str) -> None:
    arm = truth(UR10, False, 80, seed=4)
    q = np.degrees(arm.q) if wrong == "degrees" else arm.q * ([1, 1, -1, 1, 1, 1] if wrong == "sign" else 1.0)
    settings = CalibrationSettings(robust=wrong != "base", base=wrong != "base")
    result = calibrate(UR10, q, arm.measured, settings)
    assert result.verdict == "not_explained"
    assert {p.value for p in result.parameters} == {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joint", "factor", "hint"),
    [(5, 1.05, "joint 5 looks as if it moved 0.952"), (6, -1.0, "joint 6 looks turned round"),
     (5, np.degrees(1.0), "joint 5 looks like degrees")],
)  # fmt: skip
def test_a_joint_that_says_something_else_is_named(joint: int, factor: float, hint: str) -> None:
    """Millimetres are left, far less than a tenth of the workspace."""
    arm = truth(UR10, False, 400, seed=4)
    use = np.random.default_rng(0).permutation(400) < 320
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-4, arm.measured.shape)
    q = arm.q.copy()
    q[:, joint - 1] *= factor
    result = calibrate(UR10, q, measured, use=use)
    assert result.verdict in ("not_explained", "at_bound"), result.reasons
    assert hint in result.doubts.unit


def test_what_is_left_is_judged_by_the_noise_expected() -> None:
    arm = truth(UR10, False, 80, seed=4)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-3, arm.measured.shape)
    for noise, verdict in ((None, "ok"), (5e-4, "ok"), (2e-4, "not_explained")):
        result = calibrate(UR10, arm.q, measured, CalibrationSettings(expected_noise=noise))
        assert result.verdict == verdict, result.reasons


@pytest.mark.parametrize(
    ("moved", "robust", "verdict"), [(0, True, "ok"), (30, True, "ok"), (80, True, "outliers"), (30, False, "outliers")]
)
def test_a_tracker_that_was_moved_is_reported(moved: int, robust: bool, verdict: str) -> None:
    """The instrument is moved by some millimetres before the last poses."""
    arm = truth(UR10, False, 200, seed=4)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-4, arm.measured.shape)
    measured[200 - moved :] += [0.005, -0.003, 0.004]
    use = np.random.default_rng(0).permutation(200) < 160
    result = calibrate(UR10, arm.q, measured, CalibrationSettings(robust=robust), use=use)
    assert result.verdict == verdict, result.reasons
    if moved == 80:
        assert "what changed between them" in result.reasons[0]
        assert all(p.value is None for p in result.parameters)
    text = doubts_text(result, list(range(2, 202)))
    assert any("to 201 do not fit" in sentence for sentence in text) == (moved > 0)
    if not robust:  # fitted poses and others: all of them were measured from elsewhere
        np.testing.assert_array_equal(np.flatnonzero(result.outlying), np.arange(170, 200))


def test_too_few_poses_to_look_for_bad_ones_are_reported() -> None:
    """27 parameters take 20 poses of 3 equations."""
    arm = truth(UR10, False, 20, seed=4)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-5, arm.measured.shape)
    few = calibrate(UR10, arm.q[:19], measured[:19])
    assert (len(few.free), few.doubts.needed) == (27, 20)
    assert any("19 were fitted, and 20 would do" in text for text in doubts_text(few, list(range(2, 21))))
    assert calibrate(UR10, arm.q, measured).doubts.needed == 0


def test_wrong_units_are_reported_where_only_frames_are_fitted() -> None:
    arm = truth(UR10, False, 80, seed=4)
    excluded = tuple(p.name for p in calibrate(UR10, arm.q, arm.measured).parameters)
    settings = CalibrationSettings(excluded=excluded)
    assert calibrate(UR10, arm.q, arm.measured, settings).verdict == "ok"
    result = calibrate(UR10, arm.q, 1e3 * arm.measured, settings)
    assert result.verdict == "not_explained"
    assert "check units" in result.reasons[0]
    assert result.base.translation == (None, None, None)


def test_errors_that_return_elsewhere_are_an_overfit() -> None:
    """Poses of a small part of the workspace say little about the rest, where the arm sags."""
    rng = np.random.default_rng(3)
    near = rng.uniform(-0.3, 0.3, (60, 6)) + np.array([0.0, -1.0, 1.2, 0.4, 1.0, 0.0])
    q = np.vstack((near, postures(UR10, 60, rng)))
    measured = as_measured(forward(UR10, q, {"a2": 1e-3, "theta2": 2e-3}, BASE, TOOL), False)
    measured[:, 2] -= 3e-3 * np.cos(q[:, 1])
    measured += rng.normal(0.0, 2e-5, measured.shape)
    result = calibrate(UR10, q, measured, use=np.arange(120) < 60)
    assert result.verdict == "overfit"
    assert "were to be expected" in result.reasons[0]
    assert result.test.after.rms > 3.0 * result.training.after.rms


def test_estimates_that_do_harm_on_the_test_poses_are_no_gain() -> None:
    """The test poses were measured on an arm that is as its description says."""
    arm = truth(UR10, False, 90, seed=2)
    use = np.arange(90) < 60
    measured = as_measured(forward(UR10, arm.q, {}, BASE, TOOL), False)
    measured[use] = arm.measured[use]
    measured += np.random.default_rng(0).normal(0.0, 5e-5, measured.shape)
    result = calibrate(UR10, arm.q, measured, use=use)
    assert result.verdict == "no_gain"
    assert "on the test poses the error is" in result.reasons[0]
    few = use | (np.arange(90) >= 62)
    mixed = np.where(few[:, None], arm.measured, measured)
    # Two poses are too few to say that the estimates do harm; that they are far off, they do say.
    assert calibrate(UR10, arm.q, mixed, use=few).verdict == "overfit"


@pytest.mark.slow
def test_one_test_pose_seldom_raises_a_false_alarm() -> None:
    """At a level of 1 %, 4 alarms or more in 60 honest calibrations have a probability of 0.3 %."""
    arm = truth(UR10, False, 100, seed=4, size=2e-4)
    verdicts = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(100)[:41]
        measured = arm.measured[rows] + rng.normal(0.0, 5e-5, (41, 3))
        verdicts.append(calibrate(UR10, arm.q[rows], measured, use=np.arange(41) < 40).verdict)
    assert verdicts.count("ok") > 56
    measured[40, 0] += 2e-3  # far enough off
    assert calibrate(UR10, arm.q[rows], measured, use=np.arange(41) < 40).verdict == "overfit"
