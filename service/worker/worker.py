"""What every process under the supervisor shares: its start, heartbeats, requests, and its end.

A child is started as `python -m service.worker.entry ROLE --runtime DIR --parent PID --epoch N [--arm NAME]` and finds
the configuration in `DIR/config.json`.  It talks to the supervisor over one private socket: it says when it
is ready, sends a heartbeat with its counters, and answers requests.  It ends when it is told to
(SIGTERM), and when the supervisor is gone.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import zmq

from service.config.load import ArmConfig, Config, ConfigError
from service.io.log import Log, configure, get_log
from service.io.sockets import readable
from service.protocol.control import ControlError
from service.protocol.json_values import shortened
from service.protocol.messages import MAX_REPLY, WireError, check_nesting, pack_map, unpack_map
from service.protocol.transient_errors import may_pass
from service.worker.resources import give_back, usage
from service.worker.scheduling import place

ROLES = ("gateway", "acquisition", "estimator", "recorder", "jobs", "web")
#: The module of each role; its `main(child)` is what the process does.
MODULES = {
    "gateway": "service.gateway.process",
    "acquisition": "service.acquisition.process",
    "estimator": "service.estimator.process",
    "recorder": "service.recorder.process",
    "jobs": "service.jobs.dispatch",
    "web": "service.web.server",
}

MESSAGES_A_TURN = 16
BEAT_NS = 250_000_000
USAGE_NS = 1_000_000_000  # between two looks at what the process uses, which take 50 us each
GIVE_BACK_NS = 60_000_000_000  # between two times that free memory is given back
POLL_MS = 100  # longest wait of a child's loop; how soon it notices that it is to stop

#: Frames that a consumer may be behind before any is lost.
FRAME_QUEUE = 20_000

#: Lets a process write to the log where each of its threads stands; it then goes on.
WHERE = signal.SIGUSR1

_OWN = ("service.", "sim_backend.", "drivers.", "rt_core.")
_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")

#: Takes the arguments of a request; returns the result, or None to answer later.
Handler: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
#: Takes the answer to a question: a result, or why there is none.
Answer: TypeAlias = Callable[[Mapping[str, Any] | None, ControlError | None], None]


class FatalError(Exception):
    """A child cannot do its work as configured; the daemon does not start."""


class SourceError(FatalError):
    """An arm's bus or controller cannot be opened; at a later start it may be there."""

    again = True


@dataclass(frozen=True)
class Runtime:
    """Names of the private sockets."""

    directory: Path

    @property
    def config(self) -> Path:
        """The configuration as the supervisor hands it to its children."""
        return self.directory / "config.json"

    @property
    def supervisor(self) -> str:
        """Endpoint of the supervisor."""
        return self._ipc("supervisor")

    def frames(self, arm: str) -> str:
        """Endpoint of an arm's frames, in order with what is said about them."""
        return self._ipc(f"{arm}.frames")

    def results(self, arm: str, role: str) -> str:
        """Endpoint of everything else that a process publishes."""
        return self._ipc(f"{arm}.{role}")

    def _ipc(self, name: str) -> str:
        return f"ipc://{self.directory / name}"


def process_name(role: str, arm: str | None) -> str:
    """Name of a process in logs and status: `<arm>/<role>`, or the role alone."""
    return role if arm is None else f"{arm}/{role}"


