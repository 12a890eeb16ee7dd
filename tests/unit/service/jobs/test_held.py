"""A payload or a faulty sensor: nothing is identified by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.config.jobs import ReidentifyConfig
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
            tx.put_event(replace(began, t_ns=began.t_ns - round(2.1 * 3600e9)))  # as if that were two hours ago
        storage.close()
        storage = JobStorage.open(tmp_path / "jobs")
        assert due(2.0) == "schedule"
        assert due(2.5) is None
        assert [event.data["every_h"] for event in storage.queue.events(arm="arm")] == [2.0, 2.5]
    finally:
        storage.close()
