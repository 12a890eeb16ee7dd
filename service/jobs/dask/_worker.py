"""Functions that a Dask worker calls: one run of a job, in a process of its own, as in the local backend.

A worker calls only `run`, `describe` and `keep`. They take bytes and return plain values, and the only program they
start is the runner: a job's parameters stay data.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker

from drivers.files.atomic_write import write_bytes
from service.jobs.execution.backend import LocalRun
from service.jobs.execution.code_version import code_version
from service.jobs.execution.spec import OUTCOME_FILE, RESULTS_FOLDER, SPEC_FILE
from service.jobs.queue.state import Limits

CACHE_BYTES = 1_000_000_000  # of inputs that a worker keeps on its disk for later runs
PRIORITY = "low"  # the machine is there for jobs, but the worker has to answer while they run
_POLL_S = 0.05
_REPORT_S = 0.5  # between two reports of progress, of which the scheduler keeps some
_GOING_ON = ("executing", "long-running")  # states of a task that a client waits for
_SERVING = ("init", "running", "paused", "closing_gracefully")  # of a worker that can still return a result


def describe() -> dict[str, str]:
    """Return the code version of this worker."""
    return code_version()


def keep(content: bytes) -> None:
    """Keep an input on the disk of the calling worker, for a later `run`."""
    write_bytes(_cache(get_worker()) / hashlib.sha256(content).hexdigest(), content)


def difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Return how another machine's code (processors may differ) differs from this one's, if results may; else empty."""
    if not isinstance(there, Mapping):
        return "it does not say what code it runs"
    texts = []
    for name in sorted((here.keys() | there.keys()) - {"cpu"}):
        ours, theirs = here.get(name), there.get(name)
        if ours != theirs and name == "sources_sha256":
            texts.append("its sources of thetad are not those used here")
        elif ours != theirs:
            texts.append(f"it has {name} {theirs}, here is {ours}")
    return "; ".join(texts)


def run(order: bytes, spec: bytes) -> dict[str, Any]:
    """Run a job on the calling worker, and return its results.

    `order` is JSON: `run`, its name; `topic` for progress; `limits`, `seconds` and `memory_mb`; `code`, the client's
    version. `spec` is the run's `spec.json`, with paths as on the client, whose contents this worker must have from
    `keep`.

    The results are `how` and `reason` as in `service.jobs.execution.backend.Ended`, or `how` is "refused" (other code
    here), "missing" (`missing`: hashes of inputs to be sent again), or "interrupted" (the worker ends). After a run
    also `outcome` (bytes of `outcome.json`, empty if there is none), `results` (bytes by name), `log`, and `code`: the
    version that is installed on the worker then, for a run without an outcome.
    """
    worker = get_worker()
    given: dict[str, Any] = json.loads(order)
    wrong = difference(given["code"], code_version())
    if wrong:
        return {"how": "refused", "reason": wrong}
    cache = _cache(worker)
    with tempfile.TemporaryDirectory(
        prefix="thetad-run-", dir=worker.local_directory, ignore_cleanup_errors=True
    ) as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        missing = _write_inputs(json.loads(spec), folder, Path(scratch) / "inputs", cache)
        _make_room(cache)
        if missing:
            return {"how": "missing", "missing": missing}
        return _execute(worker, folder, given)


def _cache(worker: Worker) -> Path:
    """Return the folder where a worker keeps inputs, by their SHA-256."""
    return Path(worker.local_directory) / "thetad-inputs"


def _make_room(cache: Path) -> None:
    """Remove the least recently used inputs until the cache is small enough."""
    kept = []
    for path in cache.glob("?" * 64):
        with contextlib.suppress(FileNotFoundError):  # another thread makes room too
            found = path.stat()
            kept.append((found.st_mtime, found.st_size, path))
    total = 0
    for _, size, path in sorted(kept, reverse=True):
        total += size
        if total > CACHE_BYTES:
            path.unlink(missing_ok=True)


def _write_inputs(spec: dict[str, Any], folder: Path, inputs: Path, cache: Path) -> list[str]:
    """Write the specification and its input files; return the hashes of missing ones."""
    missing = []
    for number, entry in enumerate(spec.get("inputs", {}).values()):
        digest, original = str(entry["sha256"]), Path(entry["path"])
        try:
            content = (cache / digest).read_bytes()
            os.utime(cache / digest)
        except FileNotFoundError:
            missing.append(digest)
            continue
        if hashlib.sha256(content).hexdigest() != digest:
            (cache / digest).unlink(missing_ok=True)
            missing.append(digest)
            continue
        node = inputs / str(number) / original.name  # the suffix tells the kind of file
        node.parent.mkdir(parents=True)
        node.write_bytes(content)
        entry["path"] = str(node)
        entry["name"] = entry.get("name") or original.name
    (folder / SPEC_FILE).write_text(json.dumps(spec), encoding="utf-8")
    return missing


def _execute(worker: Worker, folder: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job in `folder` within its limits, for as long as its client waits."""
    key = worker.get_current_task()
    limits = Limits(**order["limits"])
    attempt = LocalRun(folder, limits, frozenset(os.sched_getaffinity(0)), PRIORITY)
    reported: tuple[float, str] = (0.0, "")
    next_s = 0.0
    try:
        while (ended := attempt.poll()) is None:
            if worker.status.name not in _SERVING:
                return {"how": "interrupted", "reason": "its worker ends"}
            task = worker.state.tasks.get(key)
            if task is None or task.state not in _GOING_ON:  # the client has released it or is gone, which nobody says
                attempt.stop()
            now = time.monotonic()
            state = (attempt.pace.share, attempt.pace.what)
            if state != reported and now >= next_s:
                reported, next_s = state, now + _REPORT_S
                worker.log_event(order["topic"], {"run": order["run"], "share": state[0], "what": state[1]})
            time.sleep(_POLL_S)
    finally:
        if attempt.process.returncode is None:
            attempt.kill()
    outcome, results = folder / OUTCOME_FILE, folder / RESULTS_FOLDER
    return {
        "how": ended.how,
        "reason": ended.reason,
        "log": ended.log,
        "code": code_version.__wrapped__(),  # read anew: a runner loads the present files
        "outcome": outcome.read_bytes() if outcome.exists() else b"",
        "results": {path.name: path.read_bytes() for path in sorted(results.iterdir())} if results.exists() else {},
    }
