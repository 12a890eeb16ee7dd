"""The published calibration (KIN): 45 Fibonacci poses, noise of 0.25 mm an axis, an arm that is off by 11.6 mm."""

from __future__ import annotations

import numpy as np

from benchmarks.kin import TARGETS, Task, errors, task
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.settings import CalibrationSettings
from tests.lab.arms.calibration import forward

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
