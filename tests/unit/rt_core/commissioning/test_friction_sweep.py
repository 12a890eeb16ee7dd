"""Friction from a sweep of a simulated arm whose friction is known, and laws through points of known friction."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

from drivers.files.robots.file import load_robot
from rt_core.commissioning._hysteresis import mean_with_std
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.friction_law import fit_friction
from rt_core.commissioning.friction_sweep import SweepPasses, SweepPoint, sweep_passes, sweep_points
from rt_core.commissioning.profiles import Sweep
from rt_core.types import FloatArray
from service.commission.steps._friction import directions
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import CSP

RATE_HZ = 500.0
SWEEP = Sweep(1.5, 0.4, 0.3)
SPACE6 = load_robot("space6").model
MIDDLE = np.array([0.3, -0.5, 0.6, 0.2, -0.4, 0.5])
NOISE = 0.2


def follow(start: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Let the simulated arm follow rows; times, positions and torques with noise."""
    settings = DRIVE_ARM_SETTINGS.model_copy(update={"rate_hz": RATE_HZ, "torque_noise": (NOISE,) * SPACE6.n})
    arm = DriveArm(SPACE6, settings, start=start)
    rest = np.repeat(rows[:1], round(0.5 * RATE_HZ), axis=0)
    samples = [arm.step([CSP] * SPACE6.n, row) for row in np.vstack((rest, rows, rest))]
    t = np.arange(len(samples)) / RATE_HZ
    return t, np.array([sample.q for sample in samples]), np.array([sample.tau for sample in samples])


def sweep_point(*recorded: Any) -> SweepPoint:
    """Friction at the speed of a sweep, as told by a torque that is not late."""
    found = sweep_passes(*recorded)
    return SweepPoint(found.speed, *mean_with_std(found.signal.half_difference * found.direction))


def ends(speed: FloatArray) -> tuple[FloatArray, FloatArray]:
    half = 0.5 * speed * SWEEP.reach_s
    return MIDDLE - half, MIDDLE + half


def test_the_friction_of_an_arm_is_found_without_its_model() -> None:
    dynamics = SPACE6.dynamics
    speed = 0.02 * np.array([joint.velocity for joint in SPACE6.joints]) * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    start, end = ends(speed)
    point = sweep_point(*follow(start, SWEEP.rows(start, end, RATE_HZ)), start, end, SWEEP)
    truth = dynamics.coulomb + dynamics.viscous * np.abs(speed)
    np.testing.assert_allclose(point.speed, np.abs(speed), rtol=1e-3)
    # within four of the stated deviations, and these are small
    assert (np.abs(point.friction - truth) < 4.0 * point.std + 1e-3 * truth).all(), (point.friction, truth, point.std)
    assert (point.std < 0.05 * truth).all()


def test_recordings_that_do_not_hold_the_sweep_are_refused() -> None:
    start, end = np.zeros(2), np.array([0.4, 0.5])
    rows = SWEEP.rows(start, end, RATE_HZ)
    t = np.arange(len(rows)) / RATE_HZ
    with pytest.raises(CommissioningError, match="not reached"):
        sweep_point(t[:900], rows[:900], rows[:900], start, end, SWEEP)
    with pytest.raises(CommissioningError, match="whole way"):
        sweep_point(t[:1500], rows[:1500], rows[:1500], start, end, SWEEP)
    with pytest.raises(CommissioningError, match="no joint moves"):
        sweep_point(t, rows, rows, start, start, SWEEP)
    halting = rows.copy()
    halting[:, 1] -= 0.1 * np.sin(4.0 * np.pi * rows[:, 1])
    with pytest.raises(CommissioningError, match="joint number 2"):
        sweep_point(t, halting, rows, start, end, SWEEP)


FAST_HZ = 1000.0
SPEEDS = 2.5 * np.array([0.006, 0.012, 0.025, 0.05, 0.1, 0.2])


def late(delay_s: float, seed: int) -> list[SweepPasses]:
    """Gravity of 80 sin q, Coulomb friction of 5 and viscous of 4, all told `delay_s` late."""
    rng, found = np.random.default_rng(seed), []
    for speed in SPEEDS:
        sweep = Sweep(2.5, 0.4, 0.3)
        half = 0.5 * speed * sweep.reach_s
        start, end = np.array([0.3 - half]), np.array([0.3 + half])
        rows = sweep.rows(start, end, FAST_HZ)
        q = np.vstack((np.repeat(rows[:1], 500, axis=0), rows, np.repeat(rows[-1:], 500, axis=0)))
        dq = np.gradient(q, 1.0 / FAST_HZ, axis=0)
        tau = 80.0 * np.sin(q) + 5.0 * np.sign(np.where(np.abs(dq) > 1e-9, dq, 0.0)) + 4.0 * dq
        tau += 0.2 * rng.normal(size=q.shape)
        count = round(delay_s * FAST_HZ)
        tau = np.vstack((np.repeat(tau[:1], count, axis=0), tau[: len(tau) - count]))
        found.append(sweep_passes(np.arange(len(q)) / FAST_HZ, q, tau, start, end, sweep))
    return found


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
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
    rows = sweep.rows(start, end, FAST_HZ)
    q = np.vstack((np.repeat(rows[:1], 500, axis=0), rows, np.repeat(rows[-1:], 500, axis=0)))
    dq = np.round(np.gradient(q, 1.0 / FAST_HZ, axis=0), 9)
    tau = (np.array([3.0, 2.0]) * np.sign(np.round(dq @ C.T, 9))) @ C
    tau += 0.05 * np.random.default_rng(1).normal(size=q.shape)
    t = np.arange(len(q)) / FAST_HZ
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


