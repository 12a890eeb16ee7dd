"""Handle of one process under the supervisor: state, restarts, command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from service.protocol.messages import pack_map
from service.protocol.worker_messages import MAX_INFO
from service.worker.resources import SINGLE_THREADED
from service.worker.scheduling import FRAME_PATH
from service.worker.worker import process_name

ProcessState = Literal["starting", "ready", "waiting", "stopped"]

FIRST_DELAY_S = 0.1  # before the first restart; doubled for each further failure
LAST_DELAY_S = 10.0
MAX_START_FAILURES = 5  # of a process before the daemon was ever ready
STEADY_S = 30.0  # after so long without a failure the delay starts anew
LOG_NS = 60_000_000_000  # between two log lines about unreadable messages of a process
MAX_STARVED = 2  # limits of silence, at most, in which a process that gets no processor is not counted as silent


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

    def start(self, runtime: Path, epoch: int, now_ns: int) -> None:
        """Start the process; its process id identifies it, and `epoch` its messages."""
        command = [sys.executable, "-m", "service.worker.entry", self.role]
        command += ["--runtime", str(runtime), "--parent", str(os.getpid())]
        command += ["--epoch", str(epoch), "--restarts", str(self.restarts)]
        if self.arm is not None:
            command += ["--arm", self.arm]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), env={**os.environ, **SINGLE_THREADED}
        )
        self.pidfd = os.pidfd_open(self.process.pid)
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

    def hangs(self, now_ns: int, limit_ns: int) -> bool:
        """Return whether the process has been silent for longer than `limit_ns`.

        Time in which it would have run but got no processor does not count: a restart would only take more of them. At
        most `MAX_STARVED` limits of such time are ignored, and none for the path of the frames, which runs before
        others and may control a moving arm.
        """
        silence_ns = now_ns - self.heartbeat_ns
        if silence_ns <= limit_ns or self.role in FRAME_PATH:
            return silence_ns > limit_ns
        starved = starved_ns(self.pid) - self.heartbeat_starved_ns
        return silence_ns - min(starved, MAX_STARVED * limit_ns) > limit_ns

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
        os.close(self.pidfd)
        self.pidfd = -1
        self.process = None
        if self.state == "ready" and now_ns - self.ready_ns > STEADY_S * 1e9:
            self.failures = 0
        delay_s = min(FIRST_DELAY_S * 2**self.failures, LAST_DELAY_S)
        self.failures = min(self.failures + 1, 20)
        self.restarts += 1
        self.state = "waiting"
        self.next_start_ns = now_ns + int(delay_s * 1e9)
        return code

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


def starved_ns(pid: int) -> int:
    """Return how long the main thread of a process has waited for a processor, 0 if unknown.

    A wait that goes on is counted when it ends, and what other threads wait for, which this one may need, is not.

    Second figure of Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
