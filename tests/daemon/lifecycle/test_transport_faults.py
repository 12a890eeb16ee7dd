"""Subscribers that stop, connect and leave, and SIGTERM under load."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq

from drivers.files.recordings.recording import read_recording
from service.client import Control, Jobs, Subscriber
from service.supervisor.launch import DaemonProcess
from service.worker.worker import FRAME_QUEUE
from tests.lab.daemon.daemons import (
    await_message,
    await_status,
    config,
    log_lines,
    make_recording,
    processes,
    replayed,
    start,
)
from tests.lab.web.http_client import ask

STOPPED_S = 25.0  # more than FRAME_QUEUE frames
VISITS = 1000  # of each port
#: Counts what it hears until it is told to end: first and last number, how many came and how many were lost.
LISTENER = """
import signal, sys
from service.client import ClientTimeoutError, Subscriber
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
with Subscriber(sys.argv[1], ["axis/frame"]) as stream:
    first = last = stream.receive(60.0).envelope.seq
    print("hears", flush=True)
    while not ended:
        try:
            last = stream.receive(0.2).envelope.seq
        except ClientTimeoutError:
            pass
    print(first, last, stream.counts["axis/frame", "acquisition"].received, stream.lost)
"""


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    arm = replayed(make_recording(folder / "rec.mcap", seconds=300.0), recorder={"directory": "recordings"})
    settings = config(folder, arm, runtime_dir=str(folder / "r"), http=True, http_port=0)
    with start(settings, folder) as daemon:
        yield daemon


def listener(endpoint: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", LISTENER, endpoint], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "hears\n"
    return process


def heard(process: subprocess.Popen[str]) -> tuple[int, int, int, int]:
    process.terminate()
    first, last, received, lost = map(int, process.communicate(timeout=30.0)[0].split())
    return first, last, received, lost


def visit(daemon: DaemonProcess) -> None:
    """Connect to each port and leave, ten times; of those once make a request or receive a message."""
    for port in ("frames", "estimates", "control"):
        endpoint = daemon.endpoints[port]
        host, _, number = endpoint.removeprefix("tcp://").partition(":")
        for _ in range(9):
            with socket.create_connection((host, int(number)), 30.0) as raw:
                assert raw.recv(1) == b"\xff"  # the daemon's greeting: it has noticed
        if port == "control":
            with Control(endpoint) as visitor:
                assert visitor.request("ping", 30.0)["pong"] is True
        else:
            with Subscriber(endpoint, [f"axis/{port.removesuffix('s')}"]) as subscriber:
                await_message(subscriber)
    for _ in range(10):
        assert ask(daemon.endpoints["http"], "/healthz").status == 200


def test_a_subscriber_that_stops_for_long_and_a_thousand_visitors(daemon: DaemonProcess) -> None:
    """The stopped one counts its losses and goes on; no other loses frames, and nothing stays open or in memory."""
    endpoint = daemon.endpoints["frames"]
    with Control(daemon.endpoints["control"]) as control:
        steady, stopped = listener(endpoint), listener(endpoint)
        pids = {"supervisor": daemon.pid} | {name: processes(control)[name]["pid"] for name in ("gateway", "web")}
        programs = {name: psutil.Process(pid) for name, pid in pids.items()}
        files = {name: program.num_fds() for name, program in programs.items()}
        memory = programs["gateway"].memory_info().rss
        psutil.Process(stopped.pid).suspend()
        began = time.monotonic()
        for _ in range(VISITS // 10):
            visit(daemon)
        time.sleep(max(0.0, STOPPED_S - (time.monotonic() - began)))
        psutil.Process(stopped.pid).resume()
        with Subscriber(endpoint, ["axis/frame"]) as newest:
            resumed = await_message(newest).envelope.seq
            await_message(newest, lambda message: message.envelope.seq > resumed + 3000)
        first, last, received, lost = heard(steady)
        assert (received, lost) == (last - first + 1, 0)
        first, last, received, lost = heard(stopped)
        assert received + lost == last - first + 1
        assert last > resumed + 1000
        await_status(  # the last of them are hung up on by and by
            control, lambda _: all(program.num_fds() <= files[name] + 4 for name, program in programs.items())
        )
        found = processes(control)
    assert all(process["restarts"] == 0 for process in found.values())
    assert found["axis/estimator"]["info"]["lost"] == found["axis/recorder"]["info"]["lost"] == 0
    assert found["axis/acquisition"]["info"]["dropped"] == 0
    # For who stopped FRAME_QUEUE frames wait, each in the buffer of 8 kB that ZeroMQ has received it in.
    assert programs["gateway"].memory_info().rss < memory + 1.3 * FRAME_QUEUE * 8192


def test_an_end_under_load_is_an_end_in_order(daemon: DaemonProcess, folder: Path) -> None:
    """SIGTERM with frames, a job and a flood of requests: the recording is complete, all end in order."""
    heavy = {"robot": "space6", "methods": ["ols"], "seconds": 20.0, "seeds": 20}
    with Control(daemon.endpoints["control"]) as control, zmq.Context() as context, context.socket(zmq.DEALER) as flood:
        known = processes(control)
        children = [psutil.Process(process["pid"]) for process in known.values()]
        Jobs(control).submit("compare", heavy)
        await_status(control, lambda found: found["jobs"]["info"]["running"] > 0)
        steady = listener(daemon.endpoints["frames"])
        flood.linger = 0
        flood.connect(daemon.endpoints["control"])
        for number in range(900):  # as many as it takes without waiting
            flood.send(msgpack.packb({"v": 1, "id": number + 1, "verb": "status"}))
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait(30.0) == 0
    first, last, received, lost = heard(steady)
    assert (received, lost) == (last - first + 1, 0)
    (file,) = (folder / "recordings").glob("*.mcap")
    seq = read_recording(file).seq
    assert seq[0] == 0
    assert seq.size == seq[-1] + 1 > last  # every frame that was published is in it
    log = log_lines(folder)
    assert log.count('"code": 0, "event": "ended"') == len(known), log[-3000:]
    assert "process_killed" not in log
    assert not any(child.is_running() for child in children)
    assert (folder / "state" / "axis" / "estimator.state").is_file()
    assert list((folder / "r").iterdir()) == []
