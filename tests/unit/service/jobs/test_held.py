"""When an arm is identified again by itself, and that a payload or a faulty sensor is no reason."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.config.arm_tables import ReidentifyConfig
from service.jobs._auto_identification import AutoIdentification
from service.jobs._job_storage import JobStorage
from service.jobs._triggers import Trigger
from service.jobs.queue.store import Event
from tests.lab.jobs.jobs_process import configuration

PAYLOAD = {"mass": {"value": 1.0}}
FRICTION = {"cause": "friction", "explained": 0.9}


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ([("change", {})], {"change"}),
        ([("change", {}), ("friction_changed", {})], set()),
        ([("change", {}), ("payload_attached", {"payload": PAYLOAD})], {"payload"}),
        ([("payload_attached", {"payload": PAYLOAD}), ("payload_released", {"payload": None})], set()),
        ([("payload_attached", {"payload": PAYLOAD}), ("payload_released", {"payload": PAYLOAD})], {"payload"}),
        ([("change", {}), ("sensor_fault", {})], {"sensor"}),
        ([("sensor_fault", {}), ("change", {}), ("sensor_recovered", {})], set()),
        ([("sensor_fault", {}), ("payload_attached", {"payload": PAYLOAD})], {"sensor", "payload"}),
        ([("ambiguous", {"candidates": [FRICTION, {"cause": "sensor_gain", "explained": 0.9}]})], {"sensor"}),
        ([("ambiguous", {"candidates": [FRICTION, {"cause": "sensor_gain", "explained": 0.2}]})], set()),
        ([("sensor_fault", {}), ("model_adopted", {})], set()),
        ([("payload_attached", {"payload": PAYLOAD}), ("drift_cleared", {})], set()),
    ],
)
def test_what_holds_the_trigger(told: list[tuple[str, dict[str, Any]]], held: set[str]) -> None:
    auto = AutoIdentification(None, None)  # type: ignore[arg-type]
    auto.triggers["lab"] = Trigger(ReidentifyConfig(), 0.0)
    for kind, data in told:
        auto.on_event(Event(0, kind, "", "lab", data=data))
    assert set(auto.triggers["lab"].held) == held


@pytest.mark.parametrize(
    ("told", "still", "held", "pending"),
    [
        ([("drift", {}), ("invalid", {})], [], set(), set()),
        ([("drift", {}), ("invalid", {})], ["drift"], set(), {"drift"}),
        ([("payload_attached", {"payload": PAYLOAD})], [], set(), set()),
        ([("payload_attached", {"payload": PAYLOAD})], ["payload"], {"payload"}, set()),
        ([("sensor_fault", {})], [], set(), set()),
        ([("payload_attached", {"payload": PAYLOAD}), ("payload_released", {})], ["payload"], {"payload"}, set()),
        ([("sensor_fault", {}), ("sensor_recovered", {})], ["sensor"], {"sensor"}, set()),
        ([("invalid", {}), ("valid_again", {})], ["invalid"], set(), {"invalid"}),
    ],
)
def test_a_stuck_encoder_revokes_later_reports(
    told: list[tuple[str, dict[str, Any]]], still: list[str], held: set[str], pending: set[str]
) -> None:
    auto = AutoIdentification(None, None)  # type: ignore[arg-type]
    auto.triggers["lab"] = trigger = Trigger(ReidentifyConfig(), 0.0)
    for kind, data in told:
        auto.on_event(Event(10_000_000_000, kind, "", "lab", data=data))
    auto.on_event(Event(11_000_000_000, "encoder_stuck", "", "lab", data={"back_s": 3.0, "still": still}))
    assert set(trigger.held) == held
    assert set(trigger.pending) == pending


def test_a_stuck_encoder_keeps_earlier_reports_of_a_sensor() -> None:
    """Nobody has said that it is over: an ambiguous change is none that the watch remembers."""
    auto = AutoIdentification(None, None)  # type: ignore[arg-type]
    auto.triggers["lab"] = trigger = Trigger(ReidentifyConfig(), 0.0)
    candidates = [{"cause": "sensor_gain", "explained": 0.9}]
    auto.on_event(Event(10_000_000_000, "ambiguous", "", "lab", data={"candidates": candidates}))
    auto.on_event(Event(59_000_000_000, "ambiguous", "", "lab", data={"candidates": candidates}))  # of wrong frames
    auto.on_event(Event(60_000_000_000, "encoder_stuck", "", "lab", data={"back_s": 3.0, "still": []}))
    assert set(trigger.held) == {"sensor"}


def test_a_schedule_goes_on_over_a_restart(tmp_path: Path) -> None:
    """Also where nothing has been identified by it yet; a schedule that was changed begins anew."""

    def due(every_h: float) -> str | None:
        auto = AutoIdentification(None, configuration(tmp_path, arm={"reidentify": {"every_h": every_h}}))  # type: ignore[arg-type]
        auto.open(storage)
        auto.triggers["arm"].hold("payload")  # so that nobody is asked for frames
        auto.step(storage)
        auto.triggers["arm"].release()
        return auto.triggers["arm"].due(time.monotonic())

    storage = JobStorage.open(tmp_path / "jobs")
    try:
        assert due(2.0) is None
        assert due(2.0) is None
        (began,) = storage.queue.events(arm="arm")
        with storage.queue.store.write() as tx:
            tx.put(replace(began, t_ns=began.t_ns - round(2.1 * 3600e9)))  # as if that were two hours ago
        storage.close()
        storage = JobStorage.open(tmp_path / "jobs")
        assert due(2.0) == "schedule"
        assert due(2.5) is None
        assert [event.data["every_h"] for event in storage.queue.events(arm="arm")] == [2.0, 2.5]
    finally:
        storage.close()


def trigger(**settings: Any) -> Trigger:
    return Trigger(ReidentifyConfig(**({"min_interval_s": 100.0} | settings)), last_s=0.0)


#: Settings, and steps: a call with its arguments, or a time and what is due then.
SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "at once the first time, and until cleared": (
        {}, "5 -; report invalid 5; 5 invalid; fire 5; 104 -; 105 invalid; clear invalid; 1e9 -",
    ),
    "only what is configured": ({"when": ("invalid",)}, "report drift 1; 1e6 -; report invalid 2; 2 invalid"),
    "the interval delays and loses nothing": ({}, "report drift 0; fire 0; report drift 10; 99.9 -; 100 drift"),
    "what is over does not fire": ({"settle_s": 10.0}, "report drift 0; clear drift; 1e6 -"),
    "reports end separately": (
        {}, "report drift 0; report invalid 1; clear drift; 2 invalid; clear drift; 2 invalid; clear invalid; 2 -",
    ),
    "settling counts from the first report": (
        {"settle_s": 30.0},
        "report drift 10; report drift 35; 39.9 -; 40 drift; clear drift; report drift 50; 79.9 -; 80 drift",
    ),
    "holds": (
        {"every_h": 0.01},
        "report drift 0; hold change 50; 49.9 -; 50 drift; hold payload; hold sensor; 1e6 -; release payload; 1e6 -; "
        "release sensor; 50 drift; hold payload; hold sensor; release; 50 drift",
    ),
    "schedule": ({"every_h": 1.0},
                 "3599 -; 3600 schedule; fire 3600; 7199 -; report drift 7199; 7200 drift; fire 7200; 7201 -"),
    "the interval holds for the schedule": ({"every_h": 0.01}, "fire 0; 99 -; 100 schedule"),
    "postponed": ({}, "report invalid 0; put_off 0; 9.9 -; 10 invalid"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    settings, steps = SCENARIOS[name]
    one = trigger(**settings)
    for step in steps.split("; "):
        word, *rest = step.split()
        if hasattr(one, word):
            getattr(one, word)(*(float(each) if each[0].isdigit() else each for each in rest))
        else:
            assert (one.due(float(word)) or "-") == rest[0], step
