"""One arm measured from several places, or at several points of its tool in turns: an offset and a base for each."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import Targets, error_model
from rt_core.calibration.sample import Distances, Sample
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray, IntArray
from tests.lab.arms.calibration import UR10, as_measured, check_derivatives, forward, frame, postures

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


def test_derivatives_of_stations_and_heads_are_those_of_differences() -> None:
    rng = np.random.default_rng(0)
    q = postures(UR10, 12, rng)
    station, head = np.arange(12) % 3, np.arange(12) // 3 % 2
    model = error_model(UR10, targets=Targets(stations=3, heads=2))
    for name, base in zip(model.base_names, BASES, strict=True):
        model = model.with_frame(name, base[:3, :3], base[:3, 3])
    positions, _ = model.predict(q, np.zeros(model.size), station=station)
    sample = replace(Sample.of(q, positions), station=station, head=head)
    check_derivatives(model, sample, rng.normal(0.0, 1e-2, model.size))


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
    assert {p.name: p.value for p in result.parameters if p.name in ERRORS} == pytest.approx(ERRORS, abs=1e-9)
    frames = (result.base, *result.stations)
    assert len(frames) == 3
    for base, estimate in zip(BASES, frames, strict=True):
        np.testing.assert_allclose(estimate.rotation, base[:3, :3], atol=1e-8)
        np.testing.assert_allclose(np.array(estimate.translation, dtype=float), base[:3, 3], atol=1e-8)
    other = postures(UR10, 9, np.random.default_rng(2))
    positions, _ = result.predict(other, station=np.arange(9) % 3)
    np.testing.assert_allclose(positions, measured_from(other, np.arange(9) % 3), atol=1e-8)
    # Taken for one place they explain nothing.
    assert calibrate(UR10, q, measured).verdict == "not_explained"


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


BASE = frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2))
HEADS = np.array([[0.06, -0.04, 0.12], [-0.08, 0.05, 0.1], [0.0, 0.1, 0.2]])


def measured_at(q: FloatArray, head: IntArray) -> FloatArray:
    tools = [frame((float(x), float(y), float(z)), (0.0, 0.0, 0.0)) for x, y, z in HEADS]
    return np.array(
        [forward(UR10, row[None], ERRORS, BASE, tools[h])[0, :3, 3] for row, h in zip(q, head, strict=True)]
    )


def test_heads_share_one_arm() -> None:
    q = postures(UR10, 90, np.random.default_rng(1))
    head = np.arange(90) % 3
    measured = measured_at(q, head)
    result = calibrate(UR10, q, measured, head=head)
    assert result.verdict == "ok"
    assert {p.name: p.value for p in result.parameters if p.name in ERRORS} == pytest.approx(ERRORS, abs=1e-9)
    # The last joint's own errors stay in the tool, so heads are told apart by what they are from each other.
    offsets = result.model.offsets(result.x)
    np.testing.assert_allclose(np.linalg.norm(offsets, axis=1), np.linalg.norm(HEADS - HEADS[0], axis=1), atol=1e-8)
    other = postures(UR10, 9, np.random.default_rng(2))
    positions, _ = result.predict(other, head=np.arange(9) % 3)
    np.testing.assert_allclose(positions, measured_at(other, np.arange(9) % 3), atol=1e-8)
    # Taken for one point the heads explain nothing.
    assert calibrate(UR10, q, measured).training.after.mean > 1e-2


def test_bad_heads_are_refused() -> None:
    q = postures(UR10, 60, np.random.default_rng(1))
    head = np.arange(60) % 2
    measured = measured_at(q, head)
    with pytest.raises(CalibrationError, match="head numbers must run from 0"):
        calibrate(UR10, q, measured, head=head + 1)
    with pytest.raises(CalibrationError, match=r"head 1 \(from 0\) has no pose to fit"):
        calibrate(UR10, q, measured, head=head, use=head == 0)
    with pytest.raises(CalibrationError, match="take positions"):
        calibrate(UR10, q, measured, CalibrationSettings(tool=False), head=head)
    poses = as_measured(forward(UR10, q, ERRORS, BASE, np.eye(4)), True)
    with pytest.raises(CalibrationError, match="take positions"):
        calibrate(UR10, q, poses, head=head)
