"""What the processes of a daemon say to the supervisor, where it cannot be read or sent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
import structlog
import zmq

from service.control import ControlError
from service.process import Child
from service.supervisor import Supervisor
from service.wire import MAX_REPLY, MAX_TEXT, pack_map, unpack_map
from tests.service.daemons import config

ARM = {"name": "arm", "robot": "emps", "driver": {"kind": "sim"}}


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor that has started nothing."""
    one = Supervisor(config(tmp_path, ARM, runtime_dir=str(tmp_path / "r")))
    yield one
    one._cleanup.close()


@pytest.fixture
def jobs(supervisor: Supervisor) -> Iterator[zmq.Socket[bytes]]:
    """The jobs process's end of the private socket."""
    managed = next(process for process in supervisor.processes if process.role == "jobs")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        managed.process = process
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.IDENTITY, managed.identity)
            socket.connect(supervisor.runtime.supervisor)
            yield socket
        managed.process = None
        process.kill()


def receive(supervisor: Supervisor) -> None:
    assert supervisor._private.poll(10_000)
    supervisor._receive_private()


def nested(depth: int) -> object:
    return {"x": nested(depth - 1)} if depth else 0


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", b"\xdb\xff\xff\xff\xff", msgpack.packb({"type": "reply", "id": 1, "result": nested(20)})]
)
def test_one_message_that_cannot_be_read_is_left_out(
    supervisor: Supervisor, jobs: zmq.Socket[bytes], data: bytes
) -> None:
    managed = next(process for process in supervisor.processes if process.role == "jobs")
    jobs.send(data)
    jobs.send(pack_map({"type": "beat", "info": {"running": 7}}))
    while "running" not in managed.info:
        receive(supervisor)
    assert managed.info == {"running": 7}


def test_a_long_text_of_a_process_is_read(supervisor: Supervisor, jobs: zmq.Socket[bytes]) -> None:
    managed = next(process for process in supervisor.processes if process.role == "jobs")
    jobs.send(pack_map({"type": "crash", "message": "x" * (MAX_TEXT + 1)}))
    receive(supervisor)
    assert len(managed.words) == MAX_TEXT + 1


def test_an_event_is_a_line_of_the_log_with_what_it_rests_on(supervisor: Supervisor, jobs: zmq.Socket[bytes]) -> None:
    ids = {"source_epoch": 3, "frame": 70, "estimator_epoch": 4, "estimate": 9}
    data = {"model": "m", "arm": "arm", "parameters": [1.0, 2.0]}
    jobs.send(pack_map({"type": "event", "event": "drift", "text": "it drifts", "data": data, "ids": ids}))
    with structlog.testing.capture_logs() as logs:
        receive(supervisor)
    (line,) = (line for line in logs if line["event"] == "event")
    assert line | ids | {"event_kind": "drift", "text": "it drifts", "arm": "arm", "model": "m"} == line
    assert "parameters" not in line
    assert supervisor._status()["events"] == {"drift": 1}


def test_a_process_refuses_what_nobody_would_read(tmp_path: Path) -> None:
    """A reply too deep or too large becomes a refusal, and a refusal has a bounded length."""
    (tmp_path / "config.json").write_text(config(tmp_path, ARM).model_dump_json(), encoding="utf-8")
    child = Child("jobs", None, tmp_path)
    try:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as other:
            other.bind(child.runtime.supervisor)
            child.reply(1, {"robot": "x" * 200_000})
            child.reply(2, {"deep": nested(20)})
            child.reply(3, {"large": "x" * MAX_REPLY})
            child.reply(4, {"alien": object()})
            child.refuse(5, ControlError("failed", "\0" * 100_000))
            said = {}
            for _ in range(5):
                assert other.poll(10_000)
                message = unpack_map(other.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
                said[message["id"]] = message
    finally:
        child.close()
    assert len(said[1]["result"]["robot"]) == 200_000
    for id, word in ((2, "nested"), (3, "limit"), (4, "encode")):
        assert said[id]["error"]["type"] == "failed"
        assert word in said[id]["error"]["message"]
    assert len(json.dumps(said[5])) < 30_000
