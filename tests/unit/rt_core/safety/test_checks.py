"""Each limit on commands, trajectories and feedback: what breaks it is named, and what keeps it passes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rt_core import safety
from rt_core.types import FloatArray
from tests.lab.arms.safety_joints import PERIOD_S, limits

LIMITS = limits()
T = np.arange(0.0, 4.0 + 1e-9, PERIOD_S)


def wave(amplitude: float = 0.5, turns: int = 1, centre: float = 0.0) -> FloatArray:
    """Both joints out and back, (1 - cos)^2: at rest, without acceleration, at both ends."""
    shape = 0.25 * (1.0 - np.cos(2.0 * np.pi * turns * T / T[-1])) ** 2
    return np.stack((centre + amplitude * shape, 0.2 * shape), axis=1)


COARSE_S = 0.01


def slow_check(q: FloatArray) -> set[tuple[int, int]]:
    """Rows and joints at which a path from rest to rest breaks a limit, one number at a time."""
    cycle = COARSE_S
    bad = set()
    for joint in range(q.shape[1]):
        column = [float(q[0, joint])] * 2 + [float(x) for x in q[:, joint]] + [float(q[-1, joint])]
        v_max, a_max = LIMITS.velocity[joint], LIMITS.acceleration[joint]
        for k in range(2, len(column)):
            v = (column[k] - column[k - 1]) / cycle
            a = (v - (column[k - 1] - column[k - 2]) / cycle) / cycle
            end, left = column[k], v
            while left != 0.0 and abs(left) < 1e3:
                left = np.sign(left) * max(abs(left) - a_max * cycle, 0.0)
                end += left * cycle
            fits = (
                LIMITS.lower[joint] - 1e-5 <= min(end, column[k]) and max(end, column[k]) <= LIMITS.upper[joint] + 1e-5
            )
            if not (fits and abs(v) <= v_max * (1 + 1e-5) and abs(a) <= a_max * (1 + 1e-5) + 1e-6):
                bad.add((k - 2, joint))
    return bad


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.02, 1.0))
def test_agrees_with_one_number_at_a_time(seed: int, scale: float) -> None:
    harmonics = np.random.default_rng(seed).normal(size=(4, 2)) * scale
    t = T[::10]
    q = sum(harmonics[k] * 0.2 * (1.0 - np.cos((k + 1) * 2.0 * np.pi * t / t[-1]))[:, None] for k in range(4))
    q = np.asarray(q)[: 60 + seed % 450]  # mostly cut off in motion
    found, bad = safety.check_path(LIMITS, COARSE_S, q), slow_check(q)
    assert (found is None) == (not bad)
    if found is not None:
        assert found.at_s == pytest.approx(min(bad)[0] * COARSE_S) or found.what in ("start", "end")
    parts = [safety.check_path(LIMITS, COARSE_S, q, k, k + 37) for k in range(0, len(q), 37)]
    assert next((part for part in parts if part is not None), None) == found


def test_a_good_trajectory_passes() -> None:
    assert safety.check_path(LIMITS, PERIOD_S, wave()) is None
    assert safety.check_closed(LIMITS, PERIOD_S, wave()) is None


def jumping(by: float) -> FloatArray:
    q = wave()
    q[1500:, 1] += by
    return q


@pytest.mark.parametrize(
    ("q", "words"),
    [
        (wave(1.6), ["joint_1: position 1.5", "at 1.", "the limit is 1.5 rad"]),
        (wave(-1.1), ["joint_1: position -1.001 rad", "the limit is -1 rad"]),
        (wave(1.4, turns=2), ["joint_1: velocity 2", "rad/s", "at most 2 rad/s"]),
        (np.linspace([0, 0], [0, 0.4], 4001), ["joint_2: does not begin at rest", "0.1 m/s", "at most 0.003 m/s"]),
        (wave()[:2100], ["joint_1: does not end at rest"]),
        (wave(0.5, turns=4), ["joint_2: acceleration 3.0", "m/s^2 at 0.", "at most 3 m/s^2"]),
        (jumping(0.05), ["joint_2: its position jumps by 0.05", "m at 1.5 s", "at most 0.0005 m a step"]),
        (jumping(np.nan), ["joint_2: nan is not a number at 1.5 s"]),
        (np.degrees(wave()), ["joint_1: position 1.50", "at 0.6"]),
    ],
)  # fmt: skip
def test_a_trajectory_that_breaks_a_limit_is_named(q: FloatArray, words: list[str]) -> None:
    found = safety.check_positions(LIMITS, PERIOD_S, q, 0.0) or safety.check_path(LIMITS, PERIOD_S, q)
    for word in words:
        assert word in str(found)


def test_room_to_stop_is_kept_before_the_limit_is_reached() -> None:
    """At full speed 0.2 rad before the limit it can still be stopped, 0.19 before it cannot."""
    way = 2.0 * PERIOD_S * np.array([1.0, 0.0])
    for left, good in ((0.2, True), (0.19, False)):
        q = np.array([1.5 - left, 0.0])
        found = safety.check_commands(LIMITS, PERIOD_S, np.array([q - 2 * way, q - way, q]))
        assert (found is None) == good
        if found is not None:
            assert "a stop begun would end at 1.5" in str(found)


def test_a_period_that_does_not_close() -> None:
    q = wave()
    q[:, 0] += 0.1 * T / T[-1]
    assert "a period ends 0.1 rad from where it begins" in str(safety.check_closed(LIMITS, PERIOD_S, q))
    assert safety.check_closed(LIMITS, PERIOD_S, wave()[:2500]) is not None


def test_the_seam_of_two_periods_is_judged() -> None:
    """Ends and begins with 0.8 of what one cycle of the acceleration limit gives, in opposite directions."""
    q = wave()
    ramp = 0.8 * LIMITS.acceleration[0] * PERIOD_S**2
    q[0, 0] = q[-1, 0] = ramp
    assert safety.check_path(LIMITS, PERIOD_S, q) is None
    found = safety.check_closed(LIMITS, PERIOD_S, q)
    assert found.what == "acceleration"
    assert found.reached == pytest.approx(16.0, rel=1e-3)


def test_a_table_that_jumps() -> None:
    """Rows of 10 ms, in which the first joint may go 0.02 rad."""
    q = wave()[::10]
    assert safety.check_steps(LIMITS, 0.01, q) is None
    q[200:, 0] += 0.05
    found = safety.check_steps(LIMITS, 0.01, q)
    assert "joint_1: its position jumps by 0.05" in str(found)
    assert "at 2 s, at most 0.02 rad a step" in str(found)


def test_predicted_torque() -> None:
    tau = np.zeros((100, 2))
    assert safety.check_torque(LIMITS, PERIOD_S, tau) is None
    tau[30, 1] = -51.0
    assert (
        str(safety.check_torque(LIMITS, PERIOD_S, tau, 2.0))
        == "joint joint_2: torque 51 N at 2.03 s, at most 50 N is allowed"
    )
    tau[20, 0] = np.nan
    assert "nan is not a number at 2.02 s" in str(safety.check_torque(LIMITS, PERIOD_S, tau, 2.0))


GOOD: dict[str, Any] = {
    "q": np.array([0.5, 0.2]), "dq": np.array([2.3, -0.5]), "tau": np.array([-99.0, 49.0]),
    "temperature": np.array([79.0, np.nan]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"dq": None, "tau": None, "temperature": None}, ""),
        ({"q": np.array([0.5, 0.35])}, "joint joint_2 is 0.11 m from its command, at most 0.1 m is allowed"),
        ({"q": np.array([0.39, 0.2])}, "joint joint_1 is 0.15 rad from its command"),
        ({"q": np.array([np.nan, 0.2])}, "joint joint_1: nan is not a number"),
        ({"dq": np.array([0.0, -0.7])}, "joint joint_2: velocity 0.7 m/s, at most 0.6 m/s is allowed"),
        ({"tau": np.array([-101.0, 0.0])}, "joint joint_1: torque 101 N*m, at most 100 N*m is allowed"),
        ({"tau": np.array([0.0, np.inf])}, "joint joint_2: inf is not a number"),
        ({"temperature": np.array([20.0, 81.0])}, "joint joint_2: temperature 81 degC, at most 80 degC is allowed"),
    ],
)
def test_feedback(change: dict[str, Any], words: str) -> None:
    values = GOOD | change
    command = np.array([0.54, 0.24])
    found = safety.check_feedback(LIMITS, command, **values)
    assert ("" if found is None else str(found))[: len(words)] == words
    assert (found is None) == (words == "")
    if found is not None:  # a joint whose values are not to be believed is not judged
        others = np.array([name != found.joint for name in LIMITS.joints])
        assert safety.check_feedback(LIMITS, command, **values, valid=others) is None


def test_torque_may_be_beyond_its_limit_for_a_moment() -> None:
    watch = safety.FeedbackWatch(LIMITS, 0.005)

    def cycles(count: int, tau: float, passed_s: float = 0.001) -> list[str]:
        values = GOOD | {"tau": np.array([0.0, tau])}
        found = [watch.check(passed_s, GOOD["q"], **values) for _ in range(count)]
        return ["" if one is None else one.what for one in found]

    assert cycles(4, 51.0) == [""] * 4
    assert cycles(30, 49.0) == [""] * 30  # long enough to begin anew
    assert cycles(7, -51.0)[:5] == [""] * 5
    assert cycles(1, 51.0) == ["torque"]
    assert cycles(40, 49.0) == [""] * 40
    assert "torque" in cycles(4, 51.0) + cycles(4, 49.0) + cycles(4, -51.0)  # again and again just below
    assert cycles(1, np.nan) == ["value"]
    assert cycles(40, 49.0) == [""] * 40
    assert "torque" not in [what for _ in range(500) for what in cycles(1, 51.0) + cycles(9, 0.0)]  # late set positions
    assert cycles(1, 51.0, 0.006) == ["torque"]  # cycles that were lost count
    assert cycles(1, np.nan) == ["value"]
    at_once = safety.FeedbackWatch(LIMITS, 0.0)
    assert at_once.check(0.001, GOOD["q"], **GOOD | {"tau": np.array([0.0, 51.0])}) is not None
    assert at_once.check(0.001, GOOD["q"], **GOOD) is None


def test_limits_that_leave_nothing_are_refused() -> None:
    with pytest.raises(safety.SafetyError, match="joint_2: velocity limit 0"):
        limits(velocity=np.array([1.0, 0.0]))
    with pytest.raises(safety.SafetyError, match="joint_1: effort limit nan"):
        limits(effort=np.array([np.nan, 1.0]))
    with pytest.raises(safety.SafetyError, match="joint_1: lower limit 2"):
        limits(lower=np.array([2.0, -1.0]))
    with pytest.raises(safety.SafetyError, match="effort: 3 values for 2 joints"):
        limits(effort=np.ones(3))


def test_limits_that_are_missing_are_told() -> None:
    bare = limits(upper=np.array([np.inf, 1.0]), velocity=np.array([2.0, np.inf]), effort=np.full(2, np.inf))
    assert bare.missing == ("upper of joint_1", "velocity of joint_2")
    assert LIMITS.missing == ()


PERIODS_S = st.sampled_from([0.5e-3, 1e-3, 4e-3])
SHARES = st.floats(-1.0, 1.0)


def stop(q: FloatArray, v: FloatArray, period_s: float) -> list[FloatArray]:
    """All commands of a stop, the one it begins from first."""
    commands = [q]
    while v.any():
        q, v = safety.brake(LIMITS, period_s, q, v)
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
    np.testing.assert_allclose(path[-1] - q, safety.stopping_distance(LIMITS, period_s, v), atol=1e-9)
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
        if safety.check_commands(LIMITS, period_s, np.array([before, last, wanted])) is not None:
            refused += 1
            wanted, _ = safety.brake(LIMITS, period_s, last, (last - before) / period_s)
            assert safety.check_commands(LIMITS, period_s, np.array([before, last, wanted])) is None
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
    way = safety.Approach(LIMITS, start, goal, share, 0.2)
    path = way.at(np.arange(int(np.ceil(way.duration_s / period_s)) + 1) * period_s)
    np.testing.assert_array_equal(path[0], start)
    np.testing.assert_array_equal(path[-1], goal)
    np.testing.assert_allclose(way.at(0.4 * way.duration_s), way.at(np.array([0.4 * way.duration_s]))[0])
    assert safety.check_path(LIMITS, period_s, path) is None
    speed = np.abs(np.diff(path, axis=0)) / period_s
    change = np.abs(np.diff(path, 2, axis=0)) / period_s**2
    assert (speed <= share * LIMITS.velocity * (1.0 + 1e-9) + 1e-9).all()
    assert (change <= share * LIMITS.acceleration * (1.0 + 1e-9) + 1e-6).all()


def test_an_approach_is_no_slower_than_its_share_asks_for() -> None:
    way = safety.Approach(LIMITS, np.zeros(2), np.array([1.0, 0.0]), 0.1, 0.0)
    speed = np.diff(way.at(np.arange(0.0, way.duration_s, 0.001)), axis=0) / 0.001
    assert np.abs(speed).max() == pytest.approx(0.1 * LIMITS.velocity[0], rel=1e-3)
