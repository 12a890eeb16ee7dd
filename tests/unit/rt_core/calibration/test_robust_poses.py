"""Losses with one weight a pose: their efficiency, weights and scales, and that the kernel has the same."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.calibration._chain import loss_and_weight
from rt_core.calibration._robust import LOSSES, Loss, efficiency, scale, slopes, tuning, weights

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
            w = weights(np.linalg.norm(data - centre, axis=1), loss, limit)
            centre = (w[:, None] * data).sum(axis=0) / w.sum()
        robust.append(centre)
    assert np.var(plain) / np.var(robust) == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize("loss", ["squares", *ROBUST])
def test_kernel_weights_and_losses_belong_together(loss: Loss) -> None:
    limit = tuning(loss, 3)
    for u in (0.0, 0.7, 2.0, 4.9, 30.0):
        rho, weight = loss_and_weight(u * u, LOSSES[loss], limit)
        assert weight == pytest.approx(float(weights(np.array([u]), loss, limit)[0]), abs=1e-15)
        h = 1e-6
        rise = loss_and_weight((u + h) ** 2, LOSSES[loss], limit)[0] - rho
        assert rise / h == pytest.approx(2.0 * weight * u, abs=1e-4)
        psi = [float(v * weights(np.array([v]), loss, limit)[0]) for v in (u - h, u + h)]
        assert (psi[1] - psi[0]) / (2.0 * h) == pytest.approx(float(slopes(np.array([u]), loss, limit)[0]), abs=1e-5)


def test_scale_of_a_median_survives_outliers() -> None:
    lengths = np.linalg.norm(np.random.default_rng(1).normal(0.0, 2e-4, (4000, 3)), axis=1)
    assert scale(lengths, 3, "squares") == pytest.approx(2e-4, rel=0.02)
    assert scale(lengths, 3, "huber") == pytest.approx(2e-4, rel=0.03)
    lengths[:400] = 1.0
    assert scale(lengths, 3, "bisquare") == pytest.approx(2e-4, rel=0.15)
    assert scale(lengths, 3, "squares") > 0.1
