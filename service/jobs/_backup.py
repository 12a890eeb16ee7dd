"""A copy of what the daemon keeps, made while it works: the queue, what it names, and the estimators' states."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from service.jobs._job_storage import Holdings
from service.jobs.queue.artifacts import ArtifactError, Artifacts
from service.jobs.queue.retention import needed_files
from service.jobs.queue.store import FILE_NAME, Store, StoreError

ESTIMATORS = "estimators"


def back_up(
    holdings: Holdings, target: Path, states: Mapping[str, Path], stopping: threading.Event | None = None
) -> dict[str, int | str]:
    """Copy the queue, the results and windows that it names, and `states` by arm; returns what was copied.

    What is in `target` already is not read again.  This may be done in any thread.

    Raises
    ------
    StoreError, OSError
        What is at `target` is a queue in use, it cannot be written, or the process is `stopping`.
    """
    target.mkdir(parents=True, exist_ok=True)
    holdings.queue.store.backup(target / FILE_NAME)
    store = Store(target / FILE_NAME)  # what the copy names is what belongs to it
    try:
        needed = needed_files(store)
    finally:
        store.close()
    copies = Artifacts(target)
    files = size = 0

    def count(source: Path) -> None:
        nonlocal files, size
        if stopping is not None and stopping.is_set():
            raise StoreError("the daemon is stopped: the copy is not complete")
        files += 1
        size += source.stat().st_size

    for sha256 in sorted(needed.artifacts):
        try:
            if copies.place(sha256).exists():
                continue
            source = holdings.artifacts.verify(sha256)
        except ArtifactError:  # the input of a job that is no artifact, or one that is lost already
            continue
        count(source)
        copies.put(source)
    for window in holdings.windows.iterdir():
        copy = target / "windows" / window.name
        if str(window.resolve()) in needed.paths and not copy.exists():
            count(window)
            _copy(window, copy)
    for arm, state in states.items():
        if state.exists():
            count(state)
            _copy(state, target / ESTIMATORS / arm / state.name)
    return {"path": str(target), "files": files + 1, "bytes": size}


def _copy(source: Path, copy: Path) -> None:
    """Copy a file; it appears whole or not at all."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f".{copy.name}.part")
    try:
        with source.open("rb") as stream, part.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)
        part.replace(copy)
    finally:
        part.unlink(missing_ok=True)
