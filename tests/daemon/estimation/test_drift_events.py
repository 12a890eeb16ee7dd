"""A model adopted by a daemon's estimator, a change of the arm, and the events of it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from service.client import BodyMessage, Control, ControlError, Message, Subscriber
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_message, await_status, config, drained, processes, start

EVENT_S = 60.0
MEMORY_S = 20.0


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[tuple[DaemonProcess, Path]]:
    """A simulated arm at maximum pace, held at first; friction of its second joint grows at `EVENT_S`."""
    change = {"time_s": EVENT_S, "joint": "joint_2", "parameter": "coulomb", "factor": 1.4, "duration_s": 5.0}
    driver = {
        "kind": "sim",
        "pace": "max",
        "motion": {"duration_s": 100.0, "candidates": 1},
        "settings": {"rate_hz": 250.0, "events": [change]},
    }
    arm = {"name": "arm", "robot": "space6", "driver": driver, "hold": True, "window_s": 5.0}
    estimator = {"update_hz": 50.0, "memory_s": MEMORY_S}
    with start(config(folder, {**arm, "estimator": estimator, "state": {"every_s": 0.2}}), folder) as daemon:
        yield daemon, folder


def truth() -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and true values of the base parameters."""
    model = load_robot("space6").model
    base = base_parameters(model)
    return tuple(base.names), base.theta(standard_parameters(model, base.standard))


def arguments(model: str) -> dict[str, Any]:
    _, theta = truth()
    std = 0.01 * np.maximum(np.abs(theta), 0.1)
    covariance = np.diag(std**2).tolist()
    robot = load_robot("space6").sha256
    return {"theta": theta.tolist(), "covariance": covariance, "model": model, "adopt": True, "robot": robot}


def next_event(stream: Subscriber) -> BodyMessage:
    message = await_message(stream)
    assert isinstance(message, BodyMessage)
    return message


def await_event(stream: Subscriber, kind: str) -> BodyMessage:
    found = await_message(stream, lambda message: isinstance(message, BodyMessage) and message.body["event"] == kind)
    assert isinstance(found, BodyMessage)
    return found


def info(control: Control) -> dict[str, Any]:
    found: dict[str, Any] = processes(control)["arm/estimator"]["info"]
    return found


def test_a_change_of_the_arm_is_told_once_and_cleared_by_another_model(running: tuple[DaemonProcess, Path]) -> None:
    """Adopted, drifted, restarted without being adopted again, and replaced."""
    daemon, _ = running
    names, theta = truth()
    with (
        Control(daemon.endpoints["control"]) as control,
        Subscriber(daemon.endpoints["estimates"], ["arm/event"]) as events,
        Subscriber(daemon.endpoints["estimates"], ["arm/status"]) as statuses,
    ):
        await_message(statuses)  # both subscriptions have arrived
        with pytest.raises(ControlError, match="unknown argument"):
            control.request("activate", **arguments("first"), moddel="a")
        answer = control.request("activate", **arguments("first"))
        assert (answer["active"], answer["model"], answer["adopted"]) == ("model", "first", True)
        assert control.request("activate", **arguments("first"))["adopted"] is False
        np.testing.assert_array_equal(control.request("snapshot")["theta"], theta)
        adopted = next_event(events)
        assert (adopted.body["event"], adopted.body["data"]) == ("model_adopted", {"model": "first"})

        def steady(message: Message) -> bool:
            body = message.body if isinstance(message, BodyMessage) else {}
            return body.get("model") == "first" and body["drift"]["state"] == "steady"

        await_message(statuses, steady)
        control.request("start")
        drift = await_event(events, "drift")  # after what was told of the change at once
        data = drift.body["data"]
        assert data["model"] == "first"
        assert data["joints"]["joint_2"] == "drifted"
        # an estimate that has begun anew is believed after 7 s
        assert EVENT_S < data["since"] < EVENT_S + 7.0 + MEMORY_S
        drained(control, "arm/estimator")
        before = info(control)["drift"]
        assert before["state"] == "drifted"
        assert before["since"] == data["since"]
        changed = {parameter["name"]: parameter for parameter in before["parameters"]}
        known = theta[names.index("fc2")]
        assert changed["fc2"]["old"] == known
        assert changed["fc2"]["new"] == pytest.approx(1.4 * known, rel=0.1)
        assert changed["fc2"]["joint"] == "joint_2"

        pid = processes(control)["arm/estimator"]["pid"]
        learned = control.request("snapshot")["theta"]
        os.kill(pid, signal.SIGKILL)
        await_status(
            control, lambda found: found["arm/estimator"]["pid"] != pid and found["arm/estimator"]["state"] == "ready"
        )
        assert control.request("activate", **arguments("first"))["adopted"] is False
        np.testing.assert_array_equal(control.request("snapshot")["theta"], learned)
        after = await_status(control, lambda found: "drift" in found["arm/estimator"]["info"])["arm/estimator"]["info"]
        assert after["model"] == "first"
        for key in ("state", "since", "joints"):  # values are those of the look that the restart begins with
            assert after["drift"][key] == before[key]

        assert control.request("activate", **arguments("second"))["adopted"] is True
        told = [await_event(events, "drift_cleared").body, next_event(events).body]
        assert [body["event"] for body in told] == ["drift_cleared", "model_adopted"]
        assert [body["data"]["model"] for body in told] == ["first", "second"]
        control.request("activate", theta=None)
        await_status(
            control,
            lambda found: (
                found["arm/estimator"]["info"]["drift"]["state"] == "off"
                and found["arm/estimator"]["info"]["model"] is None
            ),
        )