class Worker:
    """A process under the supervisor, seen from inside.

    `epoch` is larger than those of all processes that were started before; `restarts` is how often the supervisor has
    had to start this one again.
    """

    def __init__(self, role: str, arm_name: str | None, runtime: Path, epoch: int = 0, restarts: int = 0) -> None:
        self.role = role
        self.epoch, self.restarts = epoch, restarts
        self.runtime = Runtime(runtime)
        self.config = Config.model_validate_json(self.runtime.config.read_text(encoding="utf-8"))
        self.name = process_name(role, arm_name)
        self.arm_name = arm_name
        self.stopping = False
        configure(self.config.daemon.log_level)
        bound: dict[str, Any] = {"epoch": self.epoch}
        if arm_name is not None:
            bound["arm"] = arm_name
        self.log: Log = get_log(role, **bound)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, f"{self.name}#{os.getpid()}".encode())
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.connect(self.runtime.supervisor)
        self._next_beat_ns = self._next_usage_ns = 0
        self._next_give_back_ns = time.monotonic_ns() + GIVE_BACK_NS
        #: Of the request that a handler is at work on; a handler that answers later keeps it.
        self.request_id = 0
        self._asked: dict[int, Answer] = {}
        self._next_ask = 1

    @property
    def arm(self) -> ArmConfig:
        """The arm that this process works for."""
        if self.arm_name is None:
            raise ConfigError(f"{self.name} works for no arm")
        return self.config.find(self.arm_name)

    def ready(self, **info: Any) -> None:
        """Tell the supervisor that work can begin; from now on SIGTERM asks for an orderly end."""
        signal.signal(signal.SIGTERM, self._on_term)
        self._send({"type": "ready", "info": {"epoch": self.epoch, **info}})

    def promise_ready(self, within_s: float, otherwise: str) -> None:
        """Let the supervisor end this process if it is not ready in time, for the reason `otherwise`.

        For calls into libraries that neither return nor can be interrupted when their far end goes away.
        """
        self._send({"type": "promise", "within_s": within_s, "otherwise": otherwise})

    def beat_due(self, now_ns: int) -> bool:
        """Tell whether a heartbeat is due at `now_ns` of CLOCK_MONOTONIC."""
        return now_ns >= self._next_beat_ns

    def beat(self, now_ns: int, info: Mapping[str, Any]) -> None:
        """Send a heartbeat with the process's state and counters, and now and then with what the process uses.

        Once a minute free memory is given back.
        """
        self._next_beat_ns = now_ns + BEAT_NS
        told = dict(info)
        if now_ns >= self._next_usage_ns:
            self._next_usage_ns = now_ns + USAGE_NS
            told["usage"] = usage()
        if now_ns >= self._next_give_back_ns and self.role != "acquisition":  # which must not miss a cycle
            self._next_give_back_ns = now_ns + GIVE_BACK_NS
            give_back()
        self._send({"type": "beat", "info": told})

    def serve(self, handlers: Mapping[str, Handler], on_told: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Answer the requests that have arrived; a handler raises `ControlError` to refuse.

        A handler that returns None answers later, with `reply` or `refuse` and the `request_id` of its call.
        `on_told` takes what nobody has asked for: what other processes have told of with `event`, which the jobs
        process is sent, and the daemon's status, which the web process is.
        """
        for _ in range(MESSAGES_A_TURN):  # who asks without pause must not keep the process from its work
            if not readable(self.socket):
                return
            request = unpack_map(self.socket.recv(), MAX_REPLY, text=MAX_REPLY)
            if request.get("type") in ("event", "status"):
                if on_told is not None:
                    on_told(request)
                continue
            if request.get("type") == "answer":
                self._on_answer(request)
                continue
            self.request_id = request["id"]
            try:
                result = handlers[request["verb"]](request["args"])
            except ControlError as error:
                self.refuse(request["id"], error)
            else:
                if result is not None:
                    self.reply(request["id"], result)

    def reply(self, id: int, result: Mapping[str, Any]) -> None:
        """Answer the request `id` of the supervisor."""
        message = {"type": "reply", "id": id, "result": dict(result)}
        try:
            check_nesting(message)  # what the supervisor would not read, it could not answer for either
            self._send(message)
        except WireError as error:
            self.refuse(id, ControlError("failed", str(error)))

    def refuse(self, id: int, error: ControlError) -> None:
        """Answer the request `id` of the supervisor with an error; a text that repeats what was given is shortened."""
        self._send({"type": "reply", "id": id, "error": {"type": error.type, "message": shortened(error.message)}})

    def ask(self, verb: str, args: Mapping[str, Any], then: Answer, role: str = "") -> None:
        """Make a request of another process of this daemon; `then` is called by `serve` when the answer comes.

        `role` is that of who wants it, for a process that asks for others.
        """
        self._asked[self._next_ask] = then
        self._send({"type": "ask", "id": self._next_ask, "verb": verb, "args": dict(args), "role": role})
        self._next_ask += 1

    def _on_answer(self, message: Mapping[str, Any]) -> None:
        then = self._asked.pop(message["id"], None)
        if then is not None:
            error = message.get("error")
            then(message.get("result"), None if error is None else ControlError(error["type"], error["message"]))

    def event(self, kind: str, text: str, ids: Any = None, **data: Any) -> None:
        """Tell the supervisor of something that has happened: `text` for people, plain `data` for programs.

        `ids`, a map of epochs and numbers, goes into the log, to find the messages that it rests on by.
        """
        self._send({"type": "event", "event": kind, "text": text, "data": data, "ids": dict(ids or {})})

    def _send(self, message: Mapping[str, Any]) -> None:
        data = pack_map(message, MAX_REPLY)
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            self.log.warning("supervisor_not_listening")

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def failed(self, message: str, *, fatal: bool, again: bool) -> None:
        """Tell the supervisor why this process ends.

        `fatal` if it cannot work as configured; `again` if it may all the same when the daemon is started later.
        """
        self._send({"type": "fatal" if fatal else "crash", "message": message, "again": again})

    def close(self) -> None:
        """Close the sockets, each with its own linger; what was sent to the supervisor still leaves."""
        self.context.destroy()


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent dies; exits if it is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def resident_mb(pid: int) -> float:
    """Return the memory that a process holds [10^6 bytes]; 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE * 1e-6
    except (OSError, IndexError):
        return 0.0


def kernel_state(pid: int) -> str:
    """Return what the kernel says that a process does, such as "sleeping" or "disk sleep"; empty if it has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((line.partition("(")[2].rstrip(")") for line in status.splitlines() if line.startswith("State:")), "")


def is_own(error: Exception) -> bool:
    """Tell whether an error's class is the project's own, and its message thus made for users."""
    return f"{type(error).__module__}.".startswith(_OWN)


def is_fatal(error: Exception) -> bool:
    """Tell whether an error lies in the configuration or the files it names: a restart would not help."""
    return is_own(error) and isinstance(error, (FatalError, ValueError, FileNotFoundError))


def run_worker() -> None:
    """Run a process: parse the arguments, call the role's `main`, turn its failure into a log line and an exit code.

    The exit code is 0 after an orderly end, 2 if the process cannot work as configured, 1 otherwise.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--arm")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which ends all in order
    faulthandler.register(WHERE)
    place(arguments.role)  # before there are threads, which inherit it
    child = Worker(arguments.role, arguments.arm, arguments.runtime, arguments.epoch, arguments.restarts)
    code = 0
    try:
        importlib.import_module(MODULES[child.role]).main(child)
    except Exception as error:
        code = 2 if is_fatal(error) else 1
        if is_own(error):
            child.log.error("failed", reason=str(error))
        else:
            child.log.exception("crashed")
        child.failed(str(error) or type(error).__name__, fatal=code == 2, again=may_pass(error))
    finally:
        child.close()
    child.log.info("ended", code=code)
    sys.exit(code)
