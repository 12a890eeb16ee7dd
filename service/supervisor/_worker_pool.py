"""The processes of a daemon: their start, restarts, silence and memory, and the order in which they stop."""

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from drivers.files.atomic_write import atomic_write
from service.config.load import Config
from service.io.kept_positions import FILE_NAME, PositionKeeper
from service.io.log import Log
from service.supervisor._control_server import MEMORY_NS, TOO_MANY_FILES
from service.supervisor._events import Events
from service.supervisor._worker_handle import MAX_START_FAILURES, WorkerHandle, scheduled_ns
from service.supervisor.capabilities import Capabilities
from service.worker.resources import files_used_up, kernel_state, resident_mb
from service.worker.worker import STACK_DUMP_SIGNAL

LAST_MESSAGES_S = 0.5
STACK_DUMP_NS = 200_000_000  # for a process that hangs to log its stacks
#: Order in which the roles stop, and the time for each stage [s]. An arm comes to rest first, then its drives.
STOP_STAGES = ((("acquisition", "jobs"), 5.0), (("estimator", "recorder"), 2.0), (("gateway", "web"), 0.9))

#: No clock has got further; a file with a larger number is damaged.
_MAX_EPOCH = 1 << 62


class WorkerPool:
    """Keeps the processes of `config` running.

    `directory` is theirs, `receive` receives what they have sent over the socket `private`; `ready`: all have been
    ready once since `began_ns`.  `failure` is why the daemon cannot start, and `again` whether it may later as it is.
    """

    def __init__(
        self, config: Config, directory: Path, private: zmq.Socket[bytes], receive: Callable[[], None],
        capabilities: Capabilities, events: Events, log: Log,
    ) -> None:  # fmt: skip
        self._daemon, self._directory, self._private, self._receive = config.daemon, directory, private, receive
        self._capabilities, self._events, self._log = capabilities, events, log
        self._boot_counter = BootCounter(config.state_dir / "epoch")
        self._hang_ns = round(config.daemon.hang_s * 1e9)
        self.began_ns = time.monotonic_ns()
        self._next_memory_ns = 0
        self.ready, self.failure, self.again = False, "", True
        self.handles = [WorkerHandle("gateway", None), WorkerHandle("jobs", None)]
        if config.daemon.serves_http:
            self.handles.append(WorkerHandle("web", None))
        for arm in config.arm:
            keeper = PositionKeeper(config.state_dir / arm.name / FILE_NAME, arm.positions_sha256, log)
            acquisition = WorkerHandle("acquisition", arm.name, keeper=keeper)
            self.handles += [WorkerHandle("estimator", arm.name), acquisition]
            if arm.recorder is not None:
                self.handles.append(WorkerHandle("recorder", arm.name))

    @property
    def settled(self) -> bool:
        """Whether the daemon need not wait for its processes: each is ready, or has failed and may be absent."""
        return all(p.state == "ready" or (p.restarts > 0 and self._may_be_absent(p)) for p in self.handles)

    def _may_be_absent(self, process: WorkerHandle) -> bool:
        """Return whether the daemon starts without a process: jobs, and HTTP where it is not required.

        It is restarted meanwhile like any other.
        """
        return process.role == "jobs" or self.is_optional(process)

    def is_optional(self, process: WorkerHandle) -> bool:
        """Return whether the daemon works without a process: HTTP where it is not required."""
        return process.role == "web" and self._daemon.http is not True

    def keep_running(self, config: Config) -> None:
        """Start what is to be started, with the ports of `config`, and kill what hangs."""
        now_ns = time.monotonic_ns()
        limits = self._daemon
        for process in self.handles:
            if process.state == "waiting" and now_ns >= process.next_start_ns:
                try:
                    with self._capabilities.lent() if process.role == "acquisition" else contextlib.nullcontext():
                        process.start(self._directory, self._boot_counter.next(), now_ns, config)
                except OSError as error:  # no file, memory or process to be had for the moment
                    if not self.ready:
                        raise  # systemd tries the whole again
                    process.put_off(now_ns)
                    self._log.error("process_not_started", name=process.name, reason=error.strerror)
                    continue
                self._log.info("process_started", name=process.name, pid=process.pid, restarts=process.restarts)
            elif process.state == "ready" and now_ns - process.heartbeat_ns > self._hang_ns:
                self._on_silence(process, now_ns)
            elif process.startup_deadline_ns is not None and now_ns > process.startup_deadline_ns:
                process.startup_deadline_ns = None
                self._kill(process, process.failure_text)
                if not self.ready:
                    self.fail(process.failure_text)
            elif process.state == "starting" and process.hangs(now_ns, round(limits.start_s * 1e9)):
                self._kill(process, f"not ready within {limits.start_s:g} s")
        if not self.ready and now_ns - self.began_ns > limits.start_s * 1e9:
            late = ", ".join(f"{p.name} ({p.last_error or p.state})" for p in self.handles if p.state != "ready")
            self.fail(f"not ready within daemon.start_s = {limits.start_s:g} s (try again: kernels are kept): {late}")

    def limit_memory(self) -> None:
        """Free memory and files that subscribers occupy by disconnecting them; they reconnect by themselves."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_memory_ns:
            return
        self._next_memory_ns = now_ns + MEMORY_NS
        limit_mb = self._daemon.memory_mb
        for process in self.handles:
            if process.role not in ("gateway", "web") or process.state != "ready":
                continue
            if resident_mb(process.pid) > limit_mb:
                self._kill(process, f"clients make it larger than {limit_mb:g} MB")
            elif files_used_up(process.pid):
                self._kill(process, TOO_MANY_FILES)

    def _on_silence(self, process: WorkerHandle, now_ns: int) -> None:
        """Have a process that hangs log its stacks, if it still can, and kill it; one that is starved is told of."""
        self._receive()  # after a delay of the supervisor itself, heartbeats are waiting
        if process.killed or now_ns - process.heartbeat_ns <= self._hang_ns:
            return
        if not process.hangs(now_ns, self._hang_ns):
            self._on_starved(process, now_ns)
        elif not process.stack_requested_ns:
            process.stack_requested_ns, process.ran_at_request_ns = now_ns, scheduled_ns(process.pid)[0]
            self._log.warning("process_silent", name=process.name, pid=process.pid)
            process.send_signal(STACK_DUMP_SIGNAL)
        elif now_ns - process.stack_requested_ns >= STACK_DUMP_NS:
            if process.waits_for_processor():
                self._on_starved(process, now_ns)
                return
            why = f"; its last message that could not be read: {process.unreadable_reason}"
            reason = f"silent for more than {self._daemon.hang_s:g} s ({kernel_state(process.pid)})"
            self._kill(process, reason + (why if process.unreadable_reason else ""))

    def _on_starved(self, process: WorkerHandle, now_ns: int) -> None:
        if process.starved_event_due(now_ns):
            text = f"{process.name}: silent for {(now_ns - process.heartbeat_ns) * 1e-9:.0f} s, as it gets no processor"
            remedy = "run less beside the daemon, keep jobs off a processor (jobs.processors), or use a faster computer"
            self._events.record("process_starved", f"{text}, and not restarted; {remedy}", process.arm)

    def _kill(self, process: WorkerHandle, reason: str) -> None:
        if process.killed:  # on a busy machine its end takes many turns of the loop
            return
        process.end_reason, process.killed = reason, True
        self._log.error("process_killed", name=process.name, pid=process.pid, reason=reason)
        process.send_signal(signal.SIGKILL)

    def fail(self, message: str, *, again: bool = True) -> None:
        """Note why the daemon cannot start: its first reason."""
        if not self.failure:
            self.failure, self.again = message, again

    def on_exit(self, process: WorkerHandle) -> None:
        """Reap a process, plan its next start, and record why it ended."""
        self._await_last_messages(process)
        pid = process.pid
        code = process.on_exit(time.monotonic_ns())
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        repeated, process.last_error = process.last_error, process.end_reason or reason
        self._log.warning(
            "process_ended", name=process.name, pid=pid, reason=reason, last_error=process.last_error,
            restarts=process.restarts,
        )  # fmt: skip
        if not (self.is_optional(process) and process.last_error == repeated):  # its port may be in use for months
            self._events.record("process_ended", f"{process.name} ended: {process.last_error}", process.arm)
        if not self.ready and process.restarts >= MAX_START_FAILURES and not self._may_be_absent(process):
            self.fail(f"{process.name} failed {process.restarts} times: {process.last_error}")

    def _await_last_messages(self, process: WorkerHandle) -> None:
        """Receive the last messages of a process that failed by itself (not killed): they may arrive after its end."""
        self._receive()
        failed = process.process is not None and process.process.wait() > 0
        deadline = time.monotonic() + LAST_MESSAGES_S
        while failed and not process.end_reason and (left := deadline - time.monotonic()) > 0.0:
            self._private.poll(int(left * 1000) + 1)
            self._receive()

    def stop(self) -> None:
        """Stop all processes, stage by stage."""
        for roles, seconds in STOP_STAGES:
            stage = [process for process in self.handles if process.role in roles]
            for process in stage:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + seconds
            for process in stage:
                self._await_end(process, deadline)

    def _await_end(self, process: WorkerHandle, deadline: float) -> None:
        if process.process is None:
            return
        poller = zmq.Poller()
        poller.register(process.pidfd, zmq.POLLIN)
        if not poller.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            self._log.error("process_killed", name=process.name, pid=process.pid, reason="did not stop in time")
            process.send_signal(signal.SIGKILL)
        code = process.on_exit(time.monotonic_ns())
        process.state = "stopped"
        self._log.info("process_stopped", name=process.name, code=code)


class BootCounter:
    """Issues epochs, microseconds since 1970 where the clock allows, and keeps the last one in a file.

    Whoever hears two sources takes the one with the larger epoch for the later one.  After an hour was taken back from
    the clock, by hand or because it had no battery, all frames of a restarted source would be taken for late ones. A
    missing or damaged file counts as none; `clock` gives ns since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock = path, clock
        self._last = _read_epoch(path)

    def next(self) -> int:
        """Return an epoch larger than all before."""
        self._last = max(self._clock() // 1000, self._last + 1)
        try:
            with atomic_write(self._path) as file:
                file.write(f"{self._last}\n".encode())
        except OSError:
            pass  # a full disk must not keep a process from starting: the epoch is larger all the same
        return self._last


def _read_epoch(path: Path) -> int:
    try:
        last = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return last if 0 <= last < _MAX_EPOCH else 0
