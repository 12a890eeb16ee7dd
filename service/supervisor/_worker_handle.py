"""Handle of one process under the supervisor: state, restarts, command line."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from service.config.load import Config
from service.io.kept_positions import PositionKeeper
from service.protocol.messages import pack_map
from service.protocol.worker_messages import MAX_INFO
from service.worker.resources import kernel_state
from service.worker.thread_limits import SINGLE_THREADED
from service.worker.worker import ENTRY, process_name

ProcessState = Literal["starting", "ready", "waiting", "stopped"]

FIRST_DELAY_S = 0.1  # before the first restart; doubled for each further failure
LAST_DELAY_S = 10.0
MAX_START_FAILURES = 5  # of a process before the daemon was ever ready
STEADY_S = 30.0  # after so long without a failure the delay starts anew
LOG_NS = 60_000_000_000  # between two log lines about unreadable messages of a process


@dataclass
class WorkerHandle:
    """A process that the supervisor keeps running; times are CLOCK_MONOTONIC [ns]."""

    role: str
    arm: str | None
    state: ProcessState = "waiting"
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    started_ns: int = 0
    ready_ns: int = 0
    heartbeat_ns: int = 0
    heartbeat_starved_ns: int = 0  # `starved_ns` at that time
    stack_requested_ns: int = 0  # when its stacks were requested because of its silence; 0 if they were not
    ran_at_request_ns: int = 0  # `scheduled_ns()[0]` at that time
    next_starved_event_ns: int = 0
    starved_event_gap_ns: int = 60_000_000_000  # to the next event that it is starved; doubled each time
    next_start_ns: int = 0
    restarts: int = 0
    failures: int = 0  # without a steady time between
    startup_deadline_ns: int | None = None  # by when it has to be ready, as it has announced
    failure_text: str = ""  # reason if it is not
    end_reason: str = ""  # why this run is ending, as far as it is known
    killed: bool = False  # it has been, and may take a while to end
    last_error: str = ""  # why the last run ended
    info: dict[str, Any] = field(default_factory=dict)
    unreadable: int = 0  # in all runs
    unreadable_reason: str = ""  # of the last one in this run
    next_log_ns: int = 0
    keeper: PositionKeeper | None = None  # of what an acquisition says of its joints

    @property
    def name(self) -> str:
        """Name in logs and status."""
        return process_name(self.role, self.arm)

    @property
    def pid(self) -> int:
        """Process id, 0 while there is none."""
        return 0 if self.process is None else self.process.pid

    @property
    def identity(self) -> bytes:
        """Identity of the process on the supervisor's private socket."""
        return f"{self.name}#{self.pid}".encode()

    def start(self, runtime: Path, epoch: int, now_ns: int, config: Config) -> None:
        """Start the process, identified by its id, its messages by `epoch`; its stdin is `config`, in memory.

        Raises `OSError`: there is no file, memory or process for it.
        """
        command = [sys.executable, "-m", ENTRY, self.role]
        command += ["--runtime", str(runtime), "--parent", str(os.getpid()), "--config", "/proc/self/fd/0"]
        command += ["--epoch", str(epoch), "--restarts", str(self.restarts)]
        if self.arm is not None:
            command += ["--arm", self.arm]
        environment = os.environ | SINGLE_THREADED
        with os.fdopen(os.memfd_create("config"), "wb", 0) as given:
            given.write(config.model_dump_json().encode())
            self.process = subprocess.Popen(command, stdin=given, stdout=sys.stderr.fileno(), env=environment)
        try:
            self.pidfd = os.pidfd_open(self.process.pid)
        except OSError:
            self.process.kill()
            self.process.wait()
            self.process = None
            raise
        self.state = "starting"
        self.started_ns = now_ns
        self.info = {}
        self.end_reason, self.unreadable_reason, self.killed = "", "", False
        self.startup_deadline_ns = None

    def on_ready(self, now_ns: int) -> None:
        """Note that the process can work."""
        self.state = "ready"
        self.startup_deadline_ns = None
        self.ready_ns = now_ns
        self.on_heartbeat(now_ns)

    def on_heartbeat(self, now_ns: int) -> None:
        """Note a heartbeat."""
        self.heartbeat_ns, self.heartbeat_starved_ns = now_ns, starved_ns(self.pid)
        self.stack_requested_ns = 0
        if self.keeper is not None:
            self.keeper.note(self.info.get("stood"), now_ns)

    def hangs(self, now_ns: int, limit_ns: int) -> bool:
        """Return whether it was silent, or starting, for longer than `limit_ns` without waits for a processor."""
        starting = self.state == "starting"
        over_ns = now_ns - (self.started_ns if starting else self.heartbeat_ns) - limit_ns
        return over_ns > 0 and over_ns > starved_ns(self.pid) - (0 if starting else self.heartbeat_starved_ns)

    def waits_for_processor(self) -> bool:
        """Return whether the process could run, and has not for a moment since its stacks were requested."""
        return kernel_state(self.pid) == "running" and 0 < scheduled_ns(self.pid)[0] == self.ran_at_request_ns

    def starved_event_due(self, now_ns: int) -> bool:
        """Return whether to tell that it is starved; each time it takes longer until the next one."""
        if due := now_ns >= self.next_starved_event_ns:
            self.next_starved_event_ns = now_ns + self.starved_event_gap_ns
            self.starved_event_gap_ns = min(2 * self.starved_event_gap_ns, 3_600_000_000_000)
        return due

    def on_info(self, info: Mapping[str, Any]) -> None:
        """Merge what the process reports of itself into its previous reports.

        Raises `WireError` if all together would be more than a process may say; what was said before stays.
        """
        reported = {**self.info, **info}
        pack_map(reported, MAX_INFO)
        self.info = reported

    def count_unreadable(self, now_ns: int, reason: str) -> int:
        """Count an unreadable message; return the count if it is to be logged now, else 0."""
        self.unreadable += 1
        self.unreadable_reason = reason
        if now_ns < self.next_log_ns:
            return 0
        self.next_log_ns = now_ns + LOG_NS
        return self.unreadable

    def on_exit(self, now_ns: int) -> int:
        """Reap the process and plan its next start; return its exit code."""
        process = self.process
        if process is None:
            return 0
        code = process.wait()
        if self.keeper is not None:
            self.keeper.note(self.info.get("stood"), now_ns, last=True)
        os.close(self.pidfd)
        self.pidfd = -1
        self.process = None
        if self.state == "ready" and now_ns - self.ready_ns > STEADY_S * 1e9:
            self.failures = 0
        self.put_off(now_ns)
        self.restarts += 1
        self.state = "waiting"
        return code

    def put_off(self, now_ns: int) -> None:
        """Plan the next start, later with each failure."""
        delay_s = min(FIRST_DELAY_S * 2**self.failures, LAST_DELAY_S)
        self.failures = min(self.failures + 1, 20)
        self.next_start_ns = now_ns + int(delay_s * 1e9)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.process is not None:
            self.process.send_signal(number)

    def describe(self, now_ns: int) -> dict[str, Any]:
        """Return the process's entry in the reply to `status`."""
        return {
            "name": self.name, "role": self.role, "arm": self.arm, "pid": self.pid, "state": self.state,
            "restarts": self.restarts, "last_error": self.last_error, "unreadable": self.unreadable,
            "silent_s": (now_ns - self.heartbeat_ns) * 1e-9 if self.state == "ready" else None, "info": self.info,
        }  # fmt: skip


def scheduled_ns(pid: int) -> tuple[int, int]:
    """Return how long the main thread of a process has run, and has waited for a processor; zeros if unknown.

    A wait that goes on is counted when it ends, and what other threads wait for, which this one may need, is not.
    Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
    """
    try:
        ran, waited, *_ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0


def starved_ns(pid: int) -> int:
    """Return how long the main thread of a process has waited for a processor."""
    return scheduled_ns(pid)[1]
