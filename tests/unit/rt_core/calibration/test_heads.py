"""Several points on the tool, measured in turns: one arm, and an offset for each."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray, IntArray
from tests.lab.arms.calibration import UR10, as_measured, forward, frame, postures

BASE = frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2))
HEADS = np.array([[0.06, -0.04, 0.12], [-0.08, 0.05, 0.1], [0.0, 0.1, 0.2]])
ERRORS = {"a2": 1e-3, "alpha1": -1.5e-3, "theta3": 2e-3, "theta5": 1e-3, "d5": 8e-4, "a5": -5e-4}


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
    found = {p.name: p.value for p in result.parameters}
    for name, value in ERRORS.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name
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
