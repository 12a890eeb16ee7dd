"""Hand guiding through a daemon: start, supervision by the estimator, and every way it ends."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli._common import CliError
from service.cli.motion.guide import _run as guide_command
from service.client import BodyMessage, Control, ControlError, FrameMessage, Subscriber
from service.models.document import load_model
from service.operations.hand_guiding_replay import GuidingRecordError
from service.reports.hand_guiding import draw_session
from service.supervisor.launch import DaemonProcess
from tests.lab.arms.guiding import PUSH, Guide, guided_arm, loaded, write_truth
from tests.lab.command_line import ROOT, thetad
from tests.lab.daemon.daemons import await_status, config, log_lines, start
from tests.lab.daemon.runs import DEADLINE_S, refused, stands

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guiding")
    write_truth(path)
    return path


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    recorder = {"enabled": False, "directory": str(folder / "rec")}
    with start(config(folder, guided_arm(folder, "good", PUSH, recorder=recorder)), folder) as running:
        yield running


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Guide]:
    with Guide(daemon.endpoints, "good") as one:
        yield one
        one.ask("disarm")
        one.until("disarmed")


def events(control: Control, arm: str = "good") -> list[str]:
    return [e["kind"] for e in control.request("events", arm=arm)["events"] if e["kind"].startswith("guiding")]


def test_it_hovers_a_hand_moves_it_and_it_rests(client: Guide) -> None:
    client.frames()
    said = client.guide(for_s=5.0)
    assert said["state"] == "guiding"
    assert len(said["guiding"]["residual"]) == 3
    assert client.ask("validity")["model"] == said["guiding"]["model"] != ""
    done = client.until("disarmed")
    assert (done["guiding"]["outcome"], done["reason"]) == ("completed", "the 5 s are over"), done
    frames = client.frames()
    q, dq = np.array([f.q for f in frames]), np.array([f.dq for f in frames])
    t = 1e-9 * (np.array([f.t_bus_ns for f in frames]) - done["guiding"]["began_ns"])
    before, late = (t > 0.0) & (t < 1.4), (t > 4.0) & (t < 4.9)
    assert np.degrees(np.ptp(q[before], axis=0)).max() < 1.0
    assert np.abs(q[late][0] - q[before][0]).max() > 0.05
    assert np.abs(dq[late]).max() < 5e-3  # the noise of the sensor
    assert events(client.control)[-4:] == ["guiding_started", "guiding_free", "guiding_hold", "guiding_completed"]
    await_status(
        client.control, lambda found: found["good/estimator"]["info"].get("drift", {}).get("state") == "steady"
    )


def test_guiding_is_told_before_its_first_frame(client: Guide, daemon: DaemonProcess) -> None:
    """So that none of its frames is learned from."""
    with Subscriber(daemon.endpoints["frames"], ["good/frame", "good/status"], timeout_s=20.0) as stream:
        stream.receive()
        client.guide()
        client.ask("abort")
        began_ns = client.until("disarmed")["guiding"]["began_ns"]
        told = False
        while not (isinstance(message := stream.receive(), FrameMessage) and message.frame.t_bus_ns >= began_ns):
            if isinstance(message, BodyMessage):
                told = (message.body["safety"]["guiding"] or {}).get("outcome") == "guiding"
    assert told


def test_nothing_is_learned_from_a_hand(client: Guide) -> None:
    client.guide()
    before = client.ask("snapshot")
    deadline = time.monotonic() + DEADLINE_S
    while (after := client.ask("snapshot"))["masked"] <= before["masked"] + 500:
        assert time.monotonic() < deadline, after["masked"]
        client.safety()
        time.sleep(0.1)
    with pytest.raises(ControlError, match="the arm has been guided by hand for"):
        client.ask("set_aside", seconds=0.5, path="jobs/windows/guided.window")
    assert after["used"] == before["used"]
    assert after["theta"] == before["theta"]


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"permit": None}, "permit: expected the text"),
    ({"for_s": -1.0}, "for_s is -1"),
    ({"for_s": "long"}, "for_s is 'long'"),
    ({"for_s": float("nan")}, "expected a finite number"),
    ({"friction_share": 1.5}, "friction_share must be a share from 0 to 1"),
    ({"friction_share": True}, "expected a finite number"),
    ({"damping_time_s": 0.0}, "damping_time_s must be positive"),
    ({"speed_share": 0.9}, "at most guiding.speed_share = 0.25"),
    ({"model": "here.yaml"}, "model: expected a map"),
    ({"model": {}}, "model: expected a map"),
    ({"model": {"theta": None, "constants": [1.0], "robot": "x", "name": "m"}}, "model: expected a map"),
    ({"model": {"theta": [1.0], "constants": [1.0], "robot": "x", "name": "m"}}, "of another robot"),
    ({"model": {"path": "/etc/passwd"}}, "model: expected a map"),
    ({"force": 3}, "unknown argument 'force'"),
]


def test_nonsense_is_refused_and_leaves_the_permit(client: Guide, folder: Path) -> None:
    client.arm()
    for args, words in NONSENSE:
        assert words in refused(client, "bad_argument", "zero_force", **{"permit": client.permit} | args), args
    robot = load_model(folder / "truth.yaml").robot.sha256
    for theta in ([1.0], "many", [float("nan")] * 30):
        model = {"theta": theta, "constants": [1.0], "robot": robot, "name": "m"}
        said = refused(client, "bad_argument", "zero_force", permit=client.permit, model=model)
        assert "theta of the model" in said
    assert "not the permit" in refused(client, "unavailable", "zero_force", permit="0123456789abcdef")
    assert "arm for longer" in refused(client, "unavailable", "zero_force", permit=client.permit, for_s=500.0)
    assert client.safety()["state"] == "armed"
    assert stands(client.next_frames(100))


def test_who_may_not_guide(client: Guide, folder: Path) -> None:
    assert "arm it first" in refused(client, "unavailable", "zero_force", permit="x")
    truth = load_model(folder / "truth.yaml")
    client.ask("activate", theta=None)
    try:
        client.arm()
        said = refused(client, "unavailable", "zero_force", permit=client.permit)
    finally:
        constants = truth.base.layout.shape[:, 0].tolist()
        client.ask("activate", model="truth", theta=truth.theta.tolist(), constants=constants)
    assert "no model of arm good is active" in said
    assert "thetad jobs reidentify" in said


def test_anybody_may_end_it(client: Guide, daemon: DaemonProcess) -> None:
    client.guide()
    with pytest.raises(ControlError, match="arm: the arm is in state 'guiding'"):
        client.arm()
    with Control(daemon.endpoints["control"]) as other:
        other.request("abort", arm="good")
    done = client.until("disarmed")
    assert (done["guiding"]["outcome"], done["reason"]) == ("stopped", "aborted by request")
    assert stands(client.next_frames(200)[50:])


def test_another_active_model_ends_it(client: Guide, folder: Path) -> None:
    truth = load_model(folder / "truth.yaml")
    values = {"theta": truth.theta.tolist(), "constants": truth.base.layout.shape[:, 0].tolist()}
    try:
        client.ask("activate", model="one", **values)
        client.guide()
        assert client.safety()["guiding"]["model"] == "one"
        client.ask("activate", model="two", **values)
        done = client.until("disarmed")
        assert done["reason"] == "the active model has changed: it was one, and is two"
        client.guide()
        other = [1.0001 * value for value in values["theta"]]
        client.ask("activate", model="two", **values | {"theta": other})
        done = client.until("disarmed")
        assert done["reason"] == "the active model has changed: two has other values than when guiding began"
        client.guide()
        client.ask("activate", theta=None)
        done = client.until("disarmed")
        assert done["reason"] == "the active model has changed: it was two, and is none"
    finally:
        client.ask("activate", model="truth", **values)


def test_an_estimator_that_does_not_answer_ends_it(client: Guide) -> None:
    client.guide()
    (pid,) = (p["pid"] for p in client.control.request("status")["processes"] if p["name"] == "good/estimator")
    os.kill(pid, signal.SIGSTOP)
    try:
        done = client.until("disarmed")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done["reason"] == "for 5 s the estimator has not said whether the model holds"


def test_a_model_of_another_load_never_gets_to_torque(client: Guide, folder: Path) -> None:
    heavy = loaded(load_model(folder / "truth.yaml").robot.model, 10.0)
    wrong = load_model(write_truth(folder, heavy, "heavy.yaml"))
    client.arm()
    said = client.ask(
        "zero_force", permit=client.permit, model={
            "theta": wrong.theta.tolist(), "constants": wrong.base.layout.shape[:, 0].tolist(),
            "robot": wrong.robot.sha256, "name": "heavy.yaml",
        },
    )  # fmt: skip
    assert "whether the model holds: it came with the request" in said["unchecked"]
    assert said["guiding"]["model"] == "heavy.yaml"
    done = client.until("disarmed")
    assert "model not valid" in done["reason"]
    assert stands(client.next_frames(100))


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [(signal.SIGKILL, -9, "the client has not been heard of for"), (signal.SIGINT, 130, "aborted by request")],
)
def test_a_client_that_is_gone_leaves_an_arm_that_holds(
    client: Guide, daemon: DaemonProcess, how: signal.Signals, code: int, words: str
) -> None:
    permit = client.arm()
    command = [sys.executable, "-m", "service.cli.main", "guide", "good", "--permit", permit]
    with subprocess.Popen(
        [*command, "--control", daemon.endpoints["control"]], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as other:
        assert other.stderr is not None
        for line in other.stderr:
            if "may be pushed" in line:
                break
        other.send_signal(how)
        assert other.wait(30.0) == code
    done = client.watch()
    assert done["guiding"]["outcome"] == "stopped"
    assert words in done["reason"]
    assert stands(client.next_frames(200)[50:])


def test_the_command_guides_records_and_draws(daemon: DaemonProcess, folder: Path) -> None:
    control = ("--control", daemon.endpoints["control"])
    permit = thetad("control", "arm", "arm=good", *control).json["permit"]
    guided = folder / "guided"
    done = thetad("guide", "good", "--permit", permit, "--for", 4, "--figures", guided, "--json", *control)
    assert done.code == 0, done
    said = done.json
    assert (said["outcome"], said["for_s"]) == ("completed", 4.0)
    assert "hands off" in done.err
    assert "may be pushed" in done.err
    assert [Path(name).name for name in said["figures"]] == ["guiding.png", "guiding_torque.png"]
    assert all(Path(name).read_bytes().startswith(b"\x89PNG") for name in said["figures"])
    assert Path(said["recording"]).parent == folder / "rec"
    again = thetad("guide", "good", "--permit", permit, *control)
    assert again.code == 3, again
    assert "arm it first" in again.err
    bad = thetad("guide", "good", "--permit", permit, "--for", -1, *control)
    bad.refused("for_s is -1")


class Interrupted(Control):
    """A client that is interrupted before the daemon has heard of its session."""

    def request(self, verb: str, *args: Any, **more: Any) -> dict[str, Any]:
        if verb == "zero_force":
            raise KeyboardInterrupt
        return super().request(verb, *args, **more)


def test_a_session_before_is_not_taken_for_one_that_was_interrupted(client: Guide, daemon: DaemonProcess) -> None:
    client.guide()
    client.ask("abort")
    client.until("disarmed")
    args = argparse.Namespace(
        arm="good", permit=client.permit, for_s=None, friction=None, damping=None, speed=None, record=False,
        figures=None, json=True,
    )  # fmt: skip
    with (
        Interrupted(daemon.endpoints["control"]) as control,
        pytest.raises(CliError, match="before anything"),
    ):
        guide_command(args, control, None)


def test_figures_need_a_recording_of_their_own(client: Guide, daemon: DaemonProcess, folder: Path) -> None:
    client.ask("record", action="start")
    client.arm()
    done = thetad(
        "guide", "good", "--permit", client.permit, "--for", "1", "--figures", folder / "none", "--control",
        daemon.endpoints["control"],
    )  # fmt: skip
    assert done.refused("is being recorded already")
    assert client.safety()["state"] == "armed"  # nothing has begun
    client.ask("record", action="stop")


def test_figures_of_another_model_are_not_drawn(folder: Path) -> None:
    session = {"number": 1, "model": "one", "digest": "values:a"}
    for other in ({"model": "two"}, {"digest": "values:b"}):
        with pytest.raises(GuidingRecordError, match="session 1 was guided by model one"):
            draw_session(folder / "x.mcap", folder, session | other, {}, session)


def test_the_record_of_a_session_is_what_the_controller_saw(daemon: DaemonProcess, folder: Path) -> None:
    """Residuals from the recording equal those that the daemon reported."""
    from drivers.files.recordings.recording import read_recording
    from rt_core.hand_guiding import GuidingState, ZeroForceSettings
    from service.models.hand_guiding_arrays import guiding_model
    from service.operations.hand_guiding_replay import record_of

    with Guide(daemon.endpoints, "good") as client:
        client.ask("record", action="start")
        client.arm()
        settings = client.ask("zero_force", permit=client.permit, for_s=1.5)["settings"]
        done = client.until("disarmed")["guiding"]
        path = Path(client.ask("record", action="stop")["path"])
        values = client.ask("guiding_model")["values"]
    robot = load_model(folder / "truth.yaml").robot.model
    record = record_of(read_recording(path), guiding_model(robot, values), ZeroForceSettings(**settings), done)
    states = list(dict.fromkeys(record.states))
    assert states == [GuidingState.RAMPING, GuidingState.GUIDING, GuidingState.HOLD_REQUESTED]
    at = record.states.index(GuidingState.HOLD_REQUESTED)
    np.testing.assert_allclose(record.outside[at], done["residual"], atol=1e-9)
    np.testing.assert_allclose(record.margin[at], done["margin"], atol=1e-9)
    assert json.dumps(done)  # plain values


def test_a_configuration_that_cannot_be_is_refused_by_its_path(folder: Path) -> None:
    for table, words in (
        ({"guiding": {"friction_shar": 0.5}}, "friction_share"),
        ({"guiding": {"wall_share": 0.7}}, "guiding.wall_share"),
        ({"driver": {"kind": "sim", "mode": "cst"}}, 'set mode = "csp"'),
        ({"driver": {"kind": "replay", "recording": "x.mcap"}}, "a recording has no drives"),
    ):
        with pytest.raises(ValueError, match=words):
            config(folder, guided_arm(folder, "good") | table)


def test_the_end_of_the_daemon_ends_guiding_first(daemon: DaemonProcess, folder: Path) -> None:
    with Guide(daemon.endpoints, "good") as client:
        client.ask("record", action="start")
        client.guide()
        daemon.stop()
    assert "the daemon stops" in [line for line in log_lines(folder).splitlines() if '"guiding_stopped"' in line][-1]
