"""Storage of the jobs process below the state directory: queue, results, windows, folders of runs."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.config.daemon import JobsConfig
from service.jobs._path_policy import PathPolicy
from service.jobs.queue.artifacts import Artifacts
from service.jobs.queue.queue import Queue
from service.jobs.queue.retention import DAY_S, age_clock_ns, needed_files, purge
from service.jobs.queue.salvage import Salvaged, finish_salvage, salvage
from service.jobs.queue.store import FILE_NAME, Store, StoreCorruptError, StoreError
from service.jobs.references import References

_NEW_S = 3600.0  # a window younger than this may belong to a job that is being submitted


@dataclass
class JobStorage:
    """An open queue and the folders beside it."""

    directory: Path
    queue: Queue
    artifacts: Artifacts
    references: References
    salvaged: Salvaged | None = None

    @classmethod
    def open(cls, directory: Path, path_policy: PathPolicy | None = None) -> "JobStorage":
        """Open the storage in `directory`, made if missing; salvage a damaged queue. `StoreError`: a retry may help.

        Clients may name files within `path_policy`; None: any.
        """
        salvaged = None
        try:
            for folder in (directory, directory / "windows", directory / "runs"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = directory.resolve()  # jobs name files without links
            path = directory / FILE_NAME
            artifacts = Artifacts(directory)
            finish_salvage(path)
            try:
                store = Store(path)
            except StoreCorruptError:
                salvaged = salvage(path)
                store = Store(path)
        except OSError as error:
            raise StoreError(f"{error.filename or directory}: {error.strerror}") from error
        queue = Queue(store)
        return cls(directory, queue, artifacts, References(queue, artifacts, path_policy or PathPolicy()), salvaged)

    @property
    def runs(self) -> Path:
        """Folders of the runs under way."""
        return self.directory / "runs"

    @property
    def windows(self) -> Path:
        """Windows of frames that jobs read."""
        return self.directory / "windows"

    def free_mb(self) -> float:
        """Return the free space on the disk [10^6 bytes]; raises `StoreError`."""
        with _disk(self.directory):
            found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize * 1e-6

    def clear_runs(self) -> None:
        """Remove folders left by earlier runs; raises `StoreError`."""
        with _disk(self.runs):
            for folder in self.runs.iterdir():
                shutil.rmtree(folder, ignore_errors=True)

    def purge(self, config: JobsConfig) -> int:
        """Delete old jobs, and results and windows that no job needs; return the number of deleted jobs."""
        gone = purge(self.queue.store, age_clock_ns(config.keep_days * DAY_S), config.keep_days, config.keep_jobs)
        needed = needed_files(self.queue.store)
        before = 1e-9 * age_clock_ns(_NEW_S) - _NEW_S
        with _disk(self.directory):
            self.artifacts.sweep(needed.artifacts)
            for window in self.windows.iterdir():
                if str(window.resolve()) not in needed.paths and window.stat().st_mtime < before:
                    window.unlink(missing_ok=True)
        return gone

    def close(self) -> None:
        self.queue.store.close()


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn errors of files into `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror}") from error
