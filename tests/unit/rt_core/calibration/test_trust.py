"""A result that looks better than it is, and what is then said."""

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.checking import errors_elsewhere
from rt_core.calibration.repeats import distinct_postures
from rt_core.calibration.sample import Distances
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from tests.lab.arms.calibration import BASE, PANDA, TOOL, UR10, as_measured, forward, frame, postures, truth

NOISE = 5e-5


def noisy(measured: FloatArray, seed: int = 1) -> FloatArray:
    return measured + np.random.default_rng(seed).normal(0.0, NOISE, measured.shape)


def test_postures_are_counted_not_rows() -> None:
    q = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 6)).repeat(24, axis=0)
    q += np.random.default_rng(1).uniform(-4e-4, 4e-4, q.shape)
    group = distinct_postures(q)
    np.testing.assert_array_equal(group, np.arange(5).repeat(24))
    slow = np.linspace(0.0, 0.1, 1001)[:, None].repeat(6, axis=1)  # each row near the next: no chain
    assert distinct_postures(slow).max() > 90
    arm = truth(UR10, False, 5)
    with pytest.raises(CalibrationError, match="5 distinct postures to fit give 15 equations"):
        calibrate(UR10, arm.q.repeat(24, axis=0), noisy(arm.measured.repeat(24, axis=0)))


@pytest.mark.parametrize("narrow", [True, False])
def test_the_error_of_new_poses_is_stated(narrow: bool) -> None:
    """Over the whole range it is what new poses are off by; poses of a part of it say too little of the rest."""
    rng = np.random.default_rng(5)
    q = (
        np.array([0.1, -1.0, 1.2, 0.3, 1.0, 0.2]) + rng.uniform(-0.4, 0.4, (16, 6))
        if narrow
        else postures(UR10, 60, rng)
    )
    errors = {"a2": 4e-4, "theta3": 3e-4, "alpha4": -5e-4}
    result = calibrate(UR10, q, noisy(as_measured(forward(UR10, q, errors, BASE, TOOL), False)))
    assert result.expected.harmful == narrow
    if narrow:
        return
    new = postures(UR10, 300, rng)
    off = result.predict(new)[0] - noisy(as_measured(forward(UR10, new, errors, BASE, TOOL), False))
    assert result.expected.error == pytest.approx(np.sqrt(np.mean(np.sum(off**2, axis=1))), rel=0.4)


@pytest.mark.parametrize("what", ["instrument", "joint 3", None])
def test_a_change_in_the_middle_is_named(what: str | None) -> None:
    """Without one, errors that are alike at successive poses are no change."""
    arm = truth(UR10, False, 120, seed=4, size=5e-4)
    drift = np.random.default_rng(2).normal(0.0, NOISE, (120, 3))
    for i in range(1, 120):
        drift[i] += 0.9 * drift[i - 1]
    measured, q = arm.measured + drift, arm.q.copy()
    if what == "instrument":
        measured[70:] += [1e-3, -1e-3, 1e-3]
    elif what == "joint 3":
        q[70:, 2] -= 4e-3  # as if its zero had slipped by as much
    change = calibrate(UR10, q, measured, use=np.arange(120) % 5 != 0).doubts.change
    if what is None:
        assert change is None
        return
    assert (change.what, change.at) == (what, 71)  # the first fitted one
    assert change.size[0] == pytest.approx(1e-3 if what == "instrument" else 4e-3, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["left-handed", "joints 2 and 4 look exchanged", "modified (Craig) DH"])
def test_how_the_data_were_read_otherwise_is_named(wrong: str) -> None:
    geometry = PANDA if "DH" in wrong else UR10
    arm = truth(geometry, False, 80, seed=4)
    q, measured = arm.q, arm.measured
    if wrong == "left-handed":
        measured = measured[:, [1, 0, 2]]
    elif "exchanged" in wrong:
        q = q[:, [0, 3, 2, 1, 4, 5]]
    else:
        geometry = type(PANDA)("dh", rows=PANDA.rows)
    result = calibrate(geometry, q, measured)
    assert wrong in result.doubts.unit
    assert result.doubts.unit_left <= 0.5


@pytest.mark.parametrize("constant", [0.0, 0.03, 0.2])
def test_the_constant_of_a_distance_sensor_is_estimated(constant: float) -> None:
    rng = np.random.default_rng(3)
    q, centre, errors = postures(UR10, 150, rng), np.array([1.0, 1.5, -0.5]), {"a2": 1e-3, "theta3": 2e-3}
    ends = as_measured(forward(UR10, q, errors, np.eye(4), TOOL), False)
    length = np.linalg.norm(ends - centre, axis=1) + rng.normal(0.0, NOISE, 150)
    result = calibrate(UR10, q, Distances(length + constant, np.zeros(150, dtype=np.int64)))
    assert result.verdict == "ok", result.reasons
    k = result.free.index("distance_offset")
    std = float(np.sqrt(result.covariance[k, k]))
    assert abs(result.model.sensor_offset(result.x) - constant) < 4.0 * std
    assert {p.name: p.value for p in result.parameters}["a2"] == pytest.approx(1e-3, abs=2e-4)


def test_a_base_that_moves_far_from_its_nominal_fit_is_no_bound() -> None:
    """A wrong zero turns the base of the nominal arm by more than an error may be."""
    q = np.array([0.1, -1.0, 1.2, 0.3, 1.0, 0.2]) + np.random.default_rng(7).uniform(-0.6, 0.6, (80, 6))
    errors = {"theta2": 0.08, "theta3": -0.09, "theta4": 0.09}
    measured = noisy(as_measured(forward(UR10, q, errors, BASE, TOOL), False))
    result = calibrate(UR10, q, measured, CalibrationSettings(range_length=0.02))
    assert result.verdict == "ok", result.reasons


def test_another_table_is_checked_with_its_own_base_and_tool() -> None:
    errors, rng = {"a2": 1e-3, "theta3": 2e-3}, np.random.default_rng(3)
    q, other = postures(UR10, 60, rng), postures(UR10, 30, rng)
    result = calibrate(UR10, q, noisy(as_measured(forward(UR10, q, errors, BASE, TOOL), False)))
    elsewhere = as_measured(forward(UR10, other, errors, np.eye(4), frame((0.0, 0.1, 0.2), (0.0, 0.0, 0.0))), False)
    found = errors_elsewhere(result, other, noisy(elsewhere, 2), CalibrationSettings())
    assert found.before.rms > 1e-3
    assert found.after.rms < 2.5 * NOISE
    with pytest.raises(CalibrationError, match="check with at least 4"):
        errors_elsewhere(result, other[:3], elsewhere[:3], CalibrationSettings())
