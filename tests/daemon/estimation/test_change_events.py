"""A payload attached to an arm of a daemon: events on the wire, in status, history and log.

The history is shown by the command of docs/drift.md, as the page says.
"""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from benchmarks.coverage import correlated_noise
from benchmarks.detector_cases import CORRELATED, ENCODER, RATE_HZ, TORQUE_NOISE, Alteration, torque
from drivers.files.robots.file import load_robot
from service.client import Control, Subscriber
from sim_backend.arm.packed import torque_scale
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import plan_motion
from tests.daemon.estimation.test_drift_events import arguments, await_event, next_event
from tests.lab.command_line import write_recording
from tests.lab.console import check_page, surroundings
from tests.lab.daemon.daemons import await_message, config, drained, log_lines, replayed, start
from tests.lab.daemon.ethercat_rig import network

PAGE = Path(__file__).resolve().parents[3] / "docs" / "drift.md"
MASS = 2.0
EVENT_S = 45.0  # 30 s are learned from, none younger than 10 s
AFTER_S = 20.0


def recording(path: Path) -> Path:
    """A recording of an arm that carries a payload from some time on."""
    model = load_robot("space6").model
    t = np.arange(round((EVENT_S + AFTER_S) * RATE_HZ)) / RATE_HZ
    q, dq, ddq = (np.asarray(x) for x in plan_motion(model, MotionSettings(seed=11, candidates=2)).sample(t))
    rng = np.random.default_rng(11)
    std = TORQUE_NOISE * torque_scale(model, model.inertial)
    tau = torque(model, t, (q, dq, ddq), [Alteration("payload", MASS, at_s=EVENT_S)])
    tau += std * rng.standard_normal(tau.shape) + correlated_noise(rng, t.size, RATE_HZ, CORRELATED * std)
    return write_recording(path, model, t, {"q": np.round(q / ENCODER) * ENCODER, "tau": tau}, RATE_HZ)


def test_a_payload_is_told_and_estimated(tmp_path: Path) -> None:
    arm = replayed(
        recording(tmp_path / "payload.mcap"), name="lab", robot="space6", speed="max", hold=True, window_s=5.0
    )
    settings = config(tmp_path, {**arm, "estimator": {"update_hz": 50.0}}, control_port=9873)
    with (
        network() if os.geteuid() == 0 else nullcontext(),  # in which the port that `thetad events` asks is free
        start(settings, tmp_path) as daemon,
        Control(daemon.endpoints["control"]) as control,
        Subscriber(daemon.endpoints["estimates"], ["lab/event"]) as events,
        Subscriber(daemon.endpoints["estimates"], ["lab/status"]) as statuses,
    ):
        await_message(statuses)  # both subscriptions have arrived
        control.request("activate", **arguments("first"))
        assert next_event(events).body["event"] == "model_adopted"
        control.request("start")
        change, told = await_event(events, "change").body, await_event(events, "payload_attached").body
        assert change["event"] == "change"
        assert change["data"]["model"] == told["data"]["model"] == "first"
        assert EVENT_S - 1.0 < told["data"]["since"] < EVENT_S + 1.0
        assert abs(told["data"]["payload"]["mass"]["value"] - MASS) < 0.2 * MASS
        found = drained(control, "lab/estimator")
        report = found["lab/estimator"]["info"]["change"]
        assert report["state"] == "watching"
        assert report["last"]["event"] == "payload_attached"
        assert abs(report["payload"]["mass"]["value"] - MASS) < 0.05 * MASS
        assert found["lab/estimator"]["info"]["drift"]["state"] == "steady"  # a payload is no drift of the arm
        check_page(PAGE, tmp_path, surroundings())
        story = [event["kind"] for event in control.request("events", limit=1000)["events"]]
        assert story.index("model_adopted") < story.index("change") < story.index("payload_attached")
    lines = [line for line in map(json.loads, log_lines(tmp_path).splitlines()) if line["event"] == "event"]
    logged = [line["event_kind"] for line in lines]
    assert logged.index("model_adopted") < logged.index("change") < logged.index("payload_attached")
    line = lines[logged.index("payload_attached")]
    assert (line["arm"], line["model"], line["text"]) == ("lab", "first", told["text"])
