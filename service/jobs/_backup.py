"""Backup of a daemon's data while it runs: the queue, its files, and the estimators' states."""

import shutil
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from service.jobs._job_storage import JobStorage
from service.jobs.queue.artifacts import ArtifactError, Artifacts
from service.jobs.queue.retention import needed_files
from service.jobs.queue.store import FILE_NAME, Store, StoreError

ESTIMATORS = "estimators"


def back_up(
    storage: JobStorage, target: Path, states: Mapping[str, Path], stopping: threading.Event | None = None
) -> dict[str, int | str]:
    """Copy the queue, the results and windows that it names, and `states` by arm; return a summary.

    Files already in `target` are not read again. This may run in any thread, until `stopping`; raises `StoreError`.
    """
    target.mkdir(parents=True, exist_ok=True)
    storage.queue.store.backup(target / FILE_NAME)
    with closing(Store(target / FILE_NAME)) as store:  # the files that the copy names belong to it
        needed = needed_files(store)
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
            source = storage.artifacts.verify(sha256)
        except ArtifactError:  # the input of a job that is no artifact, or one that is lost already
            continue
        count(source)
        copies.put(source)
    for window in storage.windows.iterdir():
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
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f".{copy.name}.part")
    try:
        with source.open("rb") as stream, part.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)
        part.replace(copy)
    finally:
        part.unlink(missing_ok=True)
