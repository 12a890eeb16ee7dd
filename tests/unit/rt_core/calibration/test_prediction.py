"""How far predicted positions may be off, against calibrations of many drawn arms and noises."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.prediction import position_std
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.arms.calibration import UR10


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
