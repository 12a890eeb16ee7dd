"""A single process of a daemon; the test plays supervisor and acquisition."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import zmq

from drivers.frame import JointFrame
from service.config.load import Config
from service.protocol.control import ControlError
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
from tests.lab.closing import Closing

DEADLINE_S = 60.0
START_S = 240.0  # the first start compiles
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class SupervisorSide(Closing):
    """The supervisor's part towards one process of a daemon, in a runtime directory of its own.

    `heartbeat` is what the newest one said, and `ended` the error with which the process ended, empty while it runs;
    `answers` are what other processes of the daemon would say to what it asks of them, by verb.
    """

    def __init__(self, config: Config, log: Path, role: str, arm: str | None = None) -> None:
        self.config, self.log, self.role = config, log, role
        self.heartbeat: dict[str, Any] = {}
        self.ended = ""
        self.answers: dict[str, Ask] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._name = process_name(role, arm)
        self._folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
        self._runtime = Runtime(self._folder)
        self._runtime.config.write_text(config.model_dump_json(), encoding="utf-8")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        self._socket.bind(self._runtime.supervisor)
        self._ready = False
        self._id = 0
        self._replies: dict[int, dict[str, Any]] = {}

    def _launch(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "service.worker.entry", self.role, "--runtime", str(self._folder)]
        command += ["--parent", str(os.getpid()), *arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def request(self, verb: str, timeout_s: float = DEADLINE_S, **args: Any) -> dict[str, Any]:
        """Make a request; raises `ControlError`, and `TimeoutError` if there is no answer."""
        self._id += 1
        id = self._id
        self._send({"type": "request", "id": id, "verb": verb, "args": args})
        self._until(lambda: id in self._replies, timeout_s)
        reply = self._replies.pop(id)
        if "error" in reply:
            raise ControlError(reply["error"]["type"], reply["error"]["message"])
        return dict(reply["result"])

    def await_beat(self, done: Callable[[dict[str, Any]], bool], timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for a heartbeat of which `done` says yes."""
        self._until(lambda: bool(self.heartbeat) and done(self.heartbeat), timeout_s)
        return self.heartbeat

    def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if self.process is not None and self.process.poll() is not None:
                raise TimeoutError(self.ended or f"the process has ended: {self.process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {timeout_s:g} s: {self.heartbeat}")
            self._receive(0.1)

    def _send(self, message: dict[str, Any]) -> None:
        identity = f"{self._name}#{0 if self.process is None else self.process.pid}".encode()
        self._socket.send_multipart([identity, pack_map(message, MAX_REPLY)])

    def _receive(self, timeout_s: float) -> None:
        if not self._socket.poll(max(1, int(timeout_s * 1000))):
            return
        identity, data = self._socket.recv_multipart()
        message = unpack_map(data, MAX_REPLY, text=MAX_REPLY)
        if message["type"] == "ready":
            self._ready = True
        elif message["type"] == "beat":
            self.heartbeat = message["info"]
        elif message["type"] == "reply":
            self._replies[message["id"]] = message
        elif message["type"] == "ask":
            self._answer(identity, message)
        elif message["type"] in ("crash", "fatal"):
            self.ended = message["message"]

    def _answer(self, identity: bytes, message: dict[str, Any]) -> None:
        verb, args = message["verb"], message["args"]
        try:
            if verb not in self.answers:
                raise ControlError("failed", f"nobody answers {verb}")
            answer: dict[str, Any] = {"result": dict(self.answers[verb](verb, args))}
        except ControlError as error:
            answer = {"error": {"type": error.type, "message": error.message}}
        self._socket.send_multipart([identity, pack_map({"type": "answer", "id": message["id"], **answer}, MAX_REPLY)])

    def kill(self) -> None:
        """`kill -9`, and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        code = self.process.wait(20.0)
        self.process = None
        return code

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self.kill()
            self._context.destroy(linger=0)
            shutil.rmtree(self._folder, ignore_errors=True)


class LoneProcess(SupervisorSide):
    """A process of the first arm of `config`, fed with the messages of the test."""

    def __init__(self, role: str, config: Config, log: Path) -> None:
        self.arm = config.arm[0].name
        self.clock = "test"  # of the frames
        super().__init__(config, log, role, self.arm)
        self._frames = self._context.socket(zmq.XPUB)
        self._frames.setsockopt(zmq.SNDHWM, 0)  # nothing is lost but what the test leaves out
        self._frames.bind(self._runtime.frames(self.arm))
        self._launch("--arm", self.arm, "--epoch", "1")

    def begin(self, rate_hz: float, joint_names: Sequence[str], channels: Sequence[str] = ("q", "tau")) -> Self:
        """Publish the source's description, and wait until the process is ready and subscribed to frames."""
        body = {
            "arm": self.arm, "robot": "emps", "joint_names": list(joint_names),
            "joint_units": ["m"] * len(joint_names), "channels": list(channels), "rate_hz": rate_hz, "source": "test",
            "lossless": False,
        }  # fmt: skip
        heard: set[bytes] = set()
        deadline = time.monotonic() + START_S
        while not self._ready or topic(self.arm, "frame") not in heard or marker(self.role) not in heard:
            assert time.monotonic() < deadline, (self._ready, heard, self.ended)
            self._receive(0.05)
            while self._frames.poll(0):
                data = self._frames.recv()
                heard |= {data[1:]} if data[:1] == b"\x01" else set()
            self.send(encode(BodyMessage(self.arm, "meta", self._envelope(1), body)))
            self.send(encode(BodyMessage(self.arm, "status", self._envelope(1), {"state": "running"})))
        return self

    def _envelope(self, epoch: int) -> Envelope:
        return Envelope("acquisition", epoch, 0, 0, self.clock, 0)

    def frame(self, seq: int, t_ns: int, epoch: int = 1, **channels: Any) -> list[bytes]:
        """The two parts of a frame."""
        arrays = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in channels.items()}
        made = JointFrame(seq, t_ns, time.monotonic_ns(), **arrays)
        return encode_frame(topic(self.arm, "frame"), "acquisition", epoch, self.clock, made)

    def send(self, parts: Sequence[bytes]) -> None:
        """Publish a message."""
        self._frames.send_multipart(list(parts))

    def request(self, verb: str, timeout_s: float = DEADLINE_S, **args: Any) -> dict[str, Any]:
        """Make a request that concerns its arm."""
        return super().request(verb, timeout_s, arm=self.arm, **args)

    def await_beat(self, done: Callable[[dict[str, Any]], bool], timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for a new heartbeat of which `done` says yes."""
        self.heartbeat = {}
        return super().await_beat(done, timeout_s)
