"""The real jobs process with its real runners, without the rest of a daemon: the test takes the supervisor's part."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import zmq

from service.config.load import Config, parse_config
from service.protocol.control import ControlError
from service.protocol.messages import MAX_REPLY, pack_map, unpack_map
from service.worker.worker import Runtime

FINISHED = ("succeeded", "failed", "cancelled")
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


def configuration(state: Path, robot: str = "space6", arm: Mapping[str, Any] | None = None, **jobs: Any) -> Config:
    """A daemon's configuration with one simulated arm, which nobody starts."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    table = {
        "daemon": {"state_dir": str(state), "log_level": "debug", **ports},
        "jobs": {"least_free_mb": 1.0, "priority": "normal", **jobs},
        "arm": [{"name": "arm", "robot": robot, "driver": {"kind": "sim"}, **(arm or {})}],
    }
    return parse_config(table, "test", state.parent)


class JobsProcess:
    """Starts, asks, kills it; `answers` is what other processes of the daemon would say to what it asks of them."""

    def __init__(self, config: Config, log: Path) -> None:
        self.config, self.log = config, log
        self.answers: dict[str, Ask] = {}
        self.heartbeat: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="tj-", dir="/tmp"))
        self._runtime = Runtime(self._folder)
        self._runtime.config.write_text(config.model_dump_json(), encoding="utf-8")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        self._socket.bind(self._runtime.supervisor)
        self._id = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._ready = False

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        self._ready = False
        command = [sys.executable, "-m", "service.worker.entry", "jobs", "--runtime", str(self._folder)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--parent", str(os.getpid()), "--epoch", str(time.time_ns() // 1000)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._until(lambda: self._ready, 60.0)
        return self

    def request(self, verb: str, timeout_s: float = 30.0, **args: Any) -> dict[str, Any]:
        """Make a request; raises `ControlError`, and `TimeoutError` if there is no answer."""
        self._id += 1
        id = self._id
        self._send({"id": id, "verb": verb, "args": args})
        self._until(lambda: id in self._replies, timeout_s)
        reply = self._replies.pop(id)
        if "error" in reply:
            raise ControlError(reply["error"]["type"], reply["error"]["message"])
        return dict(reply["result"])

    def event(self, kind: str, text: str = "", arm: str = "arm", **data: Any) -> None:
        """Tell it of an event as the supervisor would."""
        self._send({"type": "event", "t_ns": time.time_ns(), "event": kind, "text": text, "arm": arm, "data": data})

    def submit(self, kind: str, /, **parameters: Any) -> int:
        """Queue a job; parameters that begin with `_` are the request's own."""
        own = {name[1:]: parameters.pop(name) for name in list(parameters) if name.startswith("_")}
        return int(self.request("submit", kind=kind, parameters=parameters, **own)["id"])

    def wait(self, *ids: int, timeout_s: float = 240.0) -> list[dict[str, Any]]:
        """Wait until jobs have finished and return all of them."""
        deadline = time.monotonic() + timeout_s
        while True:
            jobs = [self.request("job", id=id) for id in ids]
            if all(job["state"] in FINISHED for job in jobs):
                return jobs
            assert time.monotonic() < deadline, [(job["id"], job["state"], job["waits"], job["doing"]) for job in jobs]
            self.pause(0.1)

    def await_beat(self, done: Callable[[dict[str, Any]], bool], timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait for a heartbeat of which `done` says yes."""
        self._until(lambda: bool(self.heartbeat) and done(self.heartbeat), timeout_s)
        return self.heartbeat

    def pause(self, seconds: float) -> None:
        """Let time pass, and answer what is asked meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0.0:
            self._receive(left)

    def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if self.process is not None and self.process.poll() is not None:
                raise TimeoutError(f"the jobs process has ended: {self.process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            self._receive(0.1)

    def _identity(self) -> bytes:
        return f"jobs#{0 if self.process is None else self.process.pid}".encode()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.send_multipart([self._identity(), pack_map(message, MAX_REPLY)])

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

    def _answer(self, identity: bytes, message: dict[str, Any]) -> None:
        verb, args = message["verb"], message["args"]
        try:
            if verb not in self.answers:
                raise ControlError("failed", f"nobody answers {verb}")
            answer: dict[str, Any] = {"result": dict(self.answers[verb](verb, args))}
        except ControlError as error:
            answer = {"error": {"type": error.type, "message": error.message}}
        self._socket.send_multipart([identity, pack_map({"type": "answer", "id": message["id"], **answer}, MAX_REPLY)])

    def runners(self) -> list[psutil.Process]:
        """Runners that are alive."""
        if self.process is None:
            return []
        found = []
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if "service.jobs.execution.runner" in process.cmdline():
                    found.append(process)
        return found

    def await_runners(self, count: int = 1) -> list[psutil.Process]:
        """Wait until so many run, and return them."""
        while len(found := self.runners()) < count:
            self.pause(0.05)
        return found

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

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.stop()
        finally:
            self.kill()
            self._context.destroy(linger=0)
            shutil.rmtree(self._folder, ignore_errors=True)
