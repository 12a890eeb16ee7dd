"""An encoder that sticks on an arm of a daemon: the event on the wire, and the estimate that is held."""

from pathlib import Path

import numpy as np

from drivers.files.recordings.format import RecordingMeta
from drivers.files.recordings.recording import Recording, write_recording
from drivers.files.robots.file import load_robot
from service.client import Control, Subscriber
from tests.daemon.estimation.test_drift_events import await_event
from tests.lab.daemon.daemons import config, drained, replayed, start
from tests.unit.service.estimator.test_encoder_tracking import AGAIN_S, RATE_HZ, SOON_S, STICK_S, at, sticking


def test_it_is_told_and_the_estimate_is_held(tmp_path: Path) -> None:
    t, q, tau = (x[: at(AGAIN_S)] for x in sticking())
    names = tuple(joint.name for joint in load_robot("space6").model.joints)
    meta = RecordingMeta("space6", names, ("rad",) * len(names), RATE_HZ)
    times_ns = np.rint(t * 1e9).astype(np.int64)
    recording = Recording(t, times_ns, np.arange(t.size), {"q": q, "tau": tau}, meta)
    write_recording(tmp_path / "stuck.mcap", recording)
    arm = replayed(tmp_path / "stuck.mcap", name="lab", robot="space6", speed="max")
    daemon = start(config(tmp_path, {**arm, "hold": True}), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["estimates"], ["lab/event"]) as stream,
        ):
            control.request("start")
            event = await_event(stream, "encoder_stuck")  # the estimate is doubted before
            assert event.body["data"]["joints"] == ["joint_2"]
            found = drained(control, "lab/estimator")
            assert found["lab/estimator"]["info"]["encoders"] == {"stuck": ["joint_2"]}
            snapshot = control.request("snapshot")
            assert set(snapshot["status"]) <= {"frozen", "unestimated"}
            assert snapshot["masked"] > RATE_HZ * (AGAIN_S - STICK_S - SOON_S)
            assert snapshot["frames"] == t.size
    finally:
        daemon.stop()
