"""Base of every process under the supervisor: start, heartbeat, requests, shutdown.

A worker is started as `python -m service.worker.entry ROLE --runtime DIR --parent PID --epoch N [--arm NAME]` and finds
the configuration in `--config FILE`, by default `DIR/config.json`. Over one private socket to the supervisor it reports
when it is ready, sends a heartbeat with its counters, and answers requests. It ends on SIGTERM, and without supervisor.
"""

import argparse
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
from service.io.log import Log, configure, crash_fd, get_log
from service.io.sockets import readable
from service.protocol import worker_messages
from service.protocol.control import OVERTAKEN, STOPPING, ControlError, Refusal, Request
from service.protocol.json_values import shortened
from service.protocol.messages import MAX_DEPTH, MAX_REPLY, WireError, check_json, pack_map
from service.protocol.transient_errors import is_own, is_transient
from service.worker.resources import apply_scheduling, die_with_parent, release_memory, usage

#: The module of each role; its `main(worker)` is the work of the process.
MODULES = {
    "gateway": "service.gateway.process", "acquisition": "service.acquisition.process",
    "estimator": "service.estimator.process", "recorder": "service.recorder.process", "jobs": "service.jobs.dispatch",
    "web": "service.web.server",
}  # fmt: skip
ROLES = tuple(MODULES)
#: The module that a process is started with.
ENTRY = "service.worker.entry"

MESSAGES_A_TURN = 16
HEARTBEAT_NS = 250_000_000
USAGE_NS = 1_000_000_000  # between two looks at the usage, which take 50 us each
RELEASE_MEMORY_NS = 60_000_000_000  # between two releases of free memory
POLL_MS = 100  # longest wait of a worker's loop, and delay until it notices that it is to stop

#: Frames that a consumer may be behind before any is lost.
FRAME_QUEUE = 20_000

#: Makes a process log the stacks of its threads and go on.
STACK_DUMP_SIGNAL = signal.SIGUSR1

#: Takes the arguments of a request; returns the result, or None to answer later.
Handler: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
#: Takes the answer to a request of this process: a result, or why there is none.
AnswerHandler: TypeAlias = Callable[[Mapping[str, Any] | None, ControlError | None], None]


class FatalError(Exception):
    """A worker cannot do its work as configured; the daemon does not start."""


class SourceError(FatalError):
    """An arm's bus or controller cannot be opened; a later start may succeed."""

    again = True


@dataclass(frozen=True)
class Runtime:
    """Paths and endpoints of the private sockets."""

    directory: Path

    @property
    def config(self) -> Path:
        """The configuration in use, written by the supervisor."""
        return self.directory / "config.json"

    @property
    def supervisor(self) -> str:
        """Endpoint of the supervisor."""
        return self._ipc("supervisor")

    @property
    def urgent(self) -> str:
        """Endpoint of the supervisor for requests that an acquisition reads in every cycle."""
        return self._ipc("urgent")

    def frames(self, arm: str) -> str:
        """Endpoint of an arm's frames and of the messages about them, in order."""
        return self._ipc(f"{arm}.frames")

    def results(self, arm: str, role: str) -> str:
        """Endpoint of everything else that a process publishes."""
        return self._ipc(f"{arm}.{role}")

    def _ipc(self, name: str) -> str:
        return f"ipc://{self.directory / name}"


def process_name(role: str, arm: str | None) -> str:
    """Return the name of a process in logs and status: `<arm>/<role>`, or the role alone."""
    return role if arm is None else f"{arm}/{role}"


