"""A saved state of the online estimate of an elastic joint: goes on where it was, or is refused as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rt_core.elastic.rows import Drive
from rt_core.online.elastic import DeflectionErrors, ElasticJointEstimator, ElasticOnlineSettings
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded
from tests.lab.arms.online_joint import take, twice


def make(**changes: Any) -> ElasticJointEstimator:
    given = {"drive": Drive(N, J_IN), "start": TRUTH, "rate_hz": RATE, "errors": DeflectionErrors()} | changes
    return ElasticJointEstimator(**given)


@pytest.fixture(scope="module")
def moved() -> Recorded:
    return twice(31)


def test_it_goes_on_as_after_a_gap(moved: Recorded) -> None:
    one, other = make(), make()
    half = moved.t.size // 2
    take(one, moved, slice(0, half))
    other.restore(one.state())
    before, after = one.report(), other.report()
    assert after.parameters == before.parameters
    for name in ("valid", "changing", "lam", "t_s", "frames", "updates", "rejected"):
        assert getattr(after, name) == getattr(before, name), name
    np.testing.assert_array_equal(other.information_root, one.information_root)
    one.restart_stream()
    for estimator in (one, other):
        take(estimator, moved, slice(half, moved.t.size))
    np.testing.assert_array_equal(other.theta, one.theta)
    np.testing.assert_array_equal(other.std, one.std)
    assert other.report().parameters == one.report().parameters
    assert other.report().updates > 1.9 * before.updates


def test_before_the_first_row_there_is_a_state_as_well(moved: Recorded) -> None:
    one, other = make(), make()
    take(one, moved, slice(0, 50))
    other.restore(one.state())
    assert other.report().frames == 50
    assert "no row yet" in (other.report().reason or "")
    take(other, moved, slice(0, moved.t.size))
    assert other.report()["k1"].value == pytest.approx(TRUTH["k1"], rel=0.03)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "state format 2"),
        ({"hash": "another"}, "another start, drive or settings"),
        ({"theta": None}, "lacks theta"),
        ({"theta": np.zeros(4)}, "another size"),
        ({"learned": np.zeros(3)}, "other scalars"),
        ({"power": np.full(6, np.nan)}, "not finite in power"),
        ({"counted": np.full(6, -1)}, "other scalars or counts"),
    ],
)
def test_what_cannot_serve_is_refused_and_changes_nothing(moved: Recorded, changes: dict[str, Any], words: str) -> None:
    one, other = make(), make()
    take(one, moved, slice(0, 4000))
    take(other, moved, slice(0, 2000))
    before = other.report(), other.theta
    with pytest.raises(ValueError, match=words):
        other.restore(one.state() | changes)
    assert other.report().parameters == before[0].parameters
    np.testing.assert_array_equal(other.theta, before[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"drive": Drive(N)},
        {"start": TRUTH | {"k1": 4e5}},
        {"start": {name: TRUTH[name] for name in ("k1", "k2", "b_in", "b_inD")}},
        {"rate_hz": 250.0},
        {"settings": ElasticOnlineSettings(constant=0.99)},
        {"lag_s": 1e-3},
        {"zero": 0.1},
        {"errors": None},
    ],
)
def test_a_state_is_of_one_start_only(moved: Recorded, changes: dict[str, Any]) -> None:
    one = make()
    take(one, moved, slice(0, 2000))
    with pytest.raises(ValueError, match="another start, drive or settings"):
        make(**changes).restore(one.state())


def test_a_damaged_information_is_refused(moved: Recorded) -> None:
    one = make()
    take(one, moved, slice(0, 4000))
    state = one.state()
    state["R"][2, 2] = 0.0
    with pytest.raises(ValueError, match="singular"):
        make().restore(state)
