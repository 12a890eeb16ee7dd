"""What is made of starts: both directions, changes, age over clocks and restarts, saved states, and how often."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rt_core.online.breakaway import BreakawayTracker, Start
from rt_core.online.breakaway._track import REMEMBERED, STALE_S

FB = 20.0


def starts(count: int, *, apart: float = 0.0, fb: float = FB, in_turn: int = 1, begin_s: float = 0.0) -> list[Start]:
    """Starts of a joint, `in_turn` each way; its friction is larger by the share `apart` in the positive direction."""
    rng = np.random.default_rng(count)
    found = []
    for k in range(count):
        way = 1 if (k // in_turn) % 2 == 0 else -1
        torque = fb * (1.0 + apart * way) * (1.0 + 0.005 * rng.standard_normal())
        found.append(Start(begin_s + 10.0 * (k + 1), 0, way, torque, 0.02, 0.02))
    return found


def taken(found: Sequence[Start]) -> tuple[BreakawayTracker, list[float]]:
    tracker = BreakawayTracker(1)
    told = [tracker.take(start) for start in found]
    return tracker, [before for before in told if before is not None]


@pytest.mark.parametrize("in_turn", [1, 5])
def test_friction_of_two_directions_is_no_change_and_the_interval_holds_both(in_turn: int) -> None:
    tracker, changes = taken(starts(40, apart=0.05, in_turn=in_turn))
    assert changes == []
    said = tracker.report(0)
    assert said.starts == REMEMBERED
    assert said.changes == 0
    assert said.lower < 0.95 * FB < 1.05 * FB < said.upper
    assert said.upper - said.lower < 0.25 * FB
    alike = taken(starts(40, in_turn=in_turn))[0].report(0)
    assert alike.upper - alike.lower < 0.01 * FB


@pytest.mark.parametrize("apart", [0.0, 0.05])
def test_a_change_is_seen_once_and_tells_the_mean_of_the_old(apart: float) -> None:
    """Starts of both directions in turn: what is new in the other one is no second change."""
    found = starts(16, apart=apart) + starts(16, apart=apart, fb=1.5 * FB, begin_s=160.0)
    tracker, changes = taken(found)
    assert changes == [pytest.approx((1.0 + apart) * FB, rel=0.01)]  # nothing of the new is in it
    said = tracker.report(0)
    assert said.changes == 1
    assert said.starts == 16
    assert said.value == pytest.approx(1.5 * FB, rel=0.01)


def starts_of(torques: np.ndarray) -> list[Start]:
    return [Start(10.0 * (k + 1), 0, 1, float(torque), 0.02, 0.0) for k, torque in enumerate(torques)]


def test_few_starts_that_agree_by_chance_make_the_next_no_change() -> None:
    """Three starts may lie ten times as near to each other as starts do: the others are all beyond them then."""
    rng = np.random.default_rng(9)
    false = sum(len(taken(starts_of(FB * (1.0 + 0.05 * rng.standard_normal(12))))[1]) for _ in range(600))
    assert false <= 1


def test_age_is_counted_over_clocks_that_begin_anew() -> None:
    tracker = taken(starts(6))[0]  # the last at 60 s
    again = BreakawayTracker(1)
    again.restore(tracker.state(100.0))
    for who in (tracker, again):
        if who is tracker:
            who.restart(100.0)
        said = who.report(0, STALE_S - 41.0)
        assert said.status == "estimated"
        assert said.last_t is None
        said = who.report(0, STALE_S - 39.0)
        assert said.status == "stale"
        assert said.value == pytest.approx(FB, rel=0.01)
        assert said.reason == f"the last start was at least {STALE_S + 1.0:.0f} s ago"
        for _ in range(3):  # a clock that never runs for an hour makes nothing young
            who.restart(0.4 * STALE_S)
        assert who.report(0, 0.0).status == "stale"
        who.take(starts(1)[0])
        said = who.report(0, 20.0)
        assert (said.status, said.reason, said.last_t) == ("estimated", "", 10.0)


def damaged(state: dict[str, Any], at: tuple[int, ...], value: float) -> dict[str, Any]:
    copy = {key: np.array(kept) for key, kept in state.items()}
    copy["starts"][at] = value
    return copy


def test_a_saved_start_that_cannot_be_is_refused() -> None:
    state = taken(starts(6))[0].state(100.0)
    tracker = BreakawayTracker(1)
    tracker.restore(state)
    before = tracker.report(0)
    cannot_be = ((0, 5.0), (1, 0.0), (1, -3.0), (1, np.inf), (2, -1.0), (3, np.inf), (4, 0.0))
    for field, value in (*cannot_be, *((field, np.nan) for field in range(5))):
        with pytest.raises(ValueError, match="hold what cannot be"):
            tracker.restore(damaged(state, (0, REMEMBERED - 2, field), value))
    assert tracker.report(0) == before
    with pytest.raises(ValueError, match="not those that were counted"):
        BreakawayTracker(1).restore({**state, "counts": np.zeros_like(state["counts"])})
    with pytest.raises(ValueError, match="not those that were counted"):
        BreakawayTracker(1).restore(damaged(state, (0, REMEMBERED - 1), np.nan))
