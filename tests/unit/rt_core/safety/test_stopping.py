"""A stop is always possible, within the acceleration limits at each cycle and within the position limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rt_core.safety import Approach, brake, check_commands, check_path, stopping_distance
from rt_core.types import FloatArray
from tests.lab.arms.safety_joints import limits

LIMITS = limits()
PERIODS_S = st.sampled_from([0.5e-3, 1e-3, 4e-3])
SHARES = st.floats(-1.0, 1.0)


def stop(q: FloatArray, v: FloatArray, period_s: float) -> list[FloatArray]:
    """All commands of a stop, the one it begins from first."""
    commands = [q]
    while v.any():
        q, v = brake(LIMITS, period_s, q, v)
        commands.append(q)
        assert len(commands) < 100_000
    return commands


@given(PERIODS_S, SHARES, SHARES)
def test_each_joint_loses_speed_at_its_limit_and_no_faster(period_s: float, first: float, second: float) -> None:
    v = np.array([first, second]) * LIMITS.velocity
    q = np.array([0.3, -0.4])
    path = np.array([q - v * period_s, *stop(q, v, period_s)])
    speed = np.diff(path, axis=0) / period_s
    change = np.diff(speed, axis=0) / period_s
    assert (np.abs(change) <= LIMITS.acceleration * (1.0 + 1e-6) + 1e-6).all()
    assert (speed * np.sign(v) >= -1e-9).all(), "never back"
    longest = np.abs(v) / (LIMITS.acceleration * period_s)
    assert len(path) - 2 == np.ceil(longest.max()) or abs(longest.max() - np.round(longest.max())) < 1e-6
    np.testing.assert_allclose(path[-1] - q, stopping_distance(LIMITS, period_s, v), atol=1e-9)
    # Never further than without cycles, v^2 / 2a, and at most a cycle's way less.
    ideal = 0.5 * np.abs(v) * v / LIMITS.acceleration
    assert (np.abs(path[-1] - q) <= np.abs(ideal) + 1e-12).all()
    assert (np.abs(ideal - (path[-1] - q)) <= np.abs(v) * period_s + 1e-12).all()


@settings(max_examples=30)
@given(st.sampled_from([2e-3, 5e-3, 10e-3]), st.integers(0, 2**32 - 1), st.floats(0.5, 3.0))
def test_whatever_was_accepted_can_be_braked(period_s: float, seed: int, boldness: float) -> None:
    """A driver that wants too much, checked in each cycle: what is refused is braked, and that is always accepted."""
    rng = np.random.default_rng(seed)
    path = [np.zeros(2), np.zeros(2)]
    refused = 0
    push = np.zeros(2)
    for k in range(800):
        if k % 40 == 0:
            push = rng.uniform(-boldness, boldness, 2) * LIMITS.acceleration
        before, last = path[-2:]
        wanted = 2.0 * last - before + push * period_s**2
        if check_commands(LIMITS, period_s, np.array([before, last, wanted])) is not None:
            refused += 1
            wanted, _ = brake(LIMITS, period_s, last, (last - before) / period_s)
            assert check_commands(LIMITS, period_s, np.array([before, last, wanted])) is None
        path.append(wanted)
        if k % 80 == 0:
            stopped = np.array(stop(wanted, (wanted - last) / period_s, period_s))
            assert (stopped >= LIMITS.lower - 1e-5).all()
            assert (stopped <= LIMITS.upper + 1e-5).all()
    q = np.array(path)
    assert (q >= LIMITS.lower - 1e-5).all()
    assert (q <= LIMITS.upper + 1e-5).all()
    change = np.diff(q, 2, axis=0) / period_s**2
    assert (np.abs(change) <= LIMITS.acceleration * (1.0 + 1e-5) + 1e-5).all()
    assert refused or boldness < 1.5


@given(PERIODS_S, SHARES, SHARES, SHARES, SHARES, st.floats(0.01, 1.0))
def test_an_approach_keeps_its_share_and_has_room_to_stop(
    period_s: float, a: float, b: float, c: float, d: float, share: float
) -> None:
    middle, half = 0.5 * (LIMITS.upper + LIMITS.lower), 0.5 * (LIMITS.upper - LIMITS.lower)
    start, goal = middle + half * np.array([a, b]), middle + half * np.array([c, d])
    way = Approach(LIMITS, start, goal, share, 0.2)
    path = way.at(np.arange(int(np.ceil(way.duration_s / period_s)) + 1) * period_s)
    np.testing.assert_array_equal(path[0], start)
    np.testing.assert_array_equal(path[-1], goal)
    np.testing.assert_allclose(way.at(0.4 * way.duration_s), way.at(np.array([0.4 * way.duration_s]))[0])
    assert check_path(LIMITS, period_s, path) is None
    speed = np.abs(np.diff(path, axis=0)) / period_s
    change = np.abs(np.diff(path, 2, axis=0)) / period_s**2
    assert (speed <= share * LIMITS.velocity * (1.0 + 1e-9) + 1e-9).all()
    assert (change <= share * LIMITS.acceleration * (1.0 + 1e-9) + 1e-6).all()


def test_an_approach_is_no_slower_than_its_share_asks_for() -> None:
    way = Approach(LIMITS, np.zeros(2), np.array([1.0, 0.0]), 0.1, 0.0)
    speed = np.diff(way.at(np.arange(0.0, way.duration_s, 0.001)), axis=0) / 0.001
    assert np.abs(speed).max() == pytest.approx(0.1 * LIMITS.velocity[0], rel=1e-3)
