"""Parameters that noise amplifies are given up, but for those that the poses need."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import least_squares

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.result import Calibration
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import FloatArray
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.arms.calibration import UR10

NOISE = 1e-4


def left(result: Calibration, sample: Sample, held: tuple[str, ...]) -> tuple[float, int]:
    """Sum of squares that SciPy leaves with all that was fitted or given up but for what is `held`, and how many."""
    names = [name for name in (*result.free, *result.held) if name not in held]
    free = np.array([result.model.index(name) for name in names])
    size = np.linalg.norm(result.model.jacobian(sample, result.x, free), axis=(0, 1))

    def errors(z: FloatArray) -> FloatArray:
        x = np.zeros(result.model.size)
        x[free] = z / size
        return x

    found = least_squares(
        lambda z: result.model.residual(sample, errors(z)).ravel() / NOISE, result.x[free] * size,
        lambda z: result.model.jacobian(sample, errors(z), free).reshape(-1, free.size) / size / NOISE, method="lm",
        xtol=1e-14, ftol=1e-14, gtol=1e-14,
    )  # fmt: skip
    return 2.0 * float(found.cost), free.size


def least_chance(result: Calibration, sample: Sample) -> float:
    """Least probability, of each fit on the way beside each earlier one, that chance alone makes it so much worse."""
    fits = [left(result, sample, result.held[:k]) for k in range(len(result.held) + 1)]
    chance = [1.0]
    for k, (poorer, few) in enumerate(fits):
        for richer, many in fits[:k]:
            freedom = 3 * len(sample) - many
            chance.append(float(stats.f.sf((poorer - richer) / (many - few) / (richer / freedom), many - few, freedom)))
    return min(chance)


def off_axis(size: float, seed: int) -> tuple[TrackedArm, FloatArray, FloatArray, FloatArray]:
    """Arm with errors of some `size` and a target 2 mm off its last axis; postures, readings, and other postures."""
    settings = TrackerSettings(error_length=size, error_angle=size, noise=5e-5, target=2e-3, seed=seed)
    arm = TrackedArm.of(UR10, settings)
    rng = np.random.default_rng(100 + seed)
    q = np.array([0.1, -1.2, 1.3, 0.3, 1.2, 0.2]) + rng.uniform(-3.1, 3.1, (80, 6))
    return arm, q, arm.measure(q)[0], rng.uniform(-3.1, 3.1, (200, 6))


def missed(arm: TrackedArm, result: Calibration, q: FloatArray) -> float:
    """Mean distance [m] of the predicted from the true place at postures (N, n)."""
    return float(np.linalg.norm(result.predict(q)[0] - arm.exact(q)[0], axis=1).mean())


@pytest.mark.parametrize("seed", [0, 2])
def test_what_the_poses_need_is_kept(seed: int) -> None:
    """Errors of a centimetre and 10 mrad: without the parameters that noise amplifies, the poses fit worse."""
    arm, q, measured, other = off_axis(1e-2, seed)
    result = calibrate(UR10, q, measured)
    assert result.verdict == "ok"
    assert result.held == ()
    weak_ones = calibrate(UR10, q, measured, CalibrationSettings(excluded=("alpha5", "theta5", "a5")))
    assert missed(arm, result, other) < 0.5 * missed(arm, weak_ones, other)
    assert missed(arm, result, other) < NOISE


@pytest.mark.parametrize("seed", [0, 1])
def test_what_they_do_not_need_is_given_up(seed: int) -> None:
    """Errors of a third of that: what noise amplifies says less than the noise, and the arm is as well without."""
    arm, q, measured, other = off_axis(3e-3, seed)
    result = calibrate(UR10, q, measured)
    assert result.verdict == "ok"
    assert result.held
    assert missed(arm, result, other) < NOISE
    assert least_chance(result, Sample.of(q, measured)) >= 0.01
