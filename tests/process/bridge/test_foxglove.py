"""The bridge to Foxglove: a publisher on real sockets, a viewer on a real WebSocket, and what stands between them."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from service.bridge import relay as relaying
from service.bridge.foxglove import BACKLOG
from service.protocol.messages import Message
from tests.lab.bridge.bench import Bridge
from tests.lab.bridge.publisher import DEADLINE_S, Arm, Publisher
from tests.lab.bridge.viewer import Viewer
from tests.lab.command_line import thetad


@contextlib.contextmanager
def bridged() -> Iterator[tuple[Publisher, Bridge]]:
    with Publisher() as publisher, Bridge(publisher.endpoints).running() as bridge:
        publisher.await_subscriber()
        yield publisher, bridge


def send_until(done: Callable[[], bool], publisher: Publisher, messages: Iterator[Message]) -> list[Message]:
    """Send one message after the other until `done`: when a subscription counts, nobody is told."""
    sent = []
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline
        sent.append(next(messages))
        publisher.send(sent[-1])
        time.sleep(0.01)
    return sent


def test_a_viewer_that_comes_late_is_offered_everything_and_sees_joints_and_events() -> None:
    arm = Arm()
    with bridged() as (publisher, bridge):
        publisher.send(*arm.meta(), *arm.status())
        with Viewer(bridge.server.url) as early:
            early.await_(lambda: early.channels.keys() >= {"demo/status/acquisition", "demo/status/estimator"})
        with Viewer(bridge.server.url) as viewer:
            viewer.subscribe("demo/joint_states", "demo/event", "demo/log")
            offered = {"frame", "joint_states", "torque", "estimate", "event", "log"}
            offered |= {"status/acquisition", "status/estimator"}
            assert viewer.channels.keys() == {f"demo/{name}" for name in offered}
            assert viewer.info["name"] == "thetad"
            assert viewer.info["capabilities"] == []  # to look, and nothing else
            name, schema = viewer.schema("demo/joint_states")
            assert (name, schema["title"]) == ("foxglove.JointStates", "foxglove.JointStates")
            frames = send_until(lambda: viewer.has("demo/joint_states"), publisher, map(arm.frame, count()))
            logged_ns, states = viewer.next("demo/joint_states")
            assert abs(logged_ns - time.time_ns()) < DEADLINE_S * 1e9
            t_ns = states["timestamp"]["sec"] * 10**9 + states["timestamp"]["nsec"]
            (message,) = [message for message in frames if message.envelope.t_ns == t_ns]
            assert [joint["name"] for joint in states["joints"]] == list(arm.joints)
            np.testing.assert_array_equal([joint["position"] for joint in states["joints"]], message.frame.q)
            events = (arm.event("payload_attached", "the hand carries 0.7 kg") for _ in count())
            send_until(lambda: viewer.has("demo/event") and viewer.has("demo/log"), publisher, events)
            assert viewer.next("demo/event")[1]["event"] == "payload_attached"
            assert viewer.next("demo/log")[1]["message"] == "the hand carries 0.7 kg"
            assert bridge.server.sent >= 3
            assert bridge.server.viewers == 1


@pytest.mark.slow
def test_a_slow_viewer_loses_the_oldest_and_holds_up_nobody() -> None:
    """It takes nothing in while far more than the buffers of two sockets hold is sent; the other gets everything."""
    arm = Arm(joints=[f"joint_{k}" for k in range(64)])
    with (
        bridged() as (publisher, bridge),
        Viewer(bridge.server.url, slow=True) as slow,
        Viewer(bridge.server.url) as quick,
    ):
        publisher.send(*arm.meta())
        slow.subscribe("demo/frame")
        quick.subscribe("demo/frame")
        both = (slow, quick)
        sent = send_until(lambda: all(each.has("demo/frame") for each in both), publisher, map(arm.frame, count()))
        begun = len(sent)
        last = begun + BACKLOG + 1500
        seen = quick.next("demo/frame")[1]["seq"]
        for k in range(begun, last + 1):
            publisher.send(arm.frame(k))
            while seen < k:
                found = quick.next("demo/frame")[1]["seq"]
                assert found == seen + 1
                seen = found
        seqs = [slow.next("demo/frame")[1]["seq"]]
        while seqs[-1] < last:
            seqs.append(slow.next("demo/frame")[1]["seq"])
        assert seqs == sorted(seqs)
        assert len(seqs) < last + 1 - seqs[0]
        newest = BACKLOG // 2
        assert seqs[-newest:] == list(range(last + 1 - newest, last + 1))


def test_a_daemon_that_goes_away_is_told_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is back with another arm, its streams are those of that."""
    monkeypatch.setattr(relaying, "SILENT_S", 0.3)
    first, second = Arm(), Arm(epoch=2, joints=("a", "b", "c"))
    with bridged() as (publisher, bridge), Viewer(bridge.server.url) as viewer:
        publisher.send(*first.meta())
        viewer.subscribe("demo/frame")
        old = viewer.channels["demo/frame"]["id"]
        publisher.close()
        viewer.await_(lambda: viewer.statuses)
        (text,) = viewer.statuses.values()
        assert "nothing from the daemon" in text
        assert text in bridge.told
        with Publisher(publisher.ports) as again:
            again.await_subscriber()
            again.send(*second.meta())
            viewer.await_(lambda: not viewer.statuses and viewer.channels.get("demo/frame", {}).get("id", old) != old)
            assert viewer.schema("demo/frame")[1]["properties"]["q"]["maxItems"] == 3
            send_until(lambda: viewer.has("demo/frame"), again, map(second.frame, count()))
            assert len(viewer.next("demo/frame")[1]["q"]) == 3
        assert any("is heard again" in told for told in bridge.told)
    assert bridge.relayed.silences >= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_counts_and_ends_when_told(number: signal.Signals) -> None:
    arm, other = Arm(), Arm("other")
    with Publisher() as publisher:
        frames, estimates = publisher.endpoints
        command = [sys.executable, "-m", "service.cli.main", "bridge", "foxglove", "--frames", frames]
        command += ["--estimates", estimates, "--arm", "demo", "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                line = process.stderr.readline()
                assert line.startswith("thetad: Foxglove finds "), line
                publisher.await_subscriber()
                with Viewer(line.split()[-1]) as viewer:
                    publisher.send(*other.meta(), *arm.meta())
                    viewer.subscribe("demo/log")
                    assert not any(topic.startswith("other/") for topic in viewer.channels)
                    publisher.send(*(arm.frame(k) for k in range(1000) if not 500 <= k < 600))
                    publisher.send_bytes(b"demo/frame", b"no msgpack")
                    publisher.send(arm.frame(1000), *arm.status())
                    viewer.await_(lambda: "demo/status/acquisition" in viewer.channels)  # what was sent before it is in
                    while not viewer.has("demo/log"):  # until it has heard that it has subscribed
                        publisher.send(arm.event("drift", "the end"))
                        time.sleep(0.05)
                    process.send_signal(number)  # while somebody looks
                    out, err = process.communicate(timeout=DEADLINE_S)
            finally:
                process.kill()
    assert process.returncode == 0, err
    assert err == ""
    found = json.loads(out)
    assert found["arms"] == ["demo"]
    assert (found["frames"], found["lost"], found["invalid"], found["viewers"]) == (901, 100, 1, 1)
    assert found["left_out"] == 901 - 46  # 50 a second of 1000: 25, then after the gap 20, and the last
    assert found["sent"] >= 1


def refused(*arguments: object, code: int = 2, words: tuple[str, ...]) -> None:
    thetad("bridge", "foxglove", *arguments).refused(*words, code=code)


def test_a_port_that_is_taken_and_an_extra_that_is_missing_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused("--port", port, code=3, words=(f"127.0.0.1:{port}", "--port"))
    monkeypatch.setitem(sys.modules, "foxglove", None)
    refused(words=("pip install 'thetad[foxglove]'",))


def test_beyond_loopback_only_when_told_plainly() -> None:
    refused("--host", "0.0.0.0", words=("--host 0.0.0.0", "anyone who reaches it", "--let-anyone-look"))
    refused("--host", "here", words=("--host here", "not an IPv4 address"))
    for flag, value in (("--rate", 0), ("--rate", "nan"), ("--port", 70_000), ("--port", -1), ("--seconds", 0)):
        refused(flag, value, words=(flag,))
    with Publisher() as publisher:
        frames, estimates = publisher.endpoints
        arguments = ("--frames", frames, "--estimates", estimates, "--host", "0.0.0.0", "--let-anyone-look")
        found = thetad("bridge", "foxglove", *arguments, "--port", 0, "--seconds", 0.3)
        assert found.code == 1  # no daemon was heard
        assert "ws://0.0.0.0:" in found.err


def test_endpoints_from_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    arm = '[[arm]]\nname = "axis"\nrobot = "emps"\n[arm.driver]\nkind = "sim"\n'
    with Publisher() as publisher:
        frames, estimates = publisher.ports
        path.write_text(f"[daemon]\nframes_port = {frames}\nestimates_port = {estimates}\n{arm}")
        found = thetad("bridge", "foxglove", "-c", path, "--port", 0, "--seconds", 0.2)
        assert ", ".join(publisher.endpoints) in found.err
    path.write_text(f"[daemon]\nframes_port = 0\n{arm}")
    refused("-c", path, words=(str(path), "daemon.frames_port", "--frames"))
    refused("-c", tmp_path / "none.toml", words=("none.toml",))
    refused("--frames", "here", words=("here",))
