"""Backend that runs jobs on the workers of a Dask cluster; see docs/dask.md.

Methods here return at once; the thread of `Cluster` does what takes time. Each run is sent to one chosen worker, so
that the loss of that worker is known to end it.
"""

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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drivers.files.atomic_write import write_bytes, write_text
from service.jobs.dask._cluster import Cluster, DroppedError, TaskError, WorkerNode
from service.jobs.execution.backend import GRACE_S, BackendBusyError, Ended
from service.jobs.execution.progress import Pace
from service.jobs.execution.spec import LOG_FILE, OUTCOME_FILE, RESULTS_FOLDER, SPEC_FILE, Spec, read_spec
from service.jobs.queue.state import Limits
from service.operations.errors import OperationError
from service.operations.workspace import PLAIN_NAME, Input
from service.worker.worker import FatalError

OVERTIME_S = 60.0  # beyond its limit, after which the worker counts as unable to end the run
_SENDS = 3  # of one run's inputs to a worker that has lost them
_SLOWEST = 1e6  # [bytes/s] of a network that inputs are sent over


def missing_extra() -> str | None:
    """Return how to install Dask if it is missing; None if it is there."""
    if importlib.util.find_spec("distributed") is not None:
        return None
    return "jobs.backend = \"dask\" needs Dask: pip install 'thetad[dask]'"


class DaskRun:
    """A run on a worker of the cluster."""

    def __init__(self, key: str, folder: Path, node: WorkerNode) -> None:
        self.key, self.folder, self.node = key, folder, node
        self.began = time.monotonic()
        self.pace = Pace()
        self.task: concurrent.futures.Future[None] | None = None
        self.busy_until = 0.0  # after its end: until then the worker may still be ending it
        self._progress: deque[tuple[float, float, str]] = deque(maxlen=100)
        self._answer: Mapping[str, Any] | None = None
        self._ended: Ended | None = None
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether its end is known."""
        return self._ended is not None or self._answer is not None

    def poll(self) -> Ended | None:
        """Process progress and, at the end, the results."""
        while self._progress:
            self.pace.report(*self._progress.popleft())
        if self._ended is None and self._answer is not None:
            self._ended = self._taken(self._answer)
            self._answer = None
        return self._ended

    def stop(self) -> None:
        """Release the task; the worker then stops the run, and kills it if necessary."""
        self._let_go(Ended("cancelled"))

    def kill(self) -> None:
        """Release the task; the same for the worker."""
        self._let_go(Ended("interrupted", "killed"))

    def end(self, ended: Ended) -> None:
        """Set how it ended, once."""
        with self._lock:
            if not self.over:
                self._ended = ended

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Set the worker's reply, for `poll`."""
        with self._lock:
            if not self.over:
                self._answer = answer

    def report_progress(self, share: float, what: str) -> None:
        """Add a report of progress, for `poll`."""
        self._progress.append((time.monotonic() - self.began, share, what))

    def _let_go(self, ended: Ended) -> None:
        if not self.over:
            self.busy_until = time.monotonic() + GRACE_S
        self.end(ended)
        if self.task is not None:
            self.task.cancel()

    def _taken(self, answer: Mapping[str, Any]) -> Ended:
        """Write the results into the run's folder, as a local run does."""
        try:
            for name, content in answer["results"].items():
                if PLAIN_NAME.fullmatch(name) is None:
                    return Ended("failed", f"a result is called {name!r}")
                write_bytes(self.folder / RESULTS_FOLDER / name, content)
            write_text(self.folder / LOG_FILE, answer["log"])
            if answer["outcome"]:
                write_bytes(self.folder / OUTCOME_FILE, answer["outcome"])
        except OSError as error:
            return Ended("put_off", f"its results cannot be kept: {error}")
        outcome = json.loads(answer["outcome"]) if answer["how"] == "outcome" else {}
        return Ended(answer["how"], answer["reason"], outcome, answer["log"])


