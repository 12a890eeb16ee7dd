"""Measurements with a mistake in them: found, named, and handled or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.result import Calibration
from rt_core.calibration.sample import Distances
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from tests.lab.arms.calibration import UR10, forward, frame, postures, truth

BASE = frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2))
TOOL = frame((0.06, -0.04, 0.12), (0.0, 0.0, 0.0))
ERRORS = {"a2": 1e-3, "alpha1": -1.5e-3, "theta3": 2e-3, "a3": -8e-4, "theta5": 1e-3}
NOISE = 1e-4
ARM = replace(UR10, tip_translation=np.array([0.0, 0.0, 0.1]))
ROBUST = CalibrationSettings(robust=True)


def good(count: int = 60) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(1)
    q = postures(UR10, count, rng)
    return q, forward(UR10, q, ERRORS, BASE, TOOL)[:, :3, 3] + rng.normal(0.0, NOISE, (count, 3))


def check_estimates(result: Calibration) -> None:
    assert result.verdict == "ok"
    found = {p.name: p for p in result.parameters}
    for name, value in ERRORS.items():
        p = found[name]
        assert abs(p.value - value) < 5.0 * p.std
        assert p.std < 5e-4


@pytest.mark.soak
def test_good_measurements_raise_no_doubt() -> None:
    q, measured = good()
    for settings in (CalibrationSettings(), ROBUST):
        result = calibrate(ARM, q, measured, settings)
        check_estimates(result)
        assert (result.doubts.poses, result.doubts.exchanged, result.doubts.unit) == ((), (), "")


@pytest.mark.parametrize(
    ("joints", "lengths", "said"),
    [
        pytest.param(180.0 / np.pi, 1.0, "joint positions look like degrees, not radians", marks=pytest.mark.soak),
        (np.pi / 180.0, 1.0, "joint positions look as if converted from degrees twice"),
        pytest.param(1.0, 1e3, "lengths look like millimetres, not metres", marks=pytest.mark.soak),
        pytest.param(1.0, 1e-3, "lengths look as if converted from millimetres twice", marks=pytest.mark.soak),
    ],
)
def test_units(joints: float, lengths: float, said: str) -> None:
    q, measured = good()
    for settings in (CalibrationSettings(), ROBUST):
        result = calibrate(ARM, joints * q, lengths * measured, settings)
        assert result.verdict in ("not_explained", "at_bound", "undetermined")
        assert result.doubts.unit == said
        assert all(p.value is None for p in result.parameters)


def test_units_of_distances() -> None:
    q, _ = good(120)
    p = forward(UR10, q, ERRORS, np.eye(4), TOOL)[:, :3, 3]
    numbers = np.arange(120) % 2
    centres = np.array([[0.7, 0.5, 0.2], [-0.6, 0.4, 0.5]])
    length = np.linalg.norm(p - centres[numbers], axis=1)
    result = calibrate(ARM, q, Distances(1e3 * length, numbers))
    assert result.verdict != "ok"
    assert result.doubts.unit == "lengths look like millimetres, not metres"


def test_a_pose_exchanged_with_another() -> None:
    q, measured = good()
    measured[[7, 31]] = measured[[31, 7]]
    plain = calibrate(ARM, q, measured)
    assert plain.verdict in ("outliers", "not_explained")
    assert plain.doubts.exchanged == ((7, 31),)
    handled = calibrate(ARM, q, measured, ROBUST)
    check_estimates(handled)
    assert handled.doubts.exchanged == ((7, 31),)


def test_gross_outliers() -> None:
    q, measured = good(100)
    rng = np.random.default_rng(3)
    bad = np.sort(rng.permutation(100)[:5])
    measured[bad] += rng.normal(0.0, 0.02, (5, 3))
    plain = calibrate(ARM, q, measured)
    assert plain.verdict == "outliers"
    assert "5 poses that do not fit the others" in plain.reasons[0]
    assert plain.doubts.poses == tuple(bad)
    handled = calibrate(ARM, q, measured, ROBUST)
    check_estimates(handled)
    assert handled.doubts.poses == tuple(bad)
    assert handled.outlying[bad].all()


def test_poses_are_named_by_their_numbers_among_all() -> None:
    q, measured = good(100)
    measured[70] += 0.03
    use = np.arange(100) % 2 == 0
    assert calibrate(ARM, q, measured, use=use).doubts.poses == (70,)


def test_too_few_poses() -> None:
    q, measured = good(8)
    with pytest.raises(CalibrationError, match="measure at least 12 poses"):
        calibrate(ARM, q, measured)


@pytest.mark.parametrize("name", ["base_rz", "tool_x", "base2_y", "head2_z"])
def test_frames_cannot_be_held_at_nominal(name: str) -> None:
    q, measured = good()
    half = np.arange(60) % 2
    station = half if name == "base2_y" else None
    head = half if name == "head2_z" else None
    with pytest.raises(CalibrationError, match=rf"excluded: {name} is not of the arm.*take base or tool as known"):
        calibrate(UR10, q, measured, CalibrationSettings(excluded=("a2", name)), station=station, head=head)


def test_places_of_fixed_points_cannot_be_held_at_nominal() -> None:
    q, measured = good()
    distances = Distances(np.linalg.norm(measured, axis=1), np.zeros(60, dtype=np.int64))
    with pytest.raises(CalibrationError, match="excluded: point1_x is not of the arm"):
        calibrate(UR10, q, distances, CalibrationSettings(excluded=("point1_x",)))


def test_offsets_of_parallel_axes_may_be_excluded() -> None:
    q, measured = good()
    result = calibrate(UR10, q, measured, CalibrationSettings(excluded=("d2", "a5")))
    assert {item.name: item.reason for item in result.fixed if item.name in ("d2", "a5")} == {
        "d2": "parallel_axes", "a5": "excluded",
    }  # fmt: skip


def test_all_poses_alike() -> None:
    q, measured = good()
    noise = np.random.default_rng(0).normal(0.0, NOISE, measured.shape)
    with pytest.raises(CalibrationError, match="all poses are alike"):
        calibrate(ARM, np.tile(q[0], (60, 1)), np.tile(measured[0], (60, 1)) + noise)


def test_another_robot_is_not_explained_by_units() -> None:
    q, measured = good()
    wrong = Geometry("dh", rows=tuple(replace(row, a=0.7 * row.a) for row in UR10.rows), tip_translation=np.zeros(3))
    result = calibrate(wrong, q, measured)
    assert result.verdict != "ok"
    assert result.doubts.unit == ""


@pytest.mark.parametrize("count", [20, 24])
def test_a_bad_pose_among_few_is_reported(count: int) -> None:
    """Fewer poses than parameters, yet more than twice as many equations: where one bad pose does most harm."""
    arm = truth(UR10, False, count, seed=1)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-4, arm.measured.shape)
    assert calibrate(UR10, arm.q, measured).doubts.poses == ()
    measured[5] += [0.02, -0.01, 0.015]
    result = calibrate(UR10, arm.q, measured)
    assert result.verdict == "outliers"
    assert result.doubts.poses == (5,)
