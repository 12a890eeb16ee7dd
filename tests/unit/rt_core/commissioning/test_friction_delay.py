"""Friction of sweeps whose torque is late, has holes, or is that of coupled drives."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.commissioning.errors import CommissioningError
from rt_core.commissioning.friction_law import fit_friction
from rt_core.commissioning.friction_sweep import SweepPasses, sweep_passes, sweep_point, sweep_points
from rt_core.commissioning.profiles import Sweep
from rt_core.types import FloatArray
from service.commission.steps._friction import directions

RATE_HZ = 1000.0
SPEEDS = 2.5 * np.array([0.006, 0.012, 0.025, 0.05, 0.1, 0.2])


def late(delay_s: float, seed: int) -> list[SweepPasses]:
    """Gravity of 80 sin q, Coulomb friction of 5 and viscous of 4, all told `delay_s` late."""
    rng, found = np.random.default_rng(seed), []
    for speed in SPEEDS:
        sweep = Sweep(2.5, 0.4, 0.3)
        half = 0.5 * speed * sweep.reach_s
        start, end = np.array([0.3 - half]), np.array([0.3 + half])
        rows = sweep.rows(start, end, RATE_HZ)
        q = np.vstack((np.repeat(rows[:1], 500, axis=0), rows, np.repeat(rows[-1:], 500, axis=0)))
        dq = np.gradient(q, 1.0 / RATE_HZ, axis=0)
        tau = 80.0 * np.sin(q) + 5.0 * np.sign(np.where(np.abs(dq) > 1e-9, dq, 0.0)) + 4.0 * dq
        tau += 0.2 * rng.normal(size=q.shape)
        count = round(delay_s * RATE_HZ)
        tau = np.vstack((np.repeat(tau[:1], count, axis=0), tau[: len(tau) - count]))
        found.append(sweep_passes(np.arange(len(q)) / RATE_HZ, q, tau, start, end, sweep))
    return found


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01])
def test_a_late_torque_is_no_viscous_friction(delay_s: float) -> None:
    points, delay = sweep_points(late(delay_s, 1))
    assert delay[0] == pytest.approx(delay_s, abs=5e-4)
    speed, friction, std = (np.array([getattr(p, name)[0] for p in points]) for name in ("speed", "friction", "std"))
    assert (np.abs(friction - 5.0 - 4.0 * speed) < 4.0 * std).all()
    fit = fit_friction(speed, friction, std)
    assert fit.names[:2] == ("fc", "fv")
    np.testing.assert_array_less(np.abs(fit.values - [5.0, 4.0]), 4.0 * fit.std)
    assert fit.std[1] < 0.1


def coupled(C: FloatArray, signs: FloatArray) -> tuple[FloatArray, ...]:
    """Two joints whose drives have a friction of 3 and 2."""
    sweep = Sweep(2.5, 0.4, 0.3)
    way = 0.1 * signs * sweep.reach_s
    start, end = -0.5 * way, 0.5 * way
    rows = sweep.rows(start, end, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 500, axis=0), rows, np.repeat(rows[-1:], 500, axis=0)))
    dq = np.round(np.gradient(q, 1.0 / RATE_HZ, axis=0), 9)
    tau = (np.array([3.0, 2.0]) * np.sign(np.round(dq @ C.T, 9))) @ C
    tau += 0.05 * np.random.default_rng(1).normal(size=q.shape)
    t = np.arange(len(q)) / RATE_HZ
    point = sweep_point(t, q @ C.T, tau @ np.linalg.inv(C), C @ start, C @ end, sweep)
    return point.speed, point.friction, point.std


@pytest.mark.parametrize("share", [1.0, -1.0])
def test_friction_of_coupled_drives_is_that_of_each(share: float) -> None:
    C = np.array([[1.0, 0.0], [share, 1.0]])
    signs = directions(C, np.ones(2))
    assert (np.abs(C @ signs) > 0.5).all()
    speed, friction, std = coupled(C, signs)
    np.testing.assert_allclose(speed, 0.1 * np.abs(C @ signs), rtol=1e-3)
    np.testing.assert_array_less(np.abs(friction - [3.0, 2.0]), 5.0 * std)


def test_directions_of_uncoupled_joints_are_all_alike() -> None:
    np.testing.assert_array_equal(directions(np.eye(6), np.arange(1.0, 7.0)), np.ones(6))


def test_frames_without_a_position_do_not_hide_a_wrong_speed() -> None:
    sweep = Sweep(2.5, 0.4, 0.3)
    way = 0.1 * np.ones(2) * sweep.reach_s
    rows = sweep.rows(-0.5 * way, 0.5 * way, RATE_HZ)
    t, tau = np.arange(len(rows)) / RATE_HZ, np.sign(np.gradient(rows, axis=0))
    holed = rows.copy()
    holed[[1000, 5000], 1] = np.nan
    point = sweep_point(t, holed, tau, -0.5 * way, 0.5 * way, sweep)
    np.testing.assert_allclose(point.speed, 0.1, rtol=1e-3)
    np.testing.assert_allclose(point.friction, 1.0, rtol=1e-3)
    holed[:, 1] -= 0.03 * np.sin(2.0 * np.pi * holed[:, 1] / way[1])  # reaches both ends, slowly between
    with pytest.raises(CommissioningError, match="joint number 2 moves at"):
        sweep_point(t, holed, tau, -0.5 * way, 0.5 * way, sweep)
