"""Measurements with a mistake in them, wrong units too: found, named, and handled or refused."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.doubts.causes import thinned
from rt_core.calibration.result import Calibration
from rt_core.calibration.sample import Contacts, Sample
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from tests.lab.arms.calibration import PANDA, UR10, forward, frame, postures, truth
from tests.lab.arms.sockets import in_sockets

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joints", "lengths", "said"),
    [(np.pi / 180.0, 1.0, "joint positions look as if converted from degrees twice"),
     (1.0, 1e-3, "lengths look as if converted from millimetres twice")],
)  # fmt: skip
def test_units(joints: float, lengths: float, said: str) -> None:
    q, measured = good()
    result = calibrate(ARM, joints * q, lengths * measured, ROBUST)
    assert result.verdict in ("not_explained", "at_bound", "undetermined")
    assert result.doubts.unit == said
    assert all(p.value is None for p in result.parameters)


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
    assert plain.doubts.unit == ""
    handled = calibrate(ARM, q, measured, ROBUST)
    check_estimates(handled)
    assert handled.doubts.poses == tuple(bad)
    assert handled.outlying[bad].all()
    assert handled.scale[0] == pytest.approx(NOISE, rel=0.25)


@pytest.mark.parametrize("name", ["base_rz", "base2_y", "head2_z"])
def test_frames_cannot_be_held_at_nominal(name: str) -> None:
    q, measured = good()
    half = np.arange(60) % 2
    station = half if name == "base2_y" else None
    head = half if name == "head2_z" else None
    with pytest.raises(CalibrationError, match=rf"excluded: {name} is not of the arm.*take base or tool as known"):
        calibrate(UR10, q, measured, CalibrationSettings(excluded=("a2", name)), station=station, head=head)


def test_all_poses_alike() -> None:
    q, measured = good()
    noise = np.random.default_rng(0).normal(0.0, NOISE, measured.shape)
    with pytest.raises(CalibrationError, match="all poses are alike"):
        calibrate(ARM, np.tile(q[0], (60, 1)), np.tile(measured[0], (60, 1)) + noise)


def test_a_bad_pose_among_few_is_reported() -> None:
    """Fewer poses than parameters, yet more than twice as many equations: where one bad pose does most harm."""
    arm = truth(UR10, False, 20, seed=1)
    measured = arm.measured + np.random.default_rng(1).normal(0.0, 1e-4, arm.measured.shape)
    assert calibrate(UR10, arm.q, measured).doubts.poses == ()
    measured[5] += [0.02, -0.01, 0.015]
    result = calibrate(UR10, arm.q, measured)
    assert result.verdict == "outliers"
    assert result.doubts.poses == (5,)


COUNT = 1000


@pytest.mark.parametrize("kind", ["station", "head", "point"])
def test_all_kinds_are_kept(kind: str) -> None:
    numbers = np.repeat([0, 1, 2], [990, 4, 6])
    sample = replace(Sample.of(np.arange(COUNT, dtype=float)[:, None], np.zeros((COUNT, 3))), **{kind: numbers})
    found = thinned(sample)
    kept = getattr(found, kind)
    assert np.bincount(kept).tolist() == [297, 4, 6]
    np.testing.assert_array_equal(kept, numbers[found.q[:, 0].astype(int)])  # each pose with its own number


def test_degrees_in_many_sockets() -> None:
    """Four sockets hold most of the poses; a fifth has three, which any third pose alone would not show."""
    rng = np.random.default_rng(2)
    sockets = rng.uniform(0.2, 0.5, (5, 3))
    q, numbers = in_sockets(PANDA, {"a4": 1e-3}, np.array([0.05, 0.03, 0.15]), sockets, 8, rng)
    # The same poses again and again, as of a ball that was read many times in each posture.
    rows = np.concatenate((np.tile(np.flatnonzero(numbers < 4), 30), np.flatnonzero(numbers == 4)[:3]))
    assert rows.size > 900
    result = calibrate(PANDA, 180.0 / np.pi * q[rows], Contacts(numbers[rows]))
    assert result.verdict != "ok"
    assert result.doubts.unit == "joint positions look like degrees, not radians"
