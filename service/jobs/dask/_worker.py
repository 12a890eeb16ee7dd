"""What a Dask worker does for us: one run of a job, in a process of its own, as the local backend would do it.

`run` is all of ours that a worker ever calls, besides `describe` and `keep`.  They take bytes and give plain values,
and what is started is the runner: a job's parameters stay data.
"""

from __future__ import annotations

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

from service.io.atomic_files import write_bytes
from service.jobs.execution.backend import OUTCOME, RESULTS, SPEC, LocalRun
from service.jobs.execution.code_version import code_version
from service.jobs.queue.state import Limits

CACHE_BYTES = 1_000_000_000  # of inputs that a worker keeps on its disk for later runs
PRIORITY = "low"  # the machine is there for jobs, but the worker has to answer while they run
_POLL_S = 0.05
_TELL_S = 0.5  # between two reports of progress; the scheduler keeps a number of them
_GOING_ON = ("executing", "long-running")  # states of a task that somebody waits for
_SERVING = ("init", "running", "paused", "closing_gracefully")  # of a worker that will still give an answer


def describe() -> dict[str, str]:
    """Tell what code this worker runs."""
    return code_version()


def keep(content: bytes) -> None:
    """Keep an input on the disk of the worker that calls this, for a `run` that follows."""
    write_bytes(_cache(get_worker()) / hashlib.sha256(content).hexdigest(), content)


def difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Say how the code of another machine differs from the one here, such that numbers may; empty if it does not.

    The processor is no difference: machines of a cluster are seldom all alike.
    """
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
    """Do one run on the worker that calls this, and return what it left.

    Parameters
    ----------
    order : bytes
        JSON: `run`, its name; `topic`, where progress is told; `limits`, `seconds` and `memory_mb`; `code`, what the
        client runs.
    spec : bytes
        The run's `spec.json`, with paths as on the client; this worker has to `keep` what they lead to.

    Returns
    -------
    dict
        `how` and `reason` as in `service.jobs.execution.backend.Ended`, or `how` is "refused" (other code here),
        "missing" (`missing`: hashes of inputs to be sent again), or "interrupted" (the worker ends).  After a run also
        `outcome` (bytes of `outcome.json`, empty if there is none), `results` (bytes by name), `log`, and `code`: what
        is installed on the worker then, for a run that left no word of what it ran.
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
        missing = _lay_out(json.loads(spec), folder, Path(scratch) / "inputs", cache)
        _make_room(cache)
        if missing:
            return {"how": "missing", "missing": missing}
        return _carry_out(worker, folder, given)


def _cache(worker: Worker) -> Path:
    """Where a worker keeps inputs, by their SHA-256."""
    return Path(worker.local_directory) / "thetad-inputs"


def _make_room(cache: Path) -> None:
    """Remove inputs from the cache until it is small enough; what was used last stays longest."""
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


def _lay_out(spec: dict[str, Any], folder: Path, inputs: Path, cache: Path) -> list[str]:
    """Write the specification and the files that it refers to; return the hashes of those that are not here."""
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
        place = inputs / str(number) / original.name  # the ending tells what kind of file it is
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
        entry["path"] = str(place)
        entry["name"] = entry.get("name") or original.name
    (folder / SPEC).write_text(json.dumps(spec), encoding="utf-8")
    return missing


def _carry_out(worker: Worker, folder: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Run what is in `folder` within its limits, for as long as somebody waits for it."""
    key = worker.get_current_task()
    limits = Limits(**order["limits"])
    attempt = LocalRun(folder, limits, frozenset(os.sched_getaffinity(0)), PRIORITY)
    told: tuple[float, str] = (0.0, "")
    next_s = 0.0
    try:
        while (ended := attempt.poll()) is None:
            if worker.status.name not in _SERVING:
                return {"how": "interrupted", "reason": "its worker ends"}
            if _unwanted(worker, key):
                attempt.stop()
            now = time.monotonic()
            state = (attempt.pace.share, attempt.pace.what)
            if state != told and now >= next_s:
                told, next_s = state, now + _TELL_S
                worker.log_event(order["topic"], {"run": order["run"], "share": state[0], "what": state[1]})
            time.sleep(_POLL_S)
    finally:
        if attempt.process.returncode is None:
            attempt.kill()
    outcome, results = folder / OUTCOME, folder / RESULTS
    return {
        "how": ended.how,
        "reason": ended.reason,
        "log": ended.log,
        "code": code_version.__wrapped__(),  # not as it was when the worker started: a runner reads the files anew
        "outcome": outcome.read_bytes() if outcome.exists() else b"",
        "results": {path.name: path.read_bytes() for path in sorted(results.iterdir())} if results.exists() else {},
    }


def _unwanted(worker: Worker, key: Any) -> bool:
    """Tell whether the client has let go of the task, or is gone: Dask does not tell the task."""
    task = worker.state.tasks.get(key)
    return task is None or task.state not in _GOING_ON
