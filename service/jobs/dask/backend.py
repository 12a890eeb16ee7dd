"""Runs on the workers of a Dask cluster; see docs/dask.md.

What can wait, it leaves to the thread of `Cluster`; what is called here answers at once.  Each run goes to one worker
of its choice, so that it is known whose loss ends it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import importlib.util
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.io.atomic_files import write_bytes, write_text
from service.jobs.dask._cluster import Cluster, DroppedError, Place, TaskError
from service.jobs.execution.backend import GRACE_S, LOG, OUTCOME, RESULTS, SPEC, BackendBusyError, Ended
from service.jobs.execution.progress import Pace
from service.jobs.execution.spec import Spec, read_spec
from service.jobs.queue.state import Limits
from service.operations.workspace import PLAIN_NAME, Input, JobError
from service.worker.worker import FatalError

OVERTIME_S = 60.0  # beyond its limit, until a run counts as one that its worker is not able to end
_SENDS = 3  # of one run's inputs to a worker that has lost them
_SLOWEST = 1e6  # [bytes/s] of a network that inputs are sent over


def missing_extra() -> str | None:
    """Say what to install if Dask is not there; None if it is."""
    if importlib.util.find_spec("distributed") is not None:
        return None
    return "jobs.backend = \"dask\" needs Dask: pip install 'thetad[dask]'"


class DaskRun:
    """A run on a worker of the cluster."""

    def __init__(self, key: str, folder: Path, place: Place) -> None:
        self.key, self.folder, self.place = key, folder, place
        self.began = time.monotonic()
        self.pace = Pace()
        self.task: concurrent.futures.Future[None] | None = None
        self.busy_until = 0.0  # after its end: until then the worker may still be ending it
        self._said: deque[tuple[float, float, str]] = deque(maxlen=100)
        self._answer: Mapping[str, Any] | None = None
        self._ended: Ended | None = None
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether its end is known."""
        return self._ended is not None or self._answer is not None

    def poll(self) -> Ended | None:
        """Take in progress and, at its end, what it left."""
        while self._said:
            self.pace.report(*self._said.popleft())
        if self._ended is None and self._answer is not None:
            self._ended = self._taken(self._answer)
            self._answer = None
        return self._ended

    def stop(self) -> None:
        """Let go of it; the worker asks it to stop, and kills it if it does not."""
        self._let_go(Ended("cancelled"))

    def kill(self) -> None:
        """Let go of it; for the worker this is the same."""
        self._let_go(Ended("interrupted", "killed"))

    def end(self, ended: Ended) -> None:
        """Say how it ended; the first word counts."""
        with self._lock:
            if not self.over:
                self._ended = ended

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Take what the worker returned, for `poll`."""
        with self._lock:
            if not self.over:
                self._answer = answer

    def told(self, share: float, what: str) -> None:
        """Take a report of progress, for `poll`."""
        self._said.append((time.monotonic() - self.began, share, what))

    def _let_go(self, ended: Ended) -> None:
        if not self.over:
            self.busy_until = time.monotonic() + GRACE_S
        self.end(ended)
        if self.task is not None:
            self.task.cancel()

    def _taken(self, answer: Mapping[str, Any]) -> Ended:
        """Write what the run left into its folder, where a local run leaves it."""
        try:
            for name, content in answer["results"].items():
                if PLAIN_NAME.fullmatch(name) is None:
                    return Ended("failed", f"a result is called {name!r}")
                write_bytes(self.folder / RESULTS / name, content)
            write_text(self.folder / LOG, answer["log"])
            if answer["outcome"]:
                write_bytes(self.folder / OUTCOME, answer["outcome"])
        except OSError as error:
            return Ended("interrupted", f"its results cannot be kept: {error}")
        outcome = json.loads(answer["outcome"]) if answer["how"] == "outcome" else {}
        return Ended(answer["how"], answer["reason"], outcome, answer["log"])


class DaskBackend:
    """The workers of a Dask cluster, as many runs at a time as they have threads.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler, "tcp://HOST:PORT" or "tls://HOST:PORT".

    Raises
    ------
    FatalError
        Dask is not installed, or the address is none.
    """

    def __init__(self, scheduler: str) -> None:
        missing = missing_extra()
        if missing is not None:
            raise FatalError(missing)
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend

        try:
            scheme, place = parse_address(scheduler, strict=True)
            get_backend(scheme)
            parse_host_port(place)
        except ValueError as error:
            raise FatalError(f'jobs.scheduler: {scheduler!r} is no address like "tcp://HOST:8786": {error}') from None
        self.label = f"dask at {scheduler}"
        self.trouble = ""
        self._runs: dict[str, DaskRun] = {}
        self._lock = threading.Lock()
        self._cluster = Cluster(scheduler, self._on_event, self._on_lost, self._on_trouble)

    def free(self) -> int:
        """How many more runs can be started now."""
        used = self._used()
        return sum(max(0, place.threads - used[place.address]) for place in self._cluster.places())

    def start(self, key: str, folder: Path, limits: Limits) -> DaskRun:
        """Send a run to the worker with the most free threads; raises `BackendBusyError` if none has any."""
        used = self._used()
        places = self._cluster.places()
        place = max(places, key=lambda place: place.threads - used[place.address], default=None)
        if place is None or place.threads <= used[place.address]:
            raise BackendBusyError(self.trouble or f"no worker of the scheduler at {self._cluster.scheduler} is free")
        run = DaskRun(key, folder, place)
        with self._lock:
            self._runs[key] = run
        run.task = self._cluster.begin(self._carry_out(run, limits))
        run.task.add_done_callback(lambda task: self._finished(run, task))
        if run.over:  # `_on_lost` has come before there was a task that it could cancel
            run.task.cancel()
        return run

    def close(self) -> None:
        """Let go of all runs and of the cluster."""
        for run in self._known():
            run.kill()
        self._cluster.close()

    def _known(self) -> list[DaskRun]:
        with self._lock:
            return list(self._runs.values())

    def _used(self) -> Counter[str]:
        """Return the number of threads in use, by worker."""
        now = time.monotonic()
        with self._lock:
            self._runs = {key: run for key, run in self._runs.items() if not run.over or run.busy_until > now}
            return Counter(run.place.address for run in self._runs.values())

    def _on_event(self, said: Mapping[str, Any]) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            with self._lock:
                run = self._runs[said["run"]]
            run.told(float(said["share"]), str(said["what"])[:200])

    def _on_lost(self, place: Place, why: str) -> None:
        for run in self._known():
            if run.place is place:
                run.end(Ended("interrupted", why))
                run.busy_until = 0.0
                if run.task is not None:
                    run.task.cancel()

    def _on_trouble(self, trouble: str) -> None:
        self.trouble = trouble

    def _finished(self, run: DaskRun, task: concurrent.futures.Future[None]) -> None:
        """See to it that a run whose task is over has an end."""
        error = None if task.cancelled() else task.exception()
        why = f"worker {run.place.address}: {type(error).__name__}: {error}" if error else "the connection was closed"
        if error is not None and not run.over:
            self._cluster.refuse(run.place, why, for_now=True)
        run.end(Ended("interrupted", why))

    async def _carry_out(self, run: DaskRun, limits: Limits) -> None:
        """Send a run, after the inputs that the worker does not have, and take the answer."""
        from service.jobs.dask import _worker as remote

        cluster, place = self._cluster, run.place
        if not cluster.ready(place):  # any more: since then `_on_lost` may not have known of the run
            run.end(Ended("interrupted", f"worker {place.address} cannot be used any more"))
            return
        order = {
            "run": run.key,
            "topic": cluster.topic,
            "limits": {"seconds": limits.seconds, "memory_mb": limits.memory_mb},
            "code": cluster.code,
        }
        try:
            spec = await asyncio.to_thread(read_spec, run.folder)
            sent = await asyncio.to_thread((run.folder / SPEC).read_bytes)
            for _ in range(_SENDS):
                await self._send_inputs(run, spec)
                answer = await cluster.call(
                    remote.run,
                    json.dumps(order).encode(),
                    sent,
                    place=place,
                    name=run.key,
                    limit_s=limits.seconds + OVERTIME_S,
                )
                if answer["how"] != "missing":
                    break
                place.known -= set(answer["missing"])
        except JobError as error:
            run.end(Ended("final", str(error)))
        except TaskError as error:
            if not run.over and not isinstance(error, DroppedError):
                cluster.refuse(place, str(error), for_now=True)
            run.end(Ended("interrupted", str(error)))
        else:
            self._take(run, answer)

    async def _send_inputs(self, run: DaskRun, spec: Spec) -> None:
        """Send what the worker does not have, one after the other: recordings are large."""
        from service.jobs.dask import _worker as remote

        for name, entry in spec.inputs.items():
            if entry.sha256 in run.place.known:
                continue
            content = await asyncio.to_thread(_content, name, entry.file)
            limit_s = OVERTIME_S + len(content) / _SLOWEST
            await self._cluster.call(remote.keep, content, place=run.place, name=f"{run.key}-{name}", limit_s=limit_s)
            run.place.known.add(entry.sha256)

    def _take(self, run: DaskRun, answer: Mapping[str, Any]) -> None:
        """Judge an answer: one of other code is refused, whatever it says, also of a failure."""
        from service.jobs.dask import _worker as remote

        cluster, place = self._cluster, run.place
        wrong = str(answer["reason"]) if answer["how"] == "refused" else ""
        if answer["how"] in ("outcome", "failed", "final"):
            wrong = remote.difference(cluster.code, _code(answer))
        if wrong:
            why = f"worker {place.address}: {wrong}"
            cluster.refuse(place, f"{why}: install the same thetad there and start it again")
            run.end(Ended("interrupted", why))
        elif answer["how"] in ("missing", "interrupted"):
            cluster.refuse(place, f"worker {place.address}: {answer.get('reason', 'it loses inputs')}", for_now=True)
            run.end(Ended("interrupted", f"worker {place.address}: {answer.get('reason', 'it loses inputs')}"))
        else:
            place.rest_s = 0.0
            run.answer(answer)


def _code(answer: Mapping[str, Any]) -> Any:
    """Return what code a run says it ran; if it was ended before it said anything, what its worker has."""
    try:
        outcome = json.loads(answer["outcome"] or "null")
    except ValueError:
        outcome = None
    return outcome.get("code") if isinstance(outcome, dict) else answer["code"]


def _content(name: str, file: Input) -> bytes:
    """Read an input; `JobError`, with the words of `Workspace.path`, if it is not what was submitted."""
    try:
        content = file.path.read_bytes()
    except OSError as error:
        raise JobError(f"{name}: {file.path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise JobError(f"{name}: {file.path}: has changed since the job was submitted; submit it again")
    return content
