"""An elastic joint estimated in a real daemon: told over the wire, followed through a drop of stiffness, resumed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.elastic_tracking import DROP, dropping
from drivers.files.recordings.recording import read_recording, write_recording
from drivers.files.robots.file import load_robot
from service.client import BodyMessage, Control, Subscriber
from service.config.load import ConfigError, parse_config
from service.estimator.elastic_tracking import elastic_tracking
from tests.lab.arms.elastic_rig import ROBOT, recording_of
from tests.lab.arms.harmonic_drive import TRUTH, measured, one_after_the_other, record
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import await_message, await_status, config, log_lines, replayed, start

FORGETTING = 0.996  # 2.5 s of motion weigh: much less than all loads take, but the change is over before the end


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the joint's file, identified from one recording, and another in which its stiffness drops."""
    folder = tmp_path_factory.mktemp("rig")
    (folder / "rig.toml").write_text(ROBOT)
    clean = record(None)
    write_recording(folder / "known.mcap", recording_of(measured(one_after_the_other(clean, clean), 1)))
    write_recording(folder / "drops.mcap", recording_of(dropping(2, 1.0)[0]))
    done = thetad(
        "identify", folder / "known.mcap", "--model", "elastic_joint", "--joint", "elbow", "--robot",
        folder / "rig.toml", "--sensor", "-o", folder / "elastic.json",
    )  # fmt: skip
    assert done.code == 0, done
    return folder


def arm(rig: Path, recording: str = "drops.mcap", **spring: Any) -> dict[str, Any]:
    elastic = {"joint": "elbow", "model": str(rig / "elastic.json")} | spring
    return replayed(
        rig / recording, name="rig", robot=str(rig / "rig.toml"), speed="max", elastic=[elastic], state={"every_s": 0.1}
    )


def elbow(message: BodyMessage) -> dict[str, Any]:
    assert message.kind == "elastic"
    assert list(message.body["joints"]) == ["elbow"]
    said: dict[str, Any] = message.body["joints"]["elbow"]
    return said


def held(said: dict[str, Any], softer: float) -> None:
    """Assert that the intervals of spring and friction hold the truth, with `softer` times the stiffness."""
    for name, p in said["parameters"].items():
        true = TRUTH[name] * (softer if name in ("k1", "k2") else 1.0)
        assert p["lower"] < true < p["upper"], (name, p)
        assert p["upper"] - p["lower"] < 0.5 * true, (name, p)


def test_an_estimate_goes_back_to_what_it_was_and_goes_on(rig: Path, tmp_path: Path) -> None:
    """As where an encoder stuck: the joint's position stays the same for two seconds, and its motor turns."""
    settings = config(tmp_path, arm(rig, "known.mcap", forgetting=FORGETTING)).arm[0]
    recording = read_recording(rig / "known.mcap")
    model = load_robot(str(rig / "rig.toml")).model
    tracking = elastic_tracking(settings, model, tuple(recording.channels), recording.meta.rate_hz, "")
    (tracker,) = tracking.trackers
    frames = list(recording.frames())
    stick = round(0.6 * len(frames))
    again = stick + round(2.0 * recording.meta.rate_hz)
    for frame in frames[:stick]:
        tracking.push(frame, masked=False)
    kept, before = tracking.state(), tracker.estimator.theta
    for frame in frames[stick:again]:
        tracking.push(replace(frame, q=frames[stick].q), masked=False)
    assert not np.allclose(tracker.estimator.theta, before, rtol=0.05)
    tracking.rollback(kept)
    np.testing.assert_array_equal(tracker.estimator.theta, before)
    assert tracking.documents()["elbow"]["row_t"] is None
    for frame in frames[again:]:
        tracking.push(frame, masked=False)
    assert tracking.documents()["elbow"]["row_t"] > 1e-9 * frames[again].t_bus_ns
    assert not np.array_equal(tracker.estimator.theta, before)