class Worker:
    """A process under the supervisor, seen from inside.

    `epoch` is larger than those of all processes started before; `restarts` counts the restarts of this one.
    """

    def __init__(
        self, role: str, arm_name: str | None, runtime: Path, epoch: int = 0, restarts: int = 0, config: str = ""
    ) -> None:  # fmt: skip
        self.role = role
        self.epoch, self.restarts = epoch, restarts
        self.runtime = Runtime(runtime)
        self.config = Config.model_validate_json(Path(config or self.runtime.config).read_text(encoding="utf-8"))
        self.name = process_name(role, arm_name)
        self.arm_name = arm_name
        self.stopping = False
        configure(self.config.daemon.log_level)
        self.log: Log = get_log(role, epoch=self.epoch, **({} if arm_name is None else {"arm": arm_name}))
        self.context = zmq.Context()
        self.socket = self._connect(self.runtime.supervisor)
        self._urgent = self._connect(self.runtime.urgent) if role == "acquisition" else None
        self._next_beat_ns = self._next_usage_ns = 0
        self._next_release_ns = time.monotonic_ns() + RELEASE_MEMORY_NS
        #: Id of the request being handled; a handler that answers later keeps it.
        self.request_id = 0
        self.stop_id = 0  # of the last request to stop
        self.failures = 0  # requests that ended in an error which is no refusal
        self._asked: dict[int, AnswerHandler] = {}
        self._next_ask = 1

    def _connect(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, f"{self.name}#{os.getpid()}".encode())
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        socket.setsockopt(zmq.LINGER, 500)
        socket.connect(endpoint)
        return socket

    @property
    def arm(self) -> ArmConfig:
        """The arm that this process works for."""
        if self.arm_name is None:
            raise ConfigError(f"{self.name} works for no arm")
        return self.config.find(self.arm_name)

    def ready(self, **info: Any) -> None:
        """Report that work can begin; from now on SIGTERM causes an orderly end."""
        signal.signal(signal.SIGTERM, self._on_term)
        self._send(worker_messages.Ready({"epoch": self.epoch, **info}))

    def set_startup_deadline(self, within_s: float, failure_text: str) -> None:
        """Have the supervisor end this process, for the reason `failure_text`, if it is not ready in time.

        For calls into libraries that neither return nor can be interrupted when their far end goes away.
        """
        self._send(worker_messages.Promise(within_s, failure_text))

    def heartbeat_due(self, now_ns: int) -> bool:
        """Return whether a heartbeat is due at `now_ns` of CLOCK_MONOTONIC."""
        return now_ns >= self._next_beat_ns

    def heartbeat(self, now_ns: int, info: Mapping[str, Any]) -> None:
        """Send a heartbeat with state and counters, and now and then with the resource usage.

        Once a minute free memory is released.
        """
        self._next_beat_ns = now_ns + HEARTBEAT_NS
        content = dict(info)
        if now_ns >= self._next_usage_ns:
            self._next_usage_ns = now_ns + USAGE_NS
            content["usage"] = usage()
        if now_ns >= self._next_release_ns and self.role != "acquisition":  # which must not miss a cycle
            self._next_release_ns = now_ns + RELEASE_MEMORY_NS
            release_memory()
        self._send(worker_messages.Beat(content))

    def serve(self, handlers: Mapping[str, Handler], on_notice: Callable[[Any], None] | None = None) -> None:
        """Answer the requests that have arrived; a handler raises `ControlError` to refuse.

        A handler that returns None answers later, with `reply` or `refuse` and the `request_id` of its call.
        `on_notice` takes what was not asked for: an `Event` goes to the jobs process, a `Status` to the web process.
        """
        for _ in range(MESSAGES_A_TURN):  # a flood of requests must not keep the process from its work
            if not readable(self.socket):
                return
            message = worker_messages.decode_supervisor_message(self.socket.recv())
            if isinstance(message, Request):
                self._handle(message, handlers)
            elif isinstance(message, worker_messages.Answer):
                then, error = self._asked.pop(message.id, None), message.error
                if then is not None:
                    then(message.result, None if error is None else ControlError(error.type, error.message))
            elif on_notice is not None:
                on_notice(message)

    def serve_urgent(self, handlers: Mapping[str, Handler]) -> None:
        """Answer all requests that must not wait: few, because the supervisor has one of each under way at a time."""
        while self._urgent is not None and readable(self._urgent):
            message = worker_messages.decode_supervisor_message(self._urgent.recv())
            if isinstance(message, Request):
                self._handle(message, handlers)

    def _handle(self, request: Request, handlers: Mapping[str, Handler]) -> None:
        self.request_id = request.id
        if request.verb in STOPPING:
            self.stop_id = max(self.stop_id, request.id)
        if request.verb in OVERTAKEN and request.id < self.stop_id:
            text = f"{request.verb}: a request to stop the arm came after it"
            self.refuse(request.id, ControlError("unavailable", text))
            return
        try:
            result = handlers[request.verb](request.args)
        except ControlError as error:
            self.refuse(request.id, error)
        except Exception as error:
            # A process that ends lets the drives stop by themselves, which a stop that failed has to come to.
            if request.verb in STOPPING or isinstance(error, FatalError):
                raise
            self._on_failure(request, error)
        else:
            if result is not None:
                self.reply(request.id, result)

    def _on_failure(self, request: Request, error: Exception) -> None:
        """Refuse a request that could not be handled: one client's numbers end nobody else's process."""
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:
            self.log.exception("request_failed", verb=request.verb, count=self.failures)
        text = f"{request.verb}: {str(error) or type(error).__name__}"
        self.refuse(request.id, ControlError("failed", text))

    def reply(self, id: int, result: Mapping[str, Any]) -> None:
        """Answer the request `id` of the supervisor."""
        message = worker_messages.Reply(id, dict(result))
        try:
            check_json(message.result or {}, MAX_DEPTH - 1)  # what the supervisor could not read it could not answer
            self._send(message)
        except WireError as error:
            self.refuse(id, ControlError("failed", str(error)))

    def refuse(self, id: int, error: ControlError) -> None:
        """Answer the request `id` of the supervisor with an error; a long text is shortened."""
        self._send(worker_messages.Reply(id, error=Refusal(error.type, shortened(error.message))))

    def ask(self, verb: str, args: Mapping[str, Any], then: AnswerHandler, role: str = "") -> None:
        """Send a request to another process of this daemon; `serve` calls `then` when the answer comes.

        `role` is the role of the client, for a process that asks on behalf of others.
        """
        self._asked[self._next_ask] = then
        self._send(worker_messages.Ask(self._next_ask, verb, dict(args), role))
        self._next_ask += 1

    def event(self, kind: str, text: str, ids: Any = None, **data: Any) -> None:
        """Report an event to the supervisor: `text` for people, plain `data` for programs.

        `ids`, a map of epochs and numbers, goes into the log, to find the messages that the event rests on.
        """
        self._send(worker_messages.Event(kind, text, data, dict(ids or {})))

    def _send(self, message: worker_messages.WorkerMessage) -> None:
        data = pack_map(message, MAX_REPLY)
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            self.log.warning("supervisor_not_listening")

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def failed(self, message: str, *, fatal: bool, again: bool) -> None:
        """Report to the supervisor why this process ends.

        `fatal` if it cannot work as configured; `again` if a later start of the daemon may succeed nevertheless.
        """
        self._send((worker_messages.Fatal if fatal else worker_messages.Crash)(message, again))

    def close(self) -> None:
        """Close the sockets, each with its own linger; messages to the supervisor still leave."""
        self.context.destroy()


def is_fatal(error: Exception) -> bool:
    """Return whether an error lies in the configuration or the files it names: a restart would not help."""
    return is_own(error) and isinstance(error, (FatalError, ValueError, FileNotFoundError))


def run_worker() -> None:
    """Run a process: parse the arguments, call the role's `main`, turn a failure into a log line and an exit code.

    The exit code is 0 after an orderly end, 2 if the process cannot work as configured, 1 otherwise.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--arm")
    parser.add_argument("--config", default="")
    a = parser.parse_args()
    die_with_parent(a.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which ends all in order
    faulthandler.register(STACK_DUMP_SIGNAL, crash_fd())
    apply_scheduling(a.role)  # before there are threads, which inherit it
    worker = Worker(a.role, a.arm, a.runtime, a.epoch, a.restarts, a.config)
    code = 0
    try:
        importlib.import_module(MODULES[worker.role]).main(worker)
    except Exception as error:
        code = 2 if is_fatal(error) else 1
        if is_own(error):
            worker.log.error("failed", reason=str(error))
        else:
            worker.log.exception("crashed")
        worker.failed(str(error) or type(error).__name__, fatal=code == 2, again=is_transient(error))
    finally:
        worker.close()
    worker.log.info("ended", code=code)
    sys.exit(code)
