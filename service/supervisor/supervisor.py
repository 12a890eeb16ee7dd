"""Supervisor: starts the processes, restarts those that fail, and answers on the control socket.

It runs in the process of `thetad serve`, in one thread. A process that ends, or is silent for longer than
`daemon.hang_s`, is restarted after a delay that grows with its failures; so is the gateway or the web process when
clients have made it larger than `daemon.memory_mb`. systemd, where it has started the supervisor, watches it: each turn
of the loop notifies it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import zmq

from drivers.driver import DriverConfigError, DriverError
from drivers.files.atomic_write import write_text
from service.config.load import Config
from service.io.log import configure, get_log
from service.io.sockets import readable
from service.protocol.control import VERBS, ControlError, Request, encode_result
from service.protocol.messages import MAX_REPLY, WireError, pack_map
from service.protocol.worker_messages import GATEWAY_PORTS, decode_worker_message
from service.supervisor._boot_counter import BootCounter
from service.supervisor._control_server import TOO_MANY_FILES, ControlSocket
from service.supervisor._preflight import check_reachable
from service.supervisor._routing import Routing
from service.supervisor._systemd_notify import ServiceManager
from service.supervisor._worker_handle import LOG_NS, MAX_START_FAILURES, WorkerHandle, scheduled_ns
from service.supervisor.capabilities import Capabilities, capability_names
from service.supervisor.directories import StateLock, make_runtime
from service.worker.resources import files_used_up, kernel_state, resident_mb, usage
from service.worker.worker import STACK_DUMP_SIGNAL

POLL_MS = 100
LAST_MESSAGES_S = 0.5
STACK_DUMP_NS = 200_000_000  # for a process that hangs to log its stacks
MEMORY_NS = 500_000_000  # between two looks at the memory
STATUS_NS = 500_000_000  # between two messages to the web process, whose health answers rest on them
#: Order in which the roles stop, and the time for each stage [s]. An arm comes to rest first, then its drives.
STOP_STAGES = ((("acquisition", "jobs"), 5.0), (("estimator", "recorder"), 2.0), (("gateway", "web"), 0.9))
MAX_EVENTS = 1000  # kept for the jobs process, which writes the history
MAX_EVENT_KINDS = 200  # counted separately, several times as many as there are; the rest together
OTHER_EVENTS = "other"


class StartError(RuntimeError):
    """A daemon that could not be started, in the failed process's words; `again`: it may later, configured the same."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class Supervisor:
    """Runs a daemon until it is stopped.

    Raises `ConfigError`, `PortTakenError` or `AlreadyRunningError`: it cannot run as configured, or a second time.
    """

    def __init__(self, config: Config) -> None:
        self._capabilities = Capabilities()  # before there are threads
        configure(config.daemon.log_level)
        self.log = get_log("supervisor", daemon=config.daemon.name)
        self.config = config
        self.ready = False
        self._manager = ServiceManager()
        if self._capabilities.withheld:
            self.log.info("rights_for_acquisition_alone", capabilities=capability_names(self._capabilities.withheld))
        self._next_memory_ns = 0
        self._hang_ns = round(config.daemon.hang_s * 1e9)
        self._stop_reason = ""
        self._failure = ""
        self._again = True
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._event_counts: Counter[str] = Counter()
        self._next_status_ns = self._next_suppressed_ns = 0
        self._stopping = False
        self._began_ns = time.monotonic_ns()
        self._cleanup = contextlib.ExitStack()
        try:
            self._cleanup.callback(StateLock(config.state_dir).release)
            self._boot_counter = BootCounter(config.state_dir / "epoch")
            self.runtime = make_runtime(config)
            self._cleanup.callback(shutil.rmtree, self.runtime.directory, ignore_errors=True)
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._cleanup.callback(context.destroy, linger=500)
            self._context = context
            self._control = ControlSocket(context, config, self._dispatch, self.log)
            self._set_ports(control_port=self._control.port)
            self._private, self._urgent = (
                self._bind(endpoint) for endpoint in (self.runtime.supervisor, self.runtime.urgent)
            )
        except BaseException:
            self._cleanup.close()
            raise
        self.processes = [WorkerHandle("gateway", None), WorkerHandle("jobs", None)]
        if config.daemon.serves_http:
            self.processes.append(WorkerHandle("web", None))
        for arm in config.arm:
            self.processes += [WorkerHandle("estimator", arm.name), WorkerHandle("acquisition", arm.name)]
            if arm.recorder is not None:
                self.processes.append(WorkerHandle("recorder", arm.name))
        self._routing = Routing(
            self.processes, self._private, self._control.reply, tuple(arm.name for arm in config.arm), config.daemon,
            self._urgent,
        )  # fmt: skip
        self._routing.on_stop = self._control.overtake

    def _bind(self, endpoint: str) -> zmq.Socket[bytes]:
        """Return a socket to the processes, which says so where it cannot send."""
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.bind(endpoint)
        return socket

    def _set_ports(self, **ports: int) -> None:
        """Fix the real ports, so that a restarted gateway binds the same; the file is for `thetad doctor`."""
        self.config = self.config.model_copy(update={"daemon": self.config.daemon.model_copy(update=ports)})
        with contextlib.suppress(OSError):
            write_text(self.runtime.config, self.config.model_dump_json())

    @property
    def endpoints(self) -> dict[str, str]:
        """Public endpoints; final once the daemon is ready."""
        daemon = self.config.daemon
        ports = {"frames": daemon.frames_port, "estimates": daemon.estimates_port, "control": daemon.control_port}
        ports |= {} if daemon.mirror_port is None else {"mirror": daemon.mirror_port}
        found = {name: f"tcp://{daemon.bind}:{port}" for name, port in ports.items()}
        known = daemon.serves_http and daemon.http_port  # a free port is known when the web process has bound it
        return found | ({"http": f"http://{daemon.http_bind}:{daemon.http_port}"} if known else {})

    # ------------------------------------------------------------ the loop

    def run(self, on_ready: Callable[[dict[str, str]], None]) -> None:
        """Start everything, call `on_ready` with the endpoints, and work until stopped.

        Raises `StartError` if an arm's hardware cannot be opened, a process cannot work as configured, or is not ready
        within `daemon.start_s`.
        """
        with self._cleanup, self._signals() as wake:
            for arm in self.config.arm:
                try:
                    with self._capabilities.used():
                        check_reachable(arm)
                except DriverError as error:
                    raise StartError(str(error), again=not isinstance(error, DriverConfigError)) from error
            try:
                while not self._stop_reason:
                    self._keep_running()
                    self._limit_memory()
                    self._control.limit_memory()
                    self._wait(wake)
                    self._routing.expire()
                    self._forward_events()
                    self._tell_manager()
                    self._send_status()
                    if not self.ready and all(self._settled(process) for process in self.processes):
                        self.ready = True
                        seconds = round((time.monotonic_ns() - self._began_ns) * 1e-9, 3)
                        self.log.info("ready", endpoints=self.endpoints, seconds=seconds)
                        self._record_event("daemon_ready", f"all processes ready after {seconds:.1f} s")
                        self._manager.ready()
                        on_ready(self.endpoints)
                    if self.ready and self.config.daemon.exit_at_end and self._drained():
                        self._stop_reason = "all sources have ended"
            finally:
                self._stop_all()
        if self._failure:
            raise StartError(self._failure, again=self._again)

    def _settled(self, process: WorkerHandle) -> bool:
        """Return whether the daemon need not wait for a process: it is ready, or has failed and may be absent."""
        return process.state == "ready" or (process.restarts > 0 and self._may_be_absent(process))

    def _may_be_absent(self, process: WorkerHandle) -> bool:
        """Return whether the daemon starts without a process: jobs, and HTTP where it is not required.

        It is restarted meanwhile like any other.
        """
        return process.role == "jobs" or self._is_optional(process)

    def _is_optional(self, process: WorkerHandle) -> bool:
        return process.role == "web" and self.config.daemon.http is not True

    def _tell_manager(self) -> None:
        others = ", ".join(f"{process.name} {process.state}" for process in self.processes if process.state != "ready")
        self._manager.status(others or f"{len(self.processes)} processes ready")
        if self.ready:
            self._manager.alive(time.monotonic_ns())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Let SIGTERM and SIGINT wake the loop and stop it."""

        def stop(number: int, _frame: FrameType | None) -> None:
            self._stop_reason = self._stop_reason or signal.Signals(number).name

        reader, writer = socket.socketpair()
        with reader, writer:
            reader.setblocking(False)
            writer.setblocking(False)
            old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            old = [(number, signal.signal(number, stop)) for number in numbers]
            try:
                yield reader
            finally:
                signal.set_wakeup_fd(old_fd)
                for number, handler in old:
                    signal.signal(number, handler)

    def _wait(self, wake: socket.socket) -> None:
        poller = zmq.Poller()
        poller.register(wake, zmq.POLLIN)
        self._control.register(poller)
        poller.register(self._private, zmq.POLLIN)
        for process in self.processes:
            if process.pidfd >= 0:
                poller.register(process.pidfd, zmq.POLLIN)
        events = dict(poller.poll(0 if self._control.busy else POLL_MS))
        if wake.fileno() in events or wake in events:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
        self._receive_private()
        for process in self.processes:
            if process.pidfd in events:
                self._on_exit(process)
        self._control.serve()

    def _receive_private(self) -> None:
        while readable(self._private):
            parts = self._private.recv_multipart()
            process = next((p for p in self.processes if p.process is not None and p.identity == parts[0]), None)
            if process is None or len(parts) != 2:
                continue
            try:
                message = decode_worker_message(parts[1], process.role)
                if message["type"] in ("beat", "ready"):
                    process.on_info(message["info"])
            except WireError as error:  # an unreadable message must not end all processes
                count = process.count_unreadable(time.monotonic_ns(), str(error))
                if count:
                    self.log.error(
                        "message_unreadable", name=process.name, pid=process.pid, reason=str(error), count=count
                    )
            else:
                self._on_message(process, message)

    # ------------------------------------------------------------ processes

    def _keep_running(self) -> None:
        now_ns = time.monotonic_ns()
        limits = self.config.daemon
        for process in self.processes:
            if process.state == "waiting" and now_ns >= process.next_start_ns:
                try:
                    with self._capabilities.lent() if process.role == "acquisition" else contextlib.nullcontext():
                        process.start(self.runtime.directory, self._boot_counter.next(), now_ns, self.config)
                except OSError as error:  # no file, memory or process to be had for the moment
                    if not self.ready:
                        raise  # systemd tries the whole again
                    process.put_off(now_ns)
                    self.log.error("process_not_started", name=process.name, reason=error.strerror)
                    continue
                self.log.info("process_started", name=process.name, pid=process.pid, restarts=process.restarts)
            elif process.state == "ready" and now_ns - process.heartbeat_ns > self._hang_ns:
                self._on_silence(process, now_ns)
            elif process.startup_deadline_ns is not None and now_ns > process.startup_deadline_ns:
                process.startup_deadline_ns = None
                self._kill(process, process.failure_text)
                if not self.ready:
                    self._fail(process.failure_text)
            elif process.state == "starting" and process.hangs(now_ns, round(limits.start_s * 1e9)):
                self._kill(process, f"not ready within {limits.start_s:g} s")
        if not self.ready and now_ns - self._began_ns > limits.start_s * 1e9:
            late = [f"{p.name} ({p.last_error or p.state})" for p in self.processes if p.state != "ready"]
            self._fail(f"not ready within daemon.start_s = {limits.start_s:g} s: {', '.join(late)}")

    def _limit_memory(self) -> None:
        """Free memory and files that subscribers occupy by disconnecting them; they reconnect by themselves."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_memory_ns:
            return
        self._next_memory_ns = now_ns + MEMORY_NS
        limit_mb = self.config.daemon.memory_mb
        for process in self.processes:
            if process.role not in ("gateway", "web") or process.state != "ready":
                continue
            if resident_mb(process.pid) > limit_mb:
                self._kill(process, f"clients make it larger than {limit_mb:g} MB")
            elif files_used_up(process.pid):
                self._kill(process, TOO_MANY_FILES)

    def _on_silence(self, process: WorkerHandle, now_ns: int) -> None:
        """Have a process that hangs log its stacks, if it still can, and kill it; one that is starved is told of."""
        self._receive_private()  # after a delay of the supervisor itself, heartbeats are waiting
        if process.killed or now_ns - process.heartbeat_ns <= self._hang_ns:
            return
        if not process.hangs(now_ns, self._hang_ns):
            self._on_starved(process, now_ns)
        elif not process.stack_requested_ns:
            process.stack_requested_ns, process.ran_at_request_ns = now_ns, scheduled_ns(process.pid)[0]
            self.log.warning("process_silent", name=process.name, pid=process.pid)
            process.send_signal(STACK_DUMP_SIGNAL)
        elif now_ns - process.stack_requested_ns >= STACK_DUMP_NS:
            if process.waits_for_processor():
                self._on_starved(process, now_ns)
                return
            why = f"; its last message that could not be read: {process.unreadable_reason}"
            reason = f"silent for more than {self.config.daemon.hang_s:g} s ({kernel_state(process.pid)})"
            self._kill(process, reason + (why if process.unreadable_reason else ""))

    def _on_starved(self, process: WorkerHandle, now_ns: int) -> None:
        if process.starved_event_due(now_ns):
            text = f"{process.name}: silent for {(now_ns - process.heartbeat_ns) * 1e-9:.0f} s, as it gets no processor"
            remedy = "run less beside the daemon, keep jobs off a processor (jobs.processors), or use a faster computer"
            self._record_event("process_starved", f"{text}, and not restarted; {remedy}", process.arm)

    def _kill(self, process: WorkerHandle, reason: str) -> None:
        if process.killed:  # on a busy machine its end takes many turns of the loop
            return
        process.end_reason, process.killed = reason, True
        self.log.error("process_killed", name=process.name, pid=process.pid, reason=reason)
        process.send_signal(signal.SIGKILL)

    def _fail(self, message: str, *, again: bool = True) -> None:
        if not self._failure:
            self._failure, self._again = message, again
        self._stop_reason = self._stop_reason or "failed to start"

    def _on_exit(self, process: WorkerHandle) -> None:
        self._await_last_messages(process)
        pid = process.pid
        code = process.on_exit(time.monotonic_ns())
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        repeated, process.last_error = process.last_error, process.end_reason or reason
        self.log.warning(
            "process_ended", name=process.name, pid=pid, reason=reason, last_error=process.last_error,
            restarts=process.restarts,
        )  # fmt: skip
        if not (self._is_optional(process) and process.last_error == repeated):  # its port may be in use for months
            self._record_event("process_ended", f"{process.name} ended: {process.last_error}", process.arm)
        if not self.ready and process.restarts >= MAX_START_FAILURES and not self._may_be_absent(process):
            self._fail(f"{process.name} failed {process.restarts} times: {process.last_error}")
        self._routing.on_exit(process)

    def _await_last_messages(self, process: WorkerHandle) -> None:
        """Receive the last messages of a process that failed by itself (not killed): they may arrive after its end."""
        self._receive_private()
        failed = process.process is not None and process.process.wait() > 0
        deadline = time.monotonic() + LAST_MESSAGES_S
        while failed and not process.end_reason and (left := deadline - time.monotonic()) > 0.0:
            self._private.poll(int(left * 1000) + 1)
            self._receive_private()

    def _on_message(self, process: WorkerHandle, message: dict[str, Any]) -> None:
        kind = message["type"]
        now_ns = time.monotonic_ns()
        if kind == "beat":
            process.on_heartbeat(now_ns)
        elif kind == "ready":
            process.on_ready(now_ns)
            if process.role == "gateway":
                self._set_ports(**{key: port for key, port in message["info"].items() if key in GATEWAY_PORTS})
            elif process.role == "web":
                self._set_ports(http_port=message["info"]["http_port"])
            self._routing.repeat(process)
            self.log.info("process_ready", name=process.name, seconds=round((now_ns - process.started_ns) * 1e-9, 3))
        elif kind == "promise":
            process.startup_deadline_ns = now_ns + round(message["within_s"] * 1e9)
            process.failure_text = message["otherwise"]
        elif kind == "event":
            arm = process.arm or message["data"].get("arm")  # the jobs process reports events of any arm
            self._record_event(message["event"], message["text"], arm, message["data"], message["ids"])
        elif kind == "ask":
            self._routing.on_ask(process, message)
        elif kind in ("fatal", "crash"):
            process.end_reason = message["message"]
            if kind == "fatal" and not self.ready and not self._is_optional(process):
                self._fail(process.end_reason, again=message["again"])
        elif kind == "reply":
            self._routing.on_reply(process, message)

    def _record_event(
        self, kind: str, text: str, arm: str | None = None, data: dict[str, Any] | None = None, ids: Any = None
    ) -> None:
        """Keep an event for the history, and log it with the ids of the messages it rests on."""
        known = {key: value for key, value in (data or {}).items() if key in ("model", "job", "number")}
        self.log.info("event", event_kind=kind, text=text, arm=arm, **known, **(ids or {}))
        known_kind = kind in self._event_counts or len(self._event_counts) < MAX_EVENT_KINDS
        self._event_counts[kind if known_kind else OTHER_EVENTS] += 1
        event = {"type": "event", "t_ns": time.time_ns(), "event": kind, "text": text, "arm": arm, "data": data or {}}
        self._events.append(event)

    def _forward_events(self) -> None:
        """Send the events to the jobs process, which writes the history."""
        jobs = next(process for process in self.processes if process.role == "jobs")
        while self._events and jobs.state == "ready":
            try:
                self._private.send_multipart([jobs.identity, pack_map(self._events[0], MAX_REPLY)], zmq.NOBLOCK)
            except zmq.ZMQError:  # it does not read, or has just ended: later
                return
            self._events.popleft()

    def _send_status(self) -> None:
        """Send the daemon's status to the web process; its arrival also shows that this loop runs."""
        now_ns = time.monotonic_ns()
        web = next((process for process in self.processes if process.role == "web"), None)
        if web is None or web.state != "ready" or now_ns < self._next_status_ns:
            return
        self._next_status_ns = now_ns + STATUS_NS
        message = {"type": "status", "monotonic_ns": now_ns, "stopping": self._stopping, **self._status()}
        try:
            data = pack_map(message, MAX_REPLY)
        except WireError as error:
            self._log_suppressed_status(now_ns, error)
            return
        with contextlib.suppress(zmq.ZMQError):  # the next one says the same
            self._private.send_multipart([web.identity, data], zmq.NOBLOCK)

    def _log_suppressed_status(self, now_ns: int, error: WireError) -> None:
        """Log, now and then, that the status is too large to be sent."""
        if now_ns >= self._next_suppressed_ns:
            self._next_suppressed_ns = now_ns + LOG_NS
            self.log.error("status_too_large", reason=str(error))

    def _drained(self) -> bool:
        """Return whether every source has ended and every consumer has processed its frames."""
        wanted = {"acquisition": "ended", "estimator": "drained", "recorder": "drained"}
        for process in self.processes:
            state = process.info.get("state")
            if process.role == "recorder" and state == "off":
                continue
            if process.role in wanted and (process.state != "ready" or state != wanted[process.role]):
                return False
        return True

    def _stop_all(self) -> None:
        self.log.info("stopping", reason=self._stop_reason or "error")
        self._stopping, self._next_status_ns = True, 0
        self._control.refuse_all()
        try:
            self._send_status()  # the last one: what follows only waits for other processes
            self._manager.stopping()
            self._manager.status(f"stopping: {self._stop_reason or 'error'}")
            self._routing.stop()
        except Exception:  # whatever it is, arms come to rest and recordings are closed
            self.log.exception("stop_not_told")
        for roles, seconds in STOP_STAGES:
            stage = [process for process in self.processes if process.role in roles]
            for process in stage:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + seconds
            for process in stage:
                self._await_end(process, deadline)
        self.log.info("stopped", seconds_up=round((time.monotonic_ns() - self._began_ns) * 1e-9, 3))

    def _await_end(self, process: WorkerHandle, deadline: float) -> None:
        if process.process is None:
            return
        poller = zmq.Poller()
        poller.register(process.pidfd, zmq.POLLIN)
        if not poller.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            self.log.error("process_killed", name=process.name, pid=process.pid, reason="did not stop in time")
            process.send_signal(signal.SIGKILL)
        code = process.on_exit(time.monotonic_ns())
        process.state = "stopped"
        self.log.info("process_stopped", name=process.name, code=code)

    # ------------------------------------------------------------ control

    def _dispatch(self, route: list[bytes], request: Request) -> None:
        target = VERBS[request.verb].target
        if target != "supervisor":
            self._routing.forward(request, target, route=route)
            return
        if request.verb == "ping":
            result: dict[str, Any] = {"pong": True, "t_host_ns": time.monotonic_ns()}
        elif request.verb == "status":
            result = self._status()
        else:
            self._stop_reason = "told to by the control socket"
            result = {"stopping": True}
        try:
            payload = encode_result(request.id, result)
        except WireError as error:
            self._log_suppressed_status(time.monotonic_ns(), error)
            raise ControlError("failed", f"{request.verb}: {error}") from error
        self._control.reply(route, payload)

    def _status(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        return {
            "daemon": {
                "name": self.config.daemon.name, "pid": os.getpid(), "ready": self.ready,
                "uptime_s": (now_ns - self._began_ns) * 1e-9, "endpoints": self.endpoints,
                "state_dir": str(self.config.state_dir), "python": sys.version.split()[0], "usage": usage(),
            },
            "arms": [arm.name for arm in self.config.arm],
            "configuration": {
                arm.name: {"driver_sha256": arm.driver_sha256, "permit_max_s": arm.safety.permit_max_s}
                for arm in self.config.arm
            },
            "processes": [process.describe(now_ns) for process in self.processes],
            "control": self._control.describe(),
            "events": dict(self._event_counts),
        }  # fmt: skip