def test_a_drop_of_stiffness_is_followed_through_a_restart(rig: Path, tmp_path: Path) -> None:
    drop_s = dropping(2, 0.0)[1]
    daemon = start(config(tmp_path, {**arm(rig, forgetting=FORGETTING), "hold": True}), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["estimates"], ["rig/elastic"]) as stream,
            Subscriber(daemon.endpoints["estimates"], ["rig/status"]) as statuses,
        ):
            await_message(statuses)  # both subscriptions have arrived
            control.request("start")
            heard: list[BodyMessage] = []

            def until(t: float) -> dict[str, Any]:
                def late(message: object) -> bool:
                    assert isinstance(message, BodyMessage)
                    heard.append(message)
                    return message.envelope.t_ns * 1e-9 >= t

                await_message(stream, late)
                return elbow(heard[-1])

            first = until(0.2)
            assert first["row_t"] is None
            for p in first["parameters"].values():
                assert (p["value"], p["std"], p["status"]) == (None, None, "undetermined")
                assert p["reason"] == "no row has shown it yet"
            assert not first["valid"]
            before = until(drop_s - 0.3)
            assert before["valid"]
            assert not before["changing"]
            held(before, 1.0)
            assert 0.0 < drop_s - before["row_t"] < 1.5
            assert until(drop_s + 3.0)["changing"]

            def drained(besides: int = 0) -> dict[str, Any]:
                found = await_status(
                    control,
                    lambda found: (
                        found["rig/estimator"]["pid"] != besides
                        and found["rig/estimator"]["state"] == "ready"
                        and found["rig/estimator"]["info"].get("state") == "drained"
                    ),
                )
                return found["rig/estimator"]

            ended = drained()
            last = control.request("snapshot")["elastic"]["elbow"]
            assert not last["changing"]
            held(last, DROP)
            assert last["innovation"].keys() == {"motor", "sensor"}
            os.kill(ended["pid"], signal.SIGKILL)
            assert drained(ended["pid"])["info"]["resumed"] is True
            resumed = control.request("snapshot")["elastic"]["elbow"]
            for name in ("parameters", "updates", "frames", "valid", "changing"):
                assert resumed[name] == last[name], name
            steps = [b.envelope.t_ns - a.envelope.t_ns for a, b in pairwise(heard)]
            assert 0.09e9 < sorted(steps)[len(steps) // 2] < 0.11e9  # 10 a second

            control.request("reset_estimator")
            forgotten = control.request("snapshot")["elastic"]["elbow"]
            assert forgotten["parameters"]["k1"]["value"] is None
            assert forgotten["updates"] == 0
        assert "elastic_state_ignored" not in log_lines(tmp_path)
    finally:
        daemon.stop()


def test_watch_shows_a_line_for_the_joint_and_the_page_its_course(rig: Path, tmp_path: Path) -> None:
    settings = arm(rig, "known.mcap")
    settings["driver"] |= {"speed": 10.0, "loop": True}
    daemon = start(config(tmp_path, settings), tmp_path)
    try:
        endpoint, page = ("--endpoint", daemon.endpoints["estimates"]), tmp_path / "trend.html"
        with Subscriber(daemon.endpoints["estimates"], ["rig/elastic"]) as stream:
            await_message(stream, lambda m: isinstance(m, BodyMessage) and elbow(m)["valid"])
        watched = thetad("watch", *endpoint, "--json", "--seconds", 0.5, "--report", page)
        assert watched.code == 0, watched
        assert watched.json["elastic"]["elbow"]["parameters"]["k1"]["value"] == pytest.approx(TRUTH["k1"], rel=0.05)
        assert "elbow: k1 [N*m/rad]" in page.read_text()
        shown = thetad("watch", *endpoint, "--once", "--seconds", 0.5)
        assert "elbow: k1 3.9" in shown.out, shown
        age = watched.json["elastic"]["elbow"]["row_age_s"]
        assert 0.2 < age < 5.0  # at least the filters' delay
        assert "; newest row" in shown.out
    finally:
        daemon.stop()


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Change the joint's file."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / "elastic.json").read_text())
        change(document)
        (folder / "elastic.json").write_text(json.dumps(document))

    return apply


@pytest.mark.parametrize(
    ("change", "spring", "words"),
    [
        (None, {"joint": "wrist"}, ("elastic[0].joint", "'rig' has no joint 'wrist'", "slide, elbow")),
        (None, {"joint": "slide"}, ("elastic[0].model", "is of joint elbow, not of slide")),
        (None, {"model": "none.json"}, ("elastic[0].model", "none.json: cannot be read")),
        (None, {"model": "rig.toml"}, ("elastic[0].model", "rig.toml: is no JSON")),
        (None, {"forgetting": 0.1}, ("arm[0].elastic[0].forgetting", "0.5")),
        (None, {"jiont": "elbow"}, ("arm[0].elastic[0].jiont", "did you mean 'joint'")),
        (rewritten(lambda d: d.update(format="thetad-model/1")), {}, ("thetad-elastic-joint/1",)),
        (rewritten(lambda d: d.pop("online_start")), {}, ("has no online_start", "an earlier version")),
        (rewritten(lambda d: d.update(online_start={"reason": "stage: why"})), {}, ("elbow: stage: why",)),
        (rewritten(lambda d: d["online_start"].update(lag_s=0.5)), {}, ("elastic.json: lag 0.5 s",)),
        (rewritten(lambda d: d["online_start"]["values"].update(k1=0.0)), {}, ("start of k1: 0",)),
        (rewritten(lambda d: d["online_start"].pop("zero")), {}, ("online_start.zero: is missing",)),
        (rewritten(lambda d: d["drive"].update(gear_ratio=0.0)), {}, ("drive: gear ratio 0",)),
        (rewritten(lambda d: d["drive"].update(torque_constant=None)), {}, ("has no torque constant",)),
        (rewritten(lambda d: d["drive"].update(gear_ratio=160.0)), {}, ("gear ratio 160, but 290 in [transmission]",)),
        (
            rewritten(lambda d: d["drive"].update(torque_constant=0.5)),
            {},
            ("elastic[0].model", "torque constant 0.5 N*m/A, but 0.4 N*m/A", "robot 'rig' for joint elbow"),
        ),
        (rewritten(lambda d: d["online_start"].update(motor_offset=1.5)), {}, ("motor offset 1.5 rad, but 0 rad",)),
    ],
)
def test_what_cannot_be_estimated_is_one_error(
    rig: Path, tmp_path: Path, change: Callable[[Path], object] | None, spring: dict[str, Any], words: tuple[str, ...]
) -> None:
    for name in ("elastic.json", "rig.toml"):
        (tmp_path / name).write_bytes((rig / name).read_bytes())
    if change is not None:
        change(tmp_path)
    table = {"arm": [{**arm(rig), "elastic": [{"joint": "elbow", "model": "elastic.json"} | spring]}]}
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps(table))
    line = thetad("serve", "-c", path, "--check").refused(*words)
    assert str(path) in line


def test_frames_without_the_motors_angle_show_no_spring(rig: Path, tmp_path: Path) -> None:
    clean = recording_of(record(None, loads=(100.0,), speeds=(0.04,)))
    channels = {name: channel for name, channel in clean.channels.items() if name != "q_motor"}
    write_recording(tmp_path / "one.mcap", replace(clean, channels=channels).span(None))
    settings = arm(rig)
    settings["driver"] |= {"recording": str(tmp_path / "one.mcap")}
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps({"arm": [settings]}))
    thetad("serve", "-c", path, "--check").refused("elastic[0].joint", "frames have no q_motor", "q, current, tau")


def test_a_joint_has_one_table(rig: Path, tmp_path: Path) -> None:
    settings = arm(rig)
    settings["elastic"] *= 2
    with pytest.raises(ConfigError, match=r"two tables are of joint elbow"):
        parse_config({"arm": [settings]}, "test", tmp_path)
