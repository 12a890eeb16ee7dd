"""Backends: the interface that the dispatcher uses, and the local one."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from service.jobs.execution.progress import Pace
from service.jobs.execution.spec import LOG_FILE, OUTCOME_FILE
from service.jobs.queue.state import Limits
from service.worker.resources import die_with_parent, resident_mb
from service.worker.thread_limits import SINGLE_THREADED

GRACE_S = 5.0  # for a stopped run to end, before it is killed
_LOG_TAIL = 4000  # bytes
_LINE = 65536

How = Literal["outcome", "failed", "final", "cancelled", "interrupted", "put_off"]


class BackendBusyError(RuntimeError):
    """No run can be started after all; the job goes back into the queue."""


@dataclass(frozen=True)
class Ended:
    """The end of a run.

    `how` is "outcome" (`outcome` holds it, and the run's folder its results), "failed" (another attempt may succeed),
    "final" (it would not), "cancelled" (it was stopped), "interrupted" (not the job's fault), or "put_off" (the
    same, and not to be repeated at once).
    """

    how: How
    reason: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


class Run(Protocol):
    """One attempt at a job, under way."""

    folder: Path
    pace: Pace
    began: float  # time.monotonic()

    def poll(self) -> Ended | None:
        """Check on the run, without waiting; None while it goes on."""

    def stop(self) -> None:
        """Stop the run; it is killed if it does not end."""

    def kill(self) -> None:
        """End the run at once."""


class Backend(Protocol):
    """Executes runs. `trouble` is why it accepts none now, if so; `label` names it for people."""

    label: str
    trouble: str

    def free(self) -> int:
        """Return how many more runs can be started now."""

    def start(self, key: str, folder: Path, limits: Limits) -> Run:
        """Start a run of the job in `folder`; `key` is unique to it. Raises `OSError`."""

    def close(self) -> None:
        """Release all resources."""


def read_end(folder: Path, code: int) -> Ended:
    """Return how a run ended, from its folder and its exit code, negative for a signal."""
    log = log_tail(folder)
    path = folder / OUTCOME_FILE
    try:
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if code < 0:
            what = f"killed by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
            more = ", as by the system when memory runs out" if code == -signal.SIGKILL else ""
            return Ended("failed", f"its process was {what}{more}", log=log)
        if code == os.EX_TEMPFAIL:
            return Ended("put_off", "there was no room on the disk", log=log)
        return Ended("failed", f"its process ended with exit code {code} and without an outcome", log=log)
    except (OSError, ValueError) as error:
        return Ended("failed", f"its outcome cannot be read: {error}", log=log)
    if outcome.get("ok"):
        return Ended("outcome", outcome=outcome, log=log)
    if outcome.get("cancelled"):
        return Ended("cancelled", log=log)
    return Ended("final" if outcome.get("final") else "failed", str(outcome.get("reason")), log=log)


def log_tail(folder: Path) -> str:
    """Return the last lines of a run's log."""
    try:
        with (folder / LOG_FILE).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _LOG_TAIL))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= _LOG_TAIL else text.partition("\n")[2]


class LocalRun:
    """A run in a process of this machine."""

    def __init__(self, folder: Path, limits: Limits, processors: frozenset[int], priority: str) -> None:
        self.folder, self.limits = folder, limits
        self.began = time.monotonic()
        self.pace = Pace()
        self._line = b""  # of progress, so far
        self._stop_reason = ""
        self._stop_requested_s: float | None = None
        command = [sys.executable, "-m", "service.jobs.execution.runner", str(folder), "--parent", str(os.getpid())]
        command += ["--priority", priority]
        with (folder / LOG_FILE).open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **SINGLE_THREADED},
                # the runner does so itself, but may be stopped before
                preexec_fn=functools.partial(die_with_parent, None, signal.SIGKILL),
            )
        self._out = self.process.stdout.fileno() if self.process.stdout is not None else -1
        os.set_blocking(self._out, False)
        with contextlib.suppress(OSError):  # it has ended already, which `poll` will see
            os.sched_setaffinity(self.process.pid, processors)

    def poll(self) -> Ended | None:
        """Read progress, enforce the limits, check for the end."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._out, 1 << 16):
                self._feed(data)
        now = time.monotonic()
        code = self.process.poll()
        if code is None:
            if now - self.began > self.limits.seconds:
                self._end(f"not done within its limit of {self.limits.seconds:g} s")
            elif resident_mb(self.process.pid) > self.limits.memory_mb:
                self._end(f"needs more than its limit of {self.limits.memory_mb:g} MB of memory")
            elif self._stop_requested_s is not None and now - self._stop_requested_s > GRACE_S:
                self._end("")
            return None
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._stop_reason:
            return Ended("final", self._stop_reason, log=log_tail(self.folder))
        if self._stop_requested_s is not None and not (self.folder / OUTCOME_FILE).exists():
            return Ended("cancelled", log=log_tail(self.folder))
        return read_end(self.folder, code)

    def _feed(self, data: bytes) -> None:
        """Process lines of progress; others are ignored."""
        *lines, self._line = (self._line + data).split(b"\n")
        self._line = self._line[-_LINE:]
        for line in lines[-100:]:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                message = json.loads(line)
                self.pace.report(time.monotonic() - self.began, float(message["share"]), str(message["what"])[:200])

    def _end(self, why: str) -> None:
        self._stop_reason = self._stop_reason or why
        self.process.kill()

    def stop(self) -> None:
        """Request the end."""
        if self._stop_requested_s is None:
            self._stop_requested_s = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class LocalBackend:
    """Processes of this machine, `workers` of them at most, on `processors`."""

    label = "local"

    def __init__(self, workers: int, processors: frozenset[int], priority: str = "idle") -> None:
        self.workers, self.priority, self.processors = workers, priority, processors
        self.trouble = ""
        self._runs: list[LocalRun] = []

    def free(self) -> int:
        """Return how many more can be started."""
        self._runs = [run for run in self._runs if run.process.returncode is None]
        return self.workers - len(self._runs)

    def start(self, key: str, folder: Path, limits: Limits) -> LocalRun:  # noqa: ARG002
        """Start one."""
        run = LocalRun(folder, limits, self.processors, self.priority)
        self._runs.append(run)
        return run

    def close(self) -> None:
        """Kill what still runs."""
        for run in self._runs:
            if run.process.returncode is None:
                run.kill()
