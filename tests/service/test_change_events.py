"""A real daemon whose arm begins to carry something: it is told on the wire, in the status and in the history.

The history is shown by the command of docs/drift.md, as the page says.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

from service.client import Control, Subscriber
from tests.console import check_page, surroundings
from tests.service.daemons import await_message, await_status, config, start
from tests.service.ethercat_rig import network
from tests.service.test_drift_events import arguments, await_event, next_event

PAGE = Path(__file__).resolve().parents[2] / "docs" / "drift.md"
MASS = 2.0
EVENT_S = 60.0


def test_a_weight_at_the_flange_is_told_and_estimated(tmp_path: Path) -> None:
    """Its weight alone, as a force from outside: the motion is slow, so that accelerating it takes hardly anything."""
    force = {"time_s": EVENT_S, "force": (0.0, 0.0, -9.81 * MASS)}
    driver = {
        "kind": "sim",
        "pace": "max",
        "motion": {"duration_s": 90.0, "candidates": 1, "amplitude": 0.2},
        "settings": {"rate_hz": 250.0, "forces": [force]},
    }
    arm = {"name": "lab", "robot": "space6", "driver": driver, "hold": True, "window_s": 5.0}
    with (
        network() if os.geteuid() == 0 else nullcontext(),  # in which the port that `thetad events` asks is free
        start(config(tmp_path, {**arm, "estimator": {"update_hz": 50.0}}, control_port=9873), tmp_path) as daemon,
        Control(daemon.endpoints["control"]) as control,
        Subscriber(daemon.endpoints["estimates"], ["lab/event"]) as events,
        Subscriber(daemon.endpoints["estimates"], ["lab/status"]) as statuses,
    ):
        await_message(statuses)  # both subscriptions have arrived
        control.request("activate", **arguments("first"))
        assert next_event(events).body["event"] == "model_adopted"
        control.request("start")
        change, told = next_event(events).body, await_event(events, "payload_attached").body
        assert change["event"] == "change"
        assert change["data"]["model"] == told["data"]["model"] == "first"
        assert EVENT_S - 1.0 < told["data"]["since"] < EVENT_S + 1.0
        assert abs(told["data"]["payload"]["mass"]["value"] - MASS) < 0.2 * MASS
        found = await_status(control, lambda found: found["lab/estimator"]["info"].get("state") == "drained")
        report = found["lab/estimator"]["info"]["change"]
        assert report["state"] == "watching"
        assert report["last"]["event"] == "payload_attached"
        assert abs(report["payload"]["mass"]["value"] - MASS) < 0.1 * MASS
        assert found["lab/estimator"]["info"]["drift"]["state"] == "steady"  # a payload is no drift of the arm
        check_page(PAGE, tmp_path, surroundings())
        story = [event["kind"] for event in control.request("events", limit=1000)["events"]]
        assert story.index("model_adopted") < story.index("change") < story.index("payload_attached")
