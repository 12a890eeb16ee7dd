"""Supervisor: starts the processes, restarts those that fail, and answers on the control socket.

It runs in the process of `thetad serve`, in one thread. A process that ends, or is silent for longer than
`daemon.hang_s`, is restarted after a delay that grows with its failures; so is the gateway or the web process when
clients have made it larger than `daemon.memory_mb`. systemd, where it has started the supervisor, watches it: each turn
of the loop notifies it.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import zmq

from drivers.ads.config import AdsConfig
from drivers.ads.link.port_probe import probe
from drivers.driver import DriverConfigError, DriverError
from drivers.ethercat.bus.interface import check_free
from drivers.ethercat.config import EthercatConfig
from drivers.files.atomic_write import write_text
from service.config.load import ArmConfig, Config
from service.io.log import configure, get_log
from service.io.sockets import readable
from service.protocol import worker_messages
from service.protocol.control import VERBS, ControlError, Request, encode_result
from service.protocol.json_values import shortened
from service.protocol.messages import MAX_REPLY, WireError, pack_map
from service.supervisor._control_server import ControlSocket
from service.supervisor._events import Events
from service.supervisor._routing import Routing
from service.supervisor._systemd_notify import ServiceManager
from service.supervisor._worker_handle import LOG_NS, WorkerHandle
from service.supervisor._worker_pool import WorkerPool
from service.supervisor.capabilities import Capabilities, capability_names
from service.supervisor.directories import StateLock, make_runtime
from service.worker.resources import keep_priority_from_children, raise_priority, usage

POLL_MS = 100
USAGE_NS = 100_000_000  # between two looks at the resources of this process, which cost as much as the rest of a status
STATUS_NS = 500_000_000  # between two messages to the web process, whose health answers rest on them


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
        self._events = Events(self.log)
        self._manager = ServiceManager()
        if self._capabilities.withheld:
            self.log.info("rights_for_acquisition_alone", capabilities=capability_names(self._capabilities.withheld))
        self._stop_reason = ""
        self._next_status_ns = self._next_suppressed_ns = self._next_usage_ns = 0
        self._usage: dict[str, float] = {}
        self._stopping = False
        self._cleanup = contextlib.ExitStack()
        try:
            self._cleanup.callback(StateLock(config.state_dir).release)
            self.runtime = make_runtime(config)
            self._cleanup.callback(shutil.rmtree, self.runtime.directory, ignore_errors=True)
            raised = raise_priority()  # of the thread that ZeroMQ starts, too
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._cleanup.callback(context.destroy, linger=500)
            self._context = context
            self._control = ControlSocket(context, config, self._dispatch, self.log)
            self._set_ports(control_port=self._control.port)
            self._private, self._urgent = (
                self._bind(endpoint) for endpoint in (self.runtime.supervisor, self.runtime.urgent)
            )
            if raised:
                keep_priority_from_children()
        except BaseException:
            self._cleanup.close()
            raise
        self._pool = WorkerPool(
            config, self.runtime.directory, self._private, self._receive_private, self._capabilities, self._events,
            self.log,
        )  # fmt: skip
        self.processes = self._pool.handles
        for handle in self.processes:
            if handle.keeper is not None:
                self._cleanup.callback(handle.keeper.close)
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
                        _check_reachable(arm)
                except DriverError as error:
                    raise StartError(str(error), again=not isinstance(error, DriverConfigError)) from error
            try:
                while not (self._stop_reason or self._pool.failure):
                    self._pool.keep_running(self.config)
                    self._pool.limit_memory()
                    self._control.limit_memory()
                    self._wait(wake)
                    self._routing.expire()
                    self._events.forward(self._private, next(p for p in self.processes if p.role == "jobs"))
                    self._tell_manager()
                    self._send_status()
                    if not self._pool.ready and self._pool.settled:
                        self._pool.ready = True
                        seconds = round((time.monotonic_ns() - self._pool.began_ns) * 1e-9, 3)
                        self.log.info("ready", endpoints=self.endpoints, seconds=seconds)
                        self._events.record("daemon_ready", f"all processes ready after {seconds:.1f} s")
                        self._manager.ready()
                        on_ready(self.endpoints)
                    if self._pool.ready and self.config.daemon.exit_at_end and self._drained():
                        self._stop_reason = "all sources have ended"
            finally:
                self._stop_all()
        if self._pool.failure:
            raise StartError(self._pool.failure, again=self._pool.again)

    def _tell_manager(self) -> None:
        others = ", ".join(f"{process.name} {process.state}" for process in self.processes if process.state != "ready")
        self._manager.status(others or f"{len(self.processes)} processes ready")
        if self._pool.ready:
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
        readable(self._urgent)  # nobody sends there, but ZeroMQ frees what ended processes leave only at a look
        for process in self.processes:
            if process.pidfd in events:
                self._pool.on_exit(process)
                self._routing.on_exit(process)
        self._control.serve()

    def _receive_private(self) -> None:
        while readable(self._private):
            parts = self._private.recv_multipart()
            process = next((p for p in self.processes if p.process is not None and p.identity == parts[0]), None)
            if process is None or len(parts) != 2:
                continue
            try:
                message = worker_messages.decode_worker_message(parts[1], process.role)
                if isinstance(message, worker_messages.Beat):
                    process.on_info(message.info)
            except WireError as error:  # an unreadable message must not end all processes
                count = process.count_unreadable(time.monotonic_ns(), str(error))
                if count:
                    self.log.error(
                        "message_unreadable", name=process.name, pid=process.pid, reason=str(error), count=count
                    )
            else:
                self._on_message(process, message)

    def _on_message(self, process: WorkerHandle, message: worker_messages.WorkerMessage) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(message, worker_messages.Ready):
            process.on_ready(now_ns)
            if found := worker_messages.ports(process.role, message.info):
                self._set_ports(**found)
            self._routing.repeat(process)
            self.log.info("process_ready", name=process.name, seconds=round((now_ns - process.started_ns) * 1e-9, 3))
        elif isinstance(message, worker_messages.Beat):
            process.on_heartbeat(now_ns)
        elif isinstance(message, worker_messages.Reply):
            self._routing.on_reply(process, message)
        elif isinstance(message, worker_messages.Ask):
            self._routing.on_ask(process, message)
        elif isinstance(message, worker_messages.Event):
            arm = process.arm or message.data.get("arm")  # the jobs process reports events of any arm
            self._events.record(message.event, message.text, arm, message.data, message.ids)
        elif isinstance(message, worker_messages.Promise):
            process.startup_deadline_ns = now_ns + round(message.within_s * 1e9)
            process.failure_text = shortened(message.otherwise, worker_messages.MAX_WORDS)
        else:
            process.end_reason = shortened(message.message, worker_messages.MAX_WORDS)
            if isinstance(message, worker_messages.Fatal) and not (self._pool.ready or self._pool.is_optional(process)):
                self._pool.fail(process.end_reason, again=message.again)

    def _send_status(self) -> None:
        """Send the daemon's status to the web process; its arrival also shows that this loop runs."""
        now_ns = time.monotonic_ns()
        web = next((process for process in self.processes if process.role == "web"), None)
        if web is None or web.state != "ready" or now_ns < self._next_status_ns:
            return
        self._next_status_ns = now_ns + STATUS_NS
        message = worker_messages.Status(now_ns, self._stopping, **self._status())
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
        reason = self._stop_reason or ("failed to start" if self._pool.failure else "error")
        self.log.info("stopping", reason=reason)
        self._stopping, self._next_status_ns = True, 0
        self._control.refuse_all()
        try:
            self._send_status()  # the last one: what follows only waits for other processes
            self._manager.stopping()
            self._manager.status(f"stopping: {reason}")
            self._routing.stop()
        except Exception:  # whatever it is, arms come to rest and recordings are closed
            self.log.exception("stop_not_told")
        self._pool.stop()
        self.log.info("stopped", seconds_up=round((time.monotonic_ns() - self._pool.began_ns) * 1e-9, 3))

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
        if now_ns >= self._next_usage_ns:
            self._usage, self._next_usage_ns = usage(), now_ns + USAGE_NS
        return {
            "daemon": {
                "name": self.config.daemon.name, "pid": os.getpid(), "ready": self._pool.ready,
                "uptime_s": (now_ns - self._pool.began_ns) * 1e-9, "endpoints": self.endpoints,
                "state_dir": str(self.config.state_dir), "python": sys.version.split()[0], "usage": self._usage,
            },
            "arms": [arm.name for arm in self.config.arm],
            "configuration": {
                arm.name: {"driver_sha256": arm.driver_sha256, "permit_max_s": arm.safety.permit_max_s}
                for arm in self.config.arm
            },
            "processes": [process.describe(now_ns) for process in self.processes],
            "control": self._control.describe(),
            "events": dict(self._events.counts),
        }  # fmt: skip


def _check_reachable(arm: ArmConfig) -> None:
    """Check that an arm's hardware can be opened, before processes are started that take seconds to find out.

    Raises `DriverError` with the reason and the remedy.
    """
    if isinstance(arm.driver, EthercatConfig):
        check_free(arm.driver.interfaces)
    elif isinstance(arm.driver, AdsConfig):
        probe(arm.driver.target)