class DaskBackend:
    """Backend of the workers of a Dask cluster, with as many runs at a time as they have threads.

    `scheduler` is an address, "tcp://HOST:PORT" or "tls://HOST:PORT". Raises `FatalError` if it is none, or Dask is not
    installed.
    """

    def __init__(self, scheduler: str) -> None:
        missing = missing_extra()
        if missing is not None:
            raise FatalError(missing)
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend

        try:
            scheme, node = parse_address(scheduler, strict=True)
            get_backend(scheme)
            parse_host_port(node)
        except ValueError as error:
            raise FatalError(f'jobs.scheduler: {scheduler!r} is not like "tcp://HOST:8786": {error}') from None
        self.label = f"dask at {scheduler}"
        self.trouble = ""
        self._runs: dict[str, DaskRun] = {}
        self._lock = threading.Lock()
        self._cluster = Cluster(scheduler, self._on_event, self._on_lost, self._on_trouble)

    def free(self) -> int:
        """Return how many more runs can be started now."""
        used = self._used()
        return sum(max(0, node.threads - used[node.address]) for node in self._cluster.nodes())

    def start(self, key: str, folder: Path, limits: Limits) -> DaskRun:
        """Send a run to the worker with the most free threads; raises `BackendBusyError` if none has any."""
        used = self._used()
        nodes = self._cluster.nodes()
        node = max(nodes, key=lambda node: node.threads - used[node.address], default=None)
        if node is None or node.threads <= used[node.address]:
            raise BackendBusyError(self.trouble or f"no worker of the scheduler at {self._cluster.scheduler} is free")
        run = DaskRun(key, folder, node)
        with self._lock:
            self._runs[key] = run
        run.task = self._cluster.begin(self._execute(run, limits))
        run.task.add_done_callback(lambda task: self._finished(run, task))
        if run.over:  # `_on_lost` has come before there was a task that it could cancel
            run.task.cancel()
        return run

    def close(self) -> None:
        """Release all runs and disconnect."""
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
            return Counter(run.node.address for run in self._runs.values())

    def _on_event(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            with self._lock:
                run = self._runs[message["run"]]
            run.report_progress(float(message["share"]), str(message["what"])[:200])

    def _on_lost(self, node: WorkerNode, why: str) -> None:
        for run in self._known():
            if run.node is node:
                run.end(Ended("interrupted", why))
                run.busy_until = 0.0
                if run.task is not None:
                    run.task.cancel()

    def _on_trouble(self, trouble: str) -> None:
        self.trouble = trouble

    def _finished(self, run: DaskRun, task: concurrent.futures.Future[None]) -> None:
        """Make sure that a run whose task is over has an end."""
        error = None if task.cancelled() else task.exception()
        why = f"worker {run.node.address}: {type(error).__name__}: {error}" if error else "the connection was closed"
        if error is not None and not run.over:
            self._cluster.refuse(run.node, why, for_now=True)
        run.end(Ended("interrupted", why))

    async def _execute(self, run: DaskRun, limits: Limits) -> None:
        """Send a run, after missing inputs, and process the reply."""
        from service.jobs.dask import _worker as remote

        cluster, node = self._cluster, run.node
        if not cluster.ready(node):  # the worker may have been lost before `_on_lost` could find the run
            run.end(Ended("interrupted", f"worker {node.address} cannot be used any more"))
            return
        order = {"run": run.key, "topic": cluster.topic, "limits": asdict(limits), "code": cluster.code}
        try:
            spec = await asyncio.to_thread(read_spec, run.folder)
            sent = await asyncio.to_thread((run.folder / SPEC_FILE).read_bytes)
            for _ in range(_SENDS):
                await self._send_inputs(run, spec)
                told, limit_s = json.dumps(order).encode(), limits.seconds + OVERTIME_S
                answer = await cluster.call(remote.run, told, sent, node=node, name=run.key, limit_s=limit_s)
                if answer["how"] != "missing":
                    break
                node.known -= set(answer["missing"])
        except OperationError as error:
            run.end(Ended("final", str(error)))
        except TaskError as error:
            if not run.over and not isinstance(error, DroppedError):
                cluster.refuse(node, str(error), for_now=True)
            run.end(Ended("interrupted", str(error)))
        else:
            self._take(run, answer)

    async def _send_inputs(self, run: DaskRun, spec: Spec) -> None:
        """Send missing inputs, one after the other: recordings are large."""
        from service.jobs.dask import _worker as remote

        for name, entry in spec.inputs.items():
            if entry.sha256 in run.node.known:
                continue
            content = await asyncio.to_thread(_content, name, entry.file)
            limit_s = OVERTIME_S + len(content) / _SLOWEST
            await self._cluster.call(remote.keep, content, node=run.node, name=f"{run.key}-{name}", limit_s=limit_s)
            run.node.known.add(entry.sha256)

    def _take(self, run: DaskRun, answer: Mapping[str, Any]) -> None:
        """Process a reply; one of another code version is refused, even a failure."""
        from service.jobs.dask import _worker as remote

        cluster, node = self._cluster, run.node
        wrong = str(answer["reason"]) if answer["how"] == "refused" else ""
        if answer["how"] in ("outcome", "failed", "final", "put_off"):
            wrong = remote.difference(cluster.code, _code(answer))
        if wrong:
            why = f"worker {node.address}: {wrong}"
            cluster.refuse(node, f"{why}: install the same thetad there and start it again")
            run.end(Ended("interrupted", why))
        elif answer["how"] in ("missing", "interrupted"):
            why = f"worker {node.address}: {answer.get('reason', 'it loses inputs')}"
            cluster.refuse(node, why, for_now=True)
            run.end(Ended("interrupted", why))
        else:
            node.rest_s = 0.0
            run.answer(answer)


def _code(answer: Mapping[str, Any]) -> Any:
    """Return the code version of a run, or of its worker if the run left no outcome."""
    try:
        outcome = json.loads(answer["outcome"] or "null")
    except ValueError:
        outcome = None
    return outcome.get("code") if isinstance(outcome, dict) else answer["code"]


def _content(name: str, file: Input) -> bytes:
    """Read an input; raises `OperationError` like `Workspace.path` if it is not what was submitted."""
    try:
        content = file.path.read_bytes()
    except OSError as error:
        raise OperationError(f"{name}: {file.path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise OperationError(f"{name}: {file.path}: has changed since the job was submitted; submit it again")
    return content
