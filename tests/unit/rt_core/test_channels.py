"""Channels against themselves: what is no motion is found, with its samples, and motion is never taken for it."""

import numpy as np
import pytest
from scipy import signal

from rt_core.channels import clipped_samples, dropped_samples, position_faults, rolls_over, unwrapped, velocity_relation

RATE = 250.0
T = np.arange(0.0, 40.0, 1.0 / RATE)
TURN = 2.0 * np.pi


def motion(rng: np.random.Generator, amplitude: float = 1.0) -> np.ndarray:
    """A joint's motion of three harmonics, with the noise of an encoder."""
    f, phase = rng.uniform(0.1, 1.0, 3), rng.uniform(0.0, TURN, 3)
    q = sum(amplitude * np.sin(TURN * a * T + b) for a, b in zip(f, phase, strict=True))
    return q + 1e-5 * rng.standard_normal(T.size)


def at_rest_mostly(rng: np.random.Generator) -> np.ndarray:
    """Point to point: a second of motion, nine of rest."""
    return np.repeat(rng.uniform(-1.0, 1.0, 4), T.size // 4) * 0.0 + np.cumsum(
        np.where(T % 10.0 < 1.0, np.sin(np.pi * (T % 10.0)) * rng.choice([-0.01, 0.01]), 0.0)
    )


def test_motion_is_no_fault() -> None:
    rng = np.random.default_rng(0)
    for k in range(200):
        q = motion(rng, rng.uniform(0.01, 3.0)) if k % 2 else at_rest_mostly(rng)
        if k % 3 == 0:
            q = np.round(q / 1e-3) * 1e-3  # a coarse encoder
        assert position_faults(T, q[:, None], [TURN]) == []


def damaged(kind: str, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    out = q.copy()
    if kind == "wrap":
        return np.mod(out - np.median(out), TURN)
    if kind == "dropout":
        for k in 400 * np.arange(1, 21):
            out[k : k + rng.integers(1, 4)] = 5.0
    if kind == "jump":
        out[T.size // 2 :] += 3.0
    if kind == "rollover":
        return np.mod(out - np.median(out), 1.3)
    return out


@pytest.mark.parametrize("kind", ["wrap", "dropout", "jump", "rollover"])
def test_faults_are_named(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        q = motion(rng)
        bad = damaged(kind, q, rng)
        (found,) = position_faults(T, np.stack((q, bad), axis=1), [TURN, TURN])
        assert (found.kind, found.joint) == (kind, 1)
        if kind == "wrap":
            back = unwrapped(bad, TURN)
            np.testing.assert_allclose(back - back[0], q - q[0], atol=1e-9)
        if kind == "dropout":
            assert set(found.samples) == set(np.flatnonzero(bad != q))


def test_an_unsigned_counter_rolls_over_and_two_spikes_do_not() -> None:
    current = np.round(2000.0 * np.sin(T))
    assert rolls_over(np.where(current < 0.0, current + 65536.0, current))
    spikes = current.copy()
    spikes[[1000, 5000]] = 60000.0
    assert not rolls_over(spikes)
    assert not rolls_over(current)


@pytest.mark.parametrize("lag_s", [0.0, 0.01, 0.04])
@pytest.mark.parametrize("scale", [1.0, 0.8, -1.0])
def test_lag_and_scale_of_a_velocity(lag_s: float, scale: float) -> None:
    rng = np.random.default_rng(2)
    q = motion(rng)
    true = np.gradient(q, 1.0 / RATE)
    dq = true
    if lag_s:
        pole = np.exp(-1.0 / (RATE * lag_s))
        dq = signal.lfilter([1.0 - pole], [1.0, -pole], true)
    found = velocity_relation(T, q, scale * dq + 1e-3 * rng.standard_normal(T.size))
    assert found.scale == pytest.approx(scale, abs=0.02)
    assert found.lag_s == pytest.approx(lag_s, abs=1.5 / RATE)


def test_a_saturated_torque_is_found_and_a_coarse_one_is_not() -> None:
    torque = 10.0 * np.sin(TURN * 0.3 * T) + 0.05 * np.random.default_rng(3).standard_normal(T.size)
    moving = np.ones(T.size, dtype=bool)
    clipped = np.clip(torque, -7.0, 7.0)
    np.testing.assert_array_equal(
        np.setdiff1d(clipped_samples(clipped, moving), np.flatnonzero(np.abs(torque) >= 7.0)), []
    )
    assert clipped_samples(clipped, moving).size > 0.3 * np.count_nonzero(np.abs(torque) > 7.0)
    assert clipped_samples(torque, moving).size == 0
    assert clipped_samples(np.round(torque), moving).size == 0
    for run in (1, 2, 5):
        gone = np.arange(torque.size) % 37 < run
        found = dropped_samples(np.where(gone, 0.0, torque), moving)
        assert gone[found].all()
        assert found.size > 0.3 * np.count_nonzero(gone)
    k, drive, still = np.arange(torque.size), 20.0 + torque, moving | True
    guided = np.where(k % 500 < 100, 0.0, drive)  # drives off, again and again
    braked = np.where(k % 500 < 15, 0.0, drive)
    for x, moves in (
        (torque, moving), (np.round(torque), moving), (np.round(0.05 * torque + 0.8), still), (guided, still),
        (braked, k % 500 != 7), (np.where((k > 90) & (k < 102), 0.0, drive), still),
    ):  # fmt: skip
        assert dropped_samples(x, moves).size == 0


def test_a_velocity_across_gaps_in_time() -> None:
    """A minute without samples is no motion: stretches count by themselves."""
    q = motion(np.random.default_rng(4))
    dq = np.gradient(q, 1.0 / RATE)
    t = T + 60.0 * (T > 13.0) + 60.0 * (T > 25.0)
    found = velocity_relation(t, q, dq)
    assert found.scale == pytest.approx(1.0, abs=0.01)
    assert found.lag_s == pytest.approx(0.0, abs=0.5 / RATE)


@pytest.mark.parametrize("burst", ["recorded", "sent"])
def test_a_lag_in_bursts_of_samples(burst: str) -> None:
    """Of half a second with pauses as long, or of ten samples that share nearly one time stamp."""
    q = motion(np.random.default_rng(5))
    late = np.roll(np.gradient(q, 1.0 / RATE), round(0.02 * RATE))
    kept = T % 1.0 < 0.5 if burst == "recorded" else T > 0.1
    t = T if burst == "recorded" else np.repeat(T[9::10], 10)[: T.size] + 1e-5 * (np.arange(T.size) % 10)
    found = velocity_relation(t[kept], q[kept], late[kept])
    assert found.scale == pytest.approx(1.0, abs=0.02)
    assert found.lag_s == pytest.approx(0.02, abs=1.0 / RATE)
    assert found.lag_std_s < 0.005
