"""Breakaway friction by starts from rest: against joints whose truth is known, and what is no start of that kind."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rt_core.online.breakaway import LEFT_OUT, BreakawayTracker, Start, StartDetector
from rt_core.types import FloatArray
from tests.lab.arms.sticking_joint import FB, LOAD, RATE, Strokes, strokes


def starts(recorded: Sequence[Strokes], *, load_std: float = 0.02) -> list[Start]:
    """Starts of one joint, or of several that are recorded side by side."""
    n = len(recorded)

    def load(q: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full(n, LOAD), np.full(n, load_std)

    watch = StartDetector(n, RATE, load)
    x, tau = (np.column_stack([getattr(r, name) for r in recorded]) for name in ("x", "tau"))
    return watch.push(recorded[0].t, x, x, tau)


def tracked(found: Sequence[Start], joint: int = 0, n: int = 1) -> BreakawayTracker:
    tracker = BreakawayTracker(n)
    for start in found:
        tracker.take(start)
    return tracker


@cache
def slow(seed: int = 0, noise: float = 0.05) -> Strokes:
    return strokes(14.0, seed=seed, noise=noise)


def test_each_start_is_found_at_its_time_and_torque() -> None:
    recorded = slow()
    found = starts([recorded])
    good = [s for s in found if not s.left_out]
    assert len(good) >= 4
    for start in good:
        nearest = min(recorded.broke, key=lambda t: abs(t - start.t_s))
        assert abs(nearest - start.t_s) < 0.02
        assert abs(start.torque - FB) < 4.0 * np.hypot(start.std, start.common_std) + 0.005 * FB
    assert {s.direction for s in good} == {-1, 1}


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_the_interval_holds_the_truth_and_is_of_use(noise: float) -> None:
    for seed in (1, 2):
        said = tracked(starts([slow(seed, noise)])).report(0)
        assert said.status == "estimated", said
        assert said.value is not None
        assert said.upper - said.lower < 0.2 * FB
        assert said.lower < FB < said.upper


def test_a_torque_that_jumps_tells_nothing() -> None:
    """Friction fed forward: where between the two the joint would have let go is not in the data."""
    found = starts([strokes(14.0, jump=16.0)])
    assert "jump" in {s.left_out for s in found}
    assert {s.left_out for s in found} <= {"jump", "not clear"}
    said = tracked(found).report(0)
    assert said.status == "unestimated"
    assert said.value is None
    assert "left out" in said.reason


def test_joints_that_begin_together_tell_nothing() -> None:
    r = slow()
    found = starts([r, r])
    assert found
    assert {s.left_out for s in found} == {"together"}
    # where the other follows later the first tells, and the other begins in an arm that moves
    rest = round(0.3 * RATE)
    x, tau = (np.concatenate((np.full(rest, z[0]), z[:-rest])) for z in (r.x, r.tau))
    found = starts([r, replace(r, x=x, tau=tau)])
    assert any(s.joint == 0 and not s.left_out for s in found)
    assert not [s for s in found if s.joint == 1 and not s.left_out]


@pytest.mark.parametrize(("load_std", "why"), [(20.0, "load unknown"), (np.inf, "not trusted")])
def test_a_load_that_is_not_known_tells_nothing(load_std: float, why: str) -> None:
    found = starts([slow()], load_std=load_std)
    assert len(found) > 5
    assert {s.left_out for s in found if np.isfinite(s.torque)} == {why}
    said = tracked(found).report(0)
    assert said.value is None
    assert LEFT_OUT[why] in said.reason  # type: ignore[index]


def test_frames_that_are_lost_or_tell_nothing_begin_anew() -> None:
    r = slow()
    spoilt = r.tau.copy()
    for t in r.broke:
        spoilt[round((t - 0.2) * RATE)] = np.nan
    assert not starts([replace(r, tau=spoilt)])
    watch = StartDetector(1, RATE, lambda q: (np.full(1, LOAD), np.zeros(1)))
    holes = np.ones(r.t.size, dtype=bool)
    for t in r.broke:
        k = round((t - 0.2) * RATE)
        holes[k : k + 10] = False
    x, tau = r.x[:, None], r.tau[:, None]
    assert not watch.push(r.t[holes], x[holes], x[holes], tau[holes])


def test_too_few_starts_have_no_value_and_old_ones_are_stale() -> None:
    good = [s for s in starts([slow()]) if not s.left_out]
    said = tracked(good[:2]).report(0)
    assert said.value is None
    assert "2 of the 3 starts" in said.reason
    assert BreakawayTracker(1).report(0).reason == "no start from rest has shown it yet"
    tracker = tracked(good)
    assert tracker.report(0, good[-1].t_s + 10.0).status == "estimated"
    old = tracker.report(0, good[-1].t_s + 4000.0)
    assert old.status == "stale"
    assert old.value is not None
    assert "4000 s ago" in old.reason


def test_the_state_goes_on_and_one_that_is_damaged_is_refused() -> None:
    good = [s for s in starts([slow()]) if not s.left_out]
    tracker, again = tracked(good[:3]), BreakawayTracker(1)
    again.restore(tracker.state(good[2].t_s + 1.0))
    assert replace(again.report(0), last_t=None) == replace(tracker.report(0), last_t=None)
    for start in good[3:]:
        again.take(start)
        tracker.take(start)
    assert again.report(0) == tracker.report(0)
    state = tracker.state(good[-1].t_s + 1.0)
    for bad in ({}, state | {"starts": state["starts"][:, :3]}):
        with pytest.raises((ValueError, TypeError)):
            BreakawayTracker(1).restore(bad)
    with pytest.raises(ValueError, match="another size: starts"):
        BreakawayTracker(2).restore(state)
    tracker.reset()
    assert tracker.report(0).starts == 0
