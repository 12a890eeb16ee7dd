"""A single process of a daemon; the test plays supervisor and acquisition."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import zmq

from drivers.frame import JointFrame
from service.config.load import Config
from service.protocol.messages import (
    MAX_REPLY,
    BodyMessage,
    Envelope,
    encode,
    encode_frame,
    pack_map,
    topic,
    unpack_map,
)
from service.worker.frame_subscriber import marker
from service.worker.worker import Runtime, process_name

DEADLINE_S = 60.0
START_S = 240.0  # the first start compiles


class LoneProcess:
    """A process of the first arm of `config`, fed with the messages of the test.

    Attributes
    ----------
    beat : dict
        What the newest heartbeat said.
    ended : str
        The error with which it ended; empty while it runs.
    """

    def __init__(self, role: str, config: Config, log: Path) -> None:
        self.arm = config.arm[0].name
        self.heartbeat: dict[str, Any] = {}
        self.ended = ""
        self._role = role
        self._folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
        runtime = Runtime(self._folder)
        runtime.config.write_text(config.model_dump_json(), encoding="utf-8")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._supervisor = self._context.socket(zmq.ROUTER)
        self._supervisor.bind(runtime.supervisor)
        self._frames = self._context.socket(zmq.XPUB)
        self._frames.setsockopt(zmq.SNDHWM, 0)  # nothing is lost but what the test leaves out
        self._frames.bind(runtime.frames(self.arm))
        command = [sys.executable, "-m", "service.worker.entry", role, "--runtime", str(self._folder)]
        command += ["--arm", self.arm, "--parent", str(os.getpid()), "--epoch", "1"]
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file)
        self._ready = False
        self._id = 0
        self._replies: dict[int, dict[str, Any]] = {}

    def begin(self, rate_hz: float, joint_names: Sequence[str], channels: Sequence[str] = ("q", "tau")) -> Self:
        """Publish the source's description, and wait until the process is ready and subscribed to frames."""
        body = {
            "arm": self.arm,
            "robot": "emps",
            "joint_names": list(joint_names),
            "joint_units": ["m"] * len(joint_names),
            "channels": list(channels),
            "rate_hz": rate_hz,
            "source": "test",
            "lossless": False,
        }
        heard: set[bytes] = set()
        deadline = time.monotonic() + START_S
        while not self._ready or topic(self.arm, "frame") not in heard or marker(self._role) not in heard:
            assert time.monotonic() < deadline, (self._ready, heard, self.ended)
            self._receive(0.05)
            while self._frames.poll(0):
                data = self._frames.recv()
                heard |= {data[1:]} if data[:1] == b"\x01" else set()
            self.send(encode(BodyMessage(self.arm, "meta", self._envelope(1), body)))
            self.send(encode(BodyMessage(self.arm, "status", self._envelope(1), {"state": "running"})))
        return self

    @staticmethod
    def _envelope(epoch: int) -> Envelope:
        return Envelope("acquisition", epoch, 0, 0, "test", 0)

    def frame(self, seq: int, t_ns: int, epoch: int = 1, **channels: Any) -> list[bytes]:
        """The two parts of a frame."""
        arrays = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in channels.items()}
        made = JointFrame(seq, t_ns, time.monotonic_ns(), **arrays)
        return encode_frame(topic(self.arm, "frame"), "acquisition", epoch, "test", made)

    def send(self, parts: Sequence[bytes]) -> None:
        """Publish a message."""
        self._frames.send_multipart(list(parts))

    def await_beat(self, done: Callable[[dict[str, Any]], bool], timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for a heartbeat of which `done` says yes."""
        deadline = time.monotonic() + timeout_s
        self.heartbeat = {}
        while not self.heartbeat or not done(self.heartbeat):
            assert time.monotonic() < deadline, self.heartbeat
            assert self.process.poll() is None, self.ended or f"it has ended: {self.process.returncode}"
            self._receive(0.1)
        return self.heartbeat

    def request(self, verb: str, **args: Any) -> dict[str, Any]:
        """Make a request and return its result."""
        self._id += 1
        message = {"id": self._id, "verb": verb, "args": {"arm": self.arm, **args}}
        identity = f"{process_name(self._role, self.arm)}#{self.process.pid}".encode()
        self._supervisor.send_multipart([identity, pack_map(message, MAX_REPLY)])
        deadline = time.monotonic() + DEADLINE_S
        while self._id not in self._replies:
            assert time.monotonic() < deadline, verb
            self._receive(0.1)
        reply = self._replies.pop(self._id)
        assert "error" not in reply, reply
        return dict(reply["result"])

    def _receive(self, timeout_s: float) -> None:
        if not self._supervisor.poll(int(timeout_s * 1000)):
            return
        message = unpack_map(self._supervisor.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
        if message["type"] == "ready":
            self._ready = True
        elif message["type"] == "beat":
            self.heartbeat = message["info"]
        elif message["type"] == "reply":
            self._replies[message["id"]] = message
        elif message["type"] in ("crash", "fatal"):
            self.ended = message["message"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10.0)
        self.process.kill()
        self.process.wait()
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)
