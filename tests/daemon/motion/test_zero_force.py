"""Hand guiding through a daemon: start, supervision by the estimator, and every way it ends."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from rt_core.hand_guiding import GuidingState, ZeroForceSettings
from service.client import BodyMessage, ControlError, FrameMessage, Subscriber
from service.models.document import ModelFile, load_model
from service.models.hand_guiding_arrays import guiding_model
from service.operations.hand_guiding_replay import record_of
from service.supervisor.launch import DaemonProcess
from tests.lab.arms.guiding import PUSH, Guide, guided_arm, write_truth
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import config, start
from tests.lab.daemon.runs import DEADLINE_S, refused, stands

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guiding")
    write_truth(path)
    return path


@pytest.fixture(scope="module")
def truth(folder: Path) -> ModelFile:
    return load_model(folder / "truth.yaml")


def values(model: ModelFile) -> dict[str, Any]:
    """Parameters of a model as requests have them."""
    return {"theta": model.theta.tolist(), "constants": model.base.layout.shape[:, 0].tolist()}


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
    ({"friction_share": 1.5}, "friction_share must be a share from 0 to 1"),
    ({"speed_share": 0.9}, "at most guiding.speed_share = 0.25"),
    ({"model": {"path": "/etc/passwd"}}, "model: expected a map"),
    ({"model": {"theta": [1.0], "constants": [1.0], "robot": "x", "name": "m"}}, "of another robot"),
    ({"force": 3}, "unknown argument 'force'"),
]


def test_nonsense_is_refused_and_leaves_the_permit(client: Guide, truth: ModelFile) -> None:
    assert "arm it first" in refused(client, "unavailable", "zero_force", permit="x")
    client.arm()
    for args, words in NONSENSE:
        assert words in refused(client, "bad_argument", "zero_force", **{"permit": client.permit} | args), args
    for theta in ([1.0], "many", [float("nan")] * 30):
        model = {"theta": theta, "constants": [1.0], "robot": truth.robot.sha256, "name": "m"}
        said = refused(client, "bad_argument", "zero_force", permit=client.permit, model=model)
        assert "theta of the model" in said
    assert "not the permit" in refused(client, "unavailable", "zero_force", permit="0123456789abcdef")
    assert client.safety()["state"] == "armed"
    assert stands(client.next_frames(100))


def test_another_active_model_ends_it(client: Guide, truth: ModelFile) -> None:
    other = [1.0001 * value for value in truth.theta.tolist()]
    try:
        client.ask("activate", model="one", **values(truth), speeds=[0.1, 1e3, 1e3])
        client.arm()
        *_, fast = client.ask("zero_force", permit=client.permit)["unchecked"]
        assert "x faster than where its friction was identified" in fast
        client.until_phase("guiding")
        assert client.safety()["guiding"]["model"] == "one"
        client.ask("activate", model="one", **values(truth) | {"theta": other})
        done = client.until("disarmed")
        assert done["reason"] == "the active model has changed: one has other values than when guiding began"
        client.guide()
        client.ask("activate", theta=None)
        assert client.until("disarmed")["reason"] == "the active model has changed: it was one, and is none"
    finally:
        client.ask("activate", model="truth", **values(truth))


def test_an_estimator_that_does_not_answer_ends_it(client: Guide) -> None:
    client.guide()
    (pid,) = (p["pid"] for p in client.control.request("status")["processes"] if p["name"] == "good/estimator")
    os.kill(pid, signal.SIGSTOP)
    try:
        done = client.until("disarmed")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done["reason"] == "for 5 s the estimator has not said whether the model holds"


def test_the_command_guides_records_and_draws(daemon: DaemonProcess, folder: Path) -> None:
    control = ("--control", daemon.endpoints["control"])
    permit = thetad("control", "arm", "arm=good", *control).json["permit"]
    guided = folder / "guided"
    done = thetad("guide", "good", "--permit", permit, "--for", 4, "--figures", guided, "--json", *control).ok()
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


def test_the_record_of_a_session_is_what_the_controller_saw(client: Guide, truth: ModelFile) -> None:
    """Residuals from the recording equal those that the daemon reported."""
    client.ask("record", action="start")
    client.arm()
    settings = client.ask("zero_force", permit=client.permit, for_s=1.5)["settings"]
    done = client.until("disarmed")["guiding"]
    path = Path(client.ask("record", action="stop")["path"])
    model = guiding_model(truth.robot.model, client.ask("guiding_model")["values"])
    record = record_of(read_recording(path), model, ZeroForceSettings(**settings), done)
    states = list(dict.fromkeys(record.states))
    assert states == [GuidingState.RAMPING, GuidingState.GUIDING, GuidingState.HOLD_REQUESTED]
    at = record.states.index(GuidingState.HOLD_REQUESTED)
    np.testing.assert_allclose(record.outside[at], done["residual"], atol=1e-9)
    np.testing.assert_allclose(record.margin[at], done["margin"], atol=1e-9)
