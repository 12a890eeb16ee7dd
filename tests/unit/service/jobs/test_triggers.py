"""When an arm is identified again by itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.config.jobs import ReidentifyConfig
from service.jobs._triggers import Trigger


def trigger(**settings: Any) -> Trigger:
    return Trigger(ReidentifyConfig(**({"min_interval_s": 100.0} | settings)), last_s=0.0)


@pytest.mark.parametrize("what", ["drift", "invalid"])
def test_a_report_fires_at_once_the_first_time(what: str) -> None:
    one = trigger()
    assert one.due(5.0) is None
    one.report(what, 5.0)
    assert one.due(5.0) == what
    one.fire(5.0)
    assert one.due(104.0) is None
    assert one.due(105.0) == what  # the first attempt may have come to nothing: it holds until it is over
    one.clear(what)
    assert one.due(1e9) is None


def test_only_what_is_configured() -> None:
    one = trigger(when=("invalid",))
    one.report("drift", 1.0)
    assert one.due(1e6) is None
    one.report("invalid", 2.0)
    assert one.due(2.0) == "invalid"


def test_the_least_interval_delays_and_does_not_lose() -> None:
    one = trigger()
    one.report("drift", 0.0)
    one.fire(0.0)
    one.report("drift", 10.0)
    assert one.due(99.9) is None
    assert one.due(100.0) == "drift"


def test_what_is_over_does_not_fire() -> None:
    one = trigger(settle_s=10.0)
    one.report("drift", 0.0)
    one.clear("drift")
    assert one.due(1e6) is None


def test_the_end_of_one_is_not_the_end_of_the_other() -> None:
    one = trigger()
    one.report("drift", 0.0)
    one.report("invalid", 1.0)
    one.clear("drift")
    assert one.due(2.0) == "invalid"
    one.clear("drift")
    assert one.due(2.0) == "invalid"
    one.clear("invalid")
    assert one.due(2.0) is None


def test_settling_counts_from_the_first_report() -> None:
    one = trigger(settle_s=30.0)
    one.report("drift", 10.0)
    one.report("drift", 35.0)
    assert one.due(39.9) is None
    assert one.due(40.0) == "drift"
    one.clear("drift")
    one.report("drift", 50.0)
    assert one.due(79.9) is None
    assert one.due(80.0) == "drift"


def test_nothing_fires_by_itself_while_it_is_held() -> None:
    one = trigger(every_h=0.01)
    one.report("drift", 0.0)
    one.hold("change", until_s=50.0)
    assert one.due(49.9) is None
    assert one.due(50.0) == "drift"
    one.hold("payload")
    one.hold("sensor")
    assert one.due(1e6) is None
    one.release("payload")
    assert one.due(1e6) is None
    one.release("sensor")
    assert one.due(50.0) == "drift"
    one.hold("payload")
    one.hold("sensor")
    one.release()
    assert one.due(50.0) == "drift"


def test_schedule() -> None:
    one = trigger(every_h=1.0)
    assert one.due(3599.0) is None
    assert one.due(3600.0) == "schedule"
    one.fire(3600.0)
    assert one.due(7199.0) is None
    one.report("drift", 7199.0)
    assert one.due(7200.0) == "drift"  # says why, where there is more to say
    one.fire(7200.0)
    assert one.due(7201.0) is None


def test_the_least_interval_holds_for_the_schedule() -> None:
    one = trigger(every_h=0.01)
    one.fire(0.0)
    assert one.due(99.0) is None
    assert one.due(100.0) == "schedule"


def test_put_off() -> None:
    one = trigger()
    one.report("invalid", 0.0)
    one.put_off(0.0)
    assert one.due(9.9) is None
    assert one.due(10.0) == "invalid"


@given(
    st.lists(st.tuples(st.sampled_from(["drift", "invalid", "clear", "put off", "wait"]), st.floats(0.0, 90.0))),
    st.floats(0.0, 200.0),
)
def test_two_firings_are_never_closer_than_the_least_interval(events: list[tuple[str, float]], settle_s: float) -> None:
    one = trigger(settle_s=settle_s, every_h=0.05)
    now_s, fired = 0.0, []
    for what, pause_s in events:
        now_s += pause_s
        match what:
            case "drift" | "invalid":
                one.report(what, now_s)
            case "clear":
                one.clear("drift")
            case "put off":
                one.put_off(now_s)
        if one.due(now_s) is not None:
            one.fire(now_s)
            fired.append(now_s)
            assert one.due(now_s) is None
    assert all(later - earlier >= 100.0 for earlier, later in itertools.pairwise(fired))