def test_frames_without_a_position_do_not_hide_a_wrong_speed() -> None:
    sweep = Sweep(2.5, 0.4, 0.3)
    way = 0.1 * np.ones(2) * sweep.reach_s
    rows = sweep.rows(-0.5 * way, 0.5 * way, FAST_HZ)
    t, tau = np.arange(len(rows)) / FAST_HZ, np.sign(np.gradient(rows, axis=0))
    holed = rows.copy()
    holed[[1000, 5000], 1] = np.nan
    point = sweep_point(t, holed, tau, -0.5 * way, 0.5 * way, sweep)
    np.testing.assert_allclose(point.speed, 0.1, rtol=1e-3)
    np.testing.assert_allclose(point.friction, 1.0, rtol=1e-3)
    holed[:, 1] -= 0.03 * np.sin(2.0 * np.pi * holed[:, 1] / way[1])  # reaches both ends, slowly between
    with pytest.raises(CommissioningError, match="joint number 2 moves at"):
        sweep_point(t, holed, tau, -0.5 * way, 0.5 * way, sweep)


SPEED = np.array([0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5])
FC, FB, KV, VB = 5.0, 8.0, 6.0, 0.03


def stribeck(v: np.ndarray) -> np.ndarray:
    return np.asarray(FC + (FB - FC) * np.exp(-((v / VB) ** 2)) + KV * v)


def test_coulomb_and_viscous_friction_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(1)
    std = np.array([0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.2])
    friction = FC + KV * SPEED + std * rng.normal(size=SPEED.size)
    fit = fit_friction(SPEED, friction, std)
    assert (fit.law, fit.names) == ("coulomb_viscous", ("fc", "fv"))
    wanted, covariance = optimize.curve_fit(lambda v, a, b: a + b * v, SPEED, friction, sigma=std, absolute_sigma=True)
    np.testing.assert_allclose(fit.values, wanted, rtol=1e-6)
    np.testing.assert_allclose(fit.std, fit.scatter * np.sqrt(np.diag(covariance)), rtol=1e-5)


def test_a_stribeck_law_is_found_where_it_shows() -> None:
    rng = np.random.default_rng(2)
    std = np.full(SPEED.size, 0.02)
    fit = fit_friction(SPEED, stribeck(SPEED) + std * rng.normal(size=SPEED.size), std)
    assert (fit.law, fit.names) == ("stribeck", ("fc", "fb", "kv1", "vb"))
    assert (np.abs(fit.values - [FC, FB, KV, VB]) < 4.0 * fit.std).all()
    wanted, _ = optimize.curve_fit(
        lambda v, a, b, c, d: a + (b - a) * np.exp(-((v / d) ** 2)) + c * v, SPEED, stribeck(SPEED),
        [4.0, 9.0, 5.0, 0.05],
    )  # fmt: skip
    np.testing.assert_allclose(fit_friction(SPEED, stribeck(SPEED), std).values, wanted, rtol=1e-3)


def test_noise_is_no_stribeck_friction() -> None:
    std = np.full(SPEED.size, 0.1)
    for seed in range(20):
        noise = std * np.random.default_rng(seed).normal(size=SPEED.size)
        assert fit_friction(SPEED, FC + KV * SPEED + noise, std).law == "coulomb_viscous", seed


def test_a_fall_that_lies_below_all_speeds_is_not_claimed() -> None:
    fast = SPEED[SPEED > 0.1]
    more = np.concatenate((fast, 1.5 * fast, 2.0 * fast))
    assert fit_friction(more, stribeck(more), np.full(more.size, 0.02)).law == "coulomb_viscous"


def test_few_points() -> None:
    assert fit_friction(SPEED[:1], np.array([5.0]), np.array([0.1])).law == "coulomb"
    two = fit_friction(SPEED[[0, -1]], FC + KV * SPEED[[0, -1]], np.array([0.1, 0.1]))
    np.testing.assert_allclose(two.values, [FC, KV], rtol=1e-9)
    with pytest.raises(CommissioningError, match="speeds above 0"):
        fit_friction(np.zeros(3), np.ones(3), np.ones(3))
