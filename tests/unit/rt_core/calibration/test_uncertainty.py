"""Standard deviations, also where errors of successive poses are alike; losses with one weight a pose."""

import numpy as np
import pytest

from rt_core.calibration._chain import Criterion, pose_loss
from rt_core.calibration._robust import LOSSES, efficiency, losses, scale, tuning
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.result import Calibration
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.calibration.uncertainty import BLOCKS, half_interval
from rt_core.robust_loss import Loss, loss_slopes, loss_weights
from rt_core.types import FloatArray
from tests.lab.arms.calibration import BASE, PANDA, TOOL, UR10, Truth, as_measured, forward, truth

RUNS = 15


def textbook(arm: Truth, result: Calibration) -> FloatArray:
    free = np.array([result.model.index(name) for name in result.free])
    J = result.model.jacobian(Sample.of(arm.q, arm.measured), result.x, free).reshape(-1, free.size)
    variance = np.sum(result.residual_after**2) / (J.shape[0] - free.size)
    return np.asarray(np.sqrt(variance * np.diag(np.linalg.inv(J.T @ J))))


@pytest.mark.parametrize("robust", [False, True])
def test_independent_noise_keeps_the_plain_deviations(robust: bool) -> None:
    arm = truth(PANDA, False, 80, seed=1)
    z: list[float] = []
    kept = 0
    for seed in range(RUNS):
        noise = np.random.default_rng(seed).normal(0.0, 1e-4, arm.measured.shape)
        result = calibrate(PANDA, arm.q, arm.measured + noise, CalibrationSettings(robust=robust))
        assert result.dependence.blocks == BLOCKS
        kept += not result.dependence.found
        if not result.dependence.found:
            ratio = np.sqrt(np.diag(result.covariance)) / textbook(arm, result)
            assert np.median(ratio) == pytest.approx(1.0, abs=0.1 if robust else 1e-6)
        z += [(p.value - arm.errors[p.name]) / p.std for p in result.parameters if p.value is not None and p.std]
    assert kept >= RUNS - 1
    assert 0.92 < np.mean(np.abs(z) < 1.96) < 0.98


def test_intervals_of_few_poses_cover_the_truth() -> None:
    """Twelve poses leave nine degrees of freedom: 1.96 standard deviations are too little."""
    arm = truth(UR10, False, 40, seed=3)
    z: list[float] = []
    inside: list[bool] = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(40)[:12]
        result = calibrate(UR10, arm.q[rows], arm.measured[rows] + rng.normal(0.0, 1e-6, (12, 3)))
        assert result.freedom == 36 - len(result.free) == 9
        off = [abs(p.value - arm.errors[p.name]) / p.std for p in result.parameters if p.value is not None and p.std]
        inside += [one < half_interval(result.freedom) for one in off]
        z += off
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
    assert np.mean(np.array(z) < 1.96) < 0.935


def slow_way(count: int) -> FloatArray:
    """(count, 7) postures along a way on which neighbours are alike."""
    rng = np.random.default_rng(3)
    turns = np.linspace(0.0, 1.0, count)[:, None] * rng.uniform(2.0, 9.0, 7)
    return np.asarray(0.8 * np.pi * np.sin(2.0 * np.pi * turns + rng.uniform(0.0, 6.0, 7)))


def test_errors_that_last_for_many_poses_are_covered() -> None:
    """An error of the instrument that wanders: successive poses have 0.95 of it in common."""
    errors = truth(PANDA, False, 80, seed=1).errors
    q = slow_way(400)
    arm = Truth(PANDA, errors, q, as_measured(forward(PANDA, q, errors, BASE, TOOL), False))
    z: list[float] = []
    plain: list[float] = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        wander = np.zeros((400, 3))
        for i in range(1, 400):
            wander[i] = 0.95 * wander[i - 1] + rng.normal(0.0, 1e-4, 3)
        result = calibrate(PANDA, q, arm.measured + wander, CalibrationSettings(robust=True))
        assert result.dependence.found
        assert result.freedom == BLOCKS - 1
        ratio = np.sqrt(np.diag(result.covariance)) / textbook(arm, result)
        wider = dict(zip(result.free, ratio, strict=True))
        for p in result.parameters:
            if p.value is not None and p.std is not None:
                z.append((p.value - errors.get(p.name, 0.0)) / p.std)
                plain.append(z[-1] * wider[p.name])
    assert np.sqrt(np.mean(np.square(plain))) > 2.3
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.2
    assert np.mean(np.abs(z) < 1.96) > 0.9


ROBUST: list[Loss] = ["huber", "bisquare"]


@pytest.mark.parametrize("width", [3, 6])
@pytest.mark.parametrize("loss", ROBUST)
def test_limits_cost_five_per_cent_where_all_is_normal(loss: Loss, width: int) -> None:
    """The spread of many M-estimates of a mean, against that of the plain means."""
    assert efficiency(loss, tuning(loss, width), width) == pytest.approx(0.95, abs=1e-3)
    rng = np.random.default_rng(0)
    count, limit = 200, tuning(loss, width)
    plain, robust = [], []
    for _ in range(300):
        data = rng.normal(size=(count, width))
        centre = data.mean(axis=0)
        plain.append(centre)
        for _ in range(6):
            w = loss_weights(np.linalg.norm(data - centre, axis=1), loss, limit)
            centre = (w[:, None] * data).sum(axis=0) / w.sum()
        robust.append(centre)
    assert np.var(plain) / np.var(robust) == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize("loss", ["squares", *ROBUST])
def test_kernel_weights_and_losses_belong_together(loss: Loss) -> None:
    limit = tuning(loss, 3)
    criterion = Criterion(np.ones(2), LOSSES[loss], limit, 3)
    h = 1e-6
    for u in (0.0, 0.7, 2.0, 4.9, 30.0):
        rho, later = (pose_loss(np.array([v, 0.0, 0.0]), criterion) for v in (u, u + h))
        assert rho == pytest.approx(float(losses(np.array([u]), loss, limit)[0]), rel=1e-14)
        weight = float(loss_weights(np.array([u]), loss, limit)[0])
        assert (later - rho) / h == pytest.approx(2.0 * weight * u, abs=1e-4)
        psi = [float(v * loss_weights(np.array([v]), loss, limit)[0]) for v in (u - h, u + h)]
        assert (psi[1] - psi[0]) / (2.0 * h) == pytest.approx(
            float(loss_slopes(np.array([u]), loss, limit)[0]), abs=1e-5
        )


def test_scale_of_a_median_survives_outliers() -> None:
    lengths = np.linalg.norm(np.random.default_rng(1).normal(0.0, 2e-4, (4000, 3)), axis=1)
    assert scale(lengths, 3, "squares") == pytest.approx(2e-4, rel=0.02)
    assert scale(lengths, 3, "huber") == pytest.approx(2e-4, rel=0.03)
    lengths[:400] = 1.0
    assert scale(lengths, 3, "bisquare") == pytest.approx(2e-4, rel=0.15)
    assert scale(lengths, 3, "squares") > 0.1
