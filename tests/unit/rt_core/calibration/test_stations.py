"""One arm measured from several places of the instrument: one geometry, one tool, and a base for each place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Distances, Sample
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray, IntArray
from tests.lab.arms.calibration import PANDA, UR10, as_measured, check_derivatives, forward, frame, postures

BASES = [
    frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2)),
    frame((-3.0, 1.0, 0.2), (0.1, 0.2, -1.5)),
    frame((0.5, 2.5, -0.4), (-0.6, 2.0, 0.3)),
]
TOOL = frame((0.06, -0.04, 0.12), (0.2, 0.1, -0.5))
ERRORS = {"a2": 1e-3, "alpha1": -1.5e-3, "theta3": 2e-3, "theta5": 1e-3, "d5": 8e-4, "a5": -5e-4}


def measured_from(q: FloatArray, station: IntArray, orientation: bool = False) -> FloatArray:
    rows = [
        as_measured(forward(UR10, row[None], ERRORS, BASES[s], TOOL), orientation)
        for row, s in zip(q, station, strict=True)
    ]
    return np.vstack(rows)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
@pytest.mark.parametrize("geometry", [UR10, PANDA, Geometry.from_model(load_robot("space6").model)])
def test_derivatives_are_those_of_differences(geometry: Geometry, orientation: bool) -> None:
    rng = np.random.default_rng(0)
    q = postures(geometry, 12, rng)
    station = np.arange(12) % 3
    model = error_model(geometry, orientation=orientation, stations=3, heads=1 if orientation else 2)
    for name, base in zip(model.base_names, BASES, strict=True):
        model = model.with_frame(name, base[:3, :3], base[:3, 3])
    positions, rotations = model.predict(q, np.zeros(model.size), station=station)
    for base, row, s, p in zip(np.array(BASES)[station], q, station, positions, strict=True):
        if geometry is UR10:
            at = forward(UR10, row[None], {}, base, np.eye(4))[0, :3, 3]
            np.testing.assert_allclose(p, at, atol=1e-12, err_msg=f"station {s}")
    x = rng.normal(0.0, 1e-2, model.size)
    head = None if orientation else np.arange(12) // 3 % 2
    sample = replace(Sample.of(q, positions, rotations if orientation else None), station=station, head=head)
    check_derivatives(model, sample, x)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
def test_stations_share_one_arm(orientation: bool) -> None:
    """From none of the places alone there are enough poses."""
    count = 30 if orientation else 45
    q = postures(UR10, count, np.random.default_rng(1))
    station = np.arange(count) % 3
    measured = measured_from(q, station, orientation)
    for s in range(3):
        own = np.flatnonzero(station == s)[: 4 if orientation else 8]
        with pytest.raises(CalibrationError, match="measure at least"):
            calibrate(UR10, q[own], measured[own])
    result = calibrate(UR10, q, measured, station=station)
    assert result.verdict == "ok"
    found = {p.name: p.value for p in result.parameters}
    for name, value in ERRORS.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name
    assert result.base is not None
    frames = (result.base, *result.stations)
    assert len(frames) == 3
    for base, estimate in zip(BASES, frames, strict=True):
        assert estimate.rotation is not None
        np.testing.assert_allclose(estimate.rotation, base[:3, :3], atol=1e-8)
        np.testing.assert_allclose(np.array(estimate.translation, dtype=float), base[:3, 3], atol=1e-8)
    other = postures(UR10, 9, np.random.default_rng(2))
    positions, _ = result.predict(other, station=np.arange(9) % 3)
    np.testing.assert_allclose(positions, measured_from(other, np.arange(9) % 3), atol=1e-8)
    # Taken for one place they explain nothing.
    assert calibrate(UR10, q, measured).verdict == "not_explained"


def test_two_stations_say_more_than_one_of_them() -> None:
    q = postures(UR10, 80, np.random.default_rng(3))
    station = np.arange(80) % 2
    measured = measured_from(q, station) + np.random.default_rng(4).normal(0.0, 1e-4, (80, 3))
    both = calibrate(UR10, q, measured, station=station)
    one = calibrate(UR10, q[station == 0], measured[station == 0])
    assert both.verdict == "ok"
    assert both.scale[0] == pytest.approx(1e-4, rel=0.15)
    std = [{p.name: p.std for p in result.parameters if p.std is not None} for result in (both, one)]
    shared = std[0].keys() & std[1].keys()
    assert len(shared) > 12
    assert 0.5 < np.median([std[0][name] / std[1][name] for name in shared]) < 0.8  # about the root of a half
    for p in both.parameters:
        if p.value is not None and p.std is not None:
            assert abs(p.value - ERRORS.get(p.name, 0.0)) < 4.5 * p.std, p.name


def test_errors_are_along_the_axes_of_the_first_station() -> None:
    q = postures(UR10, 60, np.random.default_rng(5))
    station = np.arange(60) % 2
    measured = measured_from(q, station)
    shift = np.array([1e-3, 2e-3, -3e-3])
    measured[55] -= shift  # seen from the second
    result = calibrate(UR10, q, measured, station=station, use=np.arange(60) != 55)
    expected = BASES[0][:3, :3] @ BASES[1][:3, :3].T @ shift
    np.testing.assert_allclose(result.residual_after[55], expected, atol=1e-7)


def test_bad_readings_and_a_tracker_that_was_moved() -> None:
    q = postures(UR10, 120, np.random.default_rng(6))
    station = (np.arange(120) >= 70).astype(np.int64)
    measured = measured_from(q, station) + np.random.default_rng(7).normal(0.0, 1e-4, (120, 3))
    bad = [3, 40, 75, 110]
    measured[bad] += np.random.default_rng(8).normal(0.0, 0.02, (4, 3))
    result = calibrate(UR10, q, measured, CalibrationSettings(robust=True), station=station)
    assert result.verdict == "ok"
    assert result.doubts.poses == tuple(bad)
    for p in result.parameters:
        if p.value is not None and p.std is not None:
            assert abs(p.value - ERRORS.get(p.name, 0.0)) < 5.0 * p.std, p.name
    # Moved by little, and not told apart: said, with what to do.
    near = BASES[0] @ frame((2e-3, -3e-3, 1e-3), (0.0, 0.0, 2e-3))
    moved = measured_from(q, np.zeros(120, dtype=np.int64))
    late = as_measured(forward(UR10, q[80:], ERRORS, near, TOOL), False)
    moved[80:] = late
    moved += np.random.default_rng(9).normal(0.0, 1e-4, (120, 3))
    as_one = calibrate(UR10, q, moved, CalibrationSettings(robust=True))
    assert as_one.verdict == "outliers"
    assert "as stations" in as_one.reasons[0]
    apart = calibrate(UR10, q, moved, CalibrationSettings(robust=True), station=(np.arange(120) >= 80).astype(np.int64))
    assert apart.verdict == "ok"
    assert apart.scale[0] == pytest.approx(1e-4, rel=0.2)


def test_bad_stations_are_refused() -> None:
    q = postures(UR10, 60, np.random.default_rng(1))
    station = np.arange(60) % 2
    measured = measured_from(q, station)
    with pytest.raises(CalibrationError, match="station numbers must run from 0"):
        calibrate(UR10, q, measured, station=station + 1)
    with pytest.raises(CalibrationError, match="a base that is unknown"):
        calibrate(UR10, q, measured, CalibrationSettings(base=False), station=station)
    with pytest.raises(CalibrationError, match="a base that is unknown"):
        calibrate(UR10, q, Distances(np.ones(60), np.zeros(60, dtype=np.int64)), station=station)
    few = (np.arange(60) >= 58).astype(np.int64)
    with pytest.raises(CalibrationError, match=r"station 1 \(from 0\) has fewer than 3 poses to fit"):
        calibrate(UR10, q, measured, station=few)
