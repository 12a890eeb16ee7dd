"""Runs on a real Dask cluster of this machine: the same bytes as locally, nothing lost with a worker or scheduler."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.dask._cluster import Cluster
from service.jobs.dask.backend import DaskBackend, DaskRun
from service.jobs.execution.backend import BackendBusyError, Ended, LocalBackend, Run
from service.jobs.queue.state import Limits
from service.worker.worker import FatalError
from tests.lab.jobs.job_run import PATIENCE_S, ROOT, spec
from tests.lab.jobs.small_disk import fill, small_disk

ENDLESS = {"methods": ["ols"], "seeds": 1000, "seconds": 4.0}
LIMITS = Limits(seconds=1000.0, memory_mb=2000.0)
WHAT_RUNS = ("drivers", "rt_core", "service", "sim_backend")


class Processes:
    """A scheduler on a free port, and workers, one thread each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[psutil.Popen] = []
        self.scheduler = self.start_scheduler()

    def start_scheduler(self) -> psutil.Popen:
        self.scheduler = self._dask("scheduler", "--port", str(self.port))
        return self.scheduler

    def start_worker(self, source: Path = ROOT) -> psutil.Popen:
        """Start a nanny, which starts the worker, and starts it again when it dies."""
        options = ("--nthreads", "1", "--memory-limit", "0", "--local-directory", str(self.folder))
        self.workers.append(self._dask("worker", self.address, *options, source=source))
        return self.workers[-1]

    def _dask(self, *words: str, source: Path = ROOT) -> psutil.Popen:
        command = [str(Path(sys.executable).with_name("dask")), *words, "--host", "127.0.0.1", "--no-dashboard"]
        path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
        with (self.folder / "dask.log").open("ab") as log:
            return psutil.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=os.environ | {"PYTHONPATH": path, "DASK_DISTRIBUTED__SCHEDULER__EVENTS_CLEANUP_DELAY": "1s"},
            )  # fmt: skip

    def runners(self) -> list[psutil.Process]:
        """Processes of runs under the workers; their parents are workers."""
        found = []
        for nanny in self.workers:
            for process in nanny.children(recursive=True) if nanny.is_running() else []:
                try:
                    if "service.jobs.execution.runner" in process.cmdline():
                        found.append(process)
                except psutil.Error:  # ended meanwhile
                    continue
        return found

    def close(self) -> None:
        every = [self.scheduler, *self.workers]
        below = [child for process in every if process.is_running() for child in process.children(recursive=True)]
        for process in below + every:
            if process.is_running():
                process.kill()
        psutil.wait_procs(below)
        for process in every:
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("dask"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.jobs.dask._cluster.ANSWER_S", PATIENCE_S)
        try:
            processes.start_worker()
            yield processes
        finally:
            processes.close()


@pytest.fixture(scope="module")
def dask(cluster: Processes) -> Iterator[DaskBackend]:
    backend = DaskBackend(cluster.address)
    yield backend
    backend.close()


def until(done: Callable[[], Any], what: str) -> Any:
    """Wait for something that happens in another process."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := done()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return found


def ended(run: Run) -> Ended:
    found: Ended = until(run.poll, "the end of the run")
    return found


def ready(backend: DaskBackend) -> None:
    until(lambda: backend.free() and not backend.trouble, f"a free worker; {backend.trouble}")


def outcome(backend: DaskBackend, folder: Path) -> Ended:
    """Run to the end; again, as the queue does, where the machine was too busy to keep the connection."""
    for attempt in range(3):
        ready(backend)
        with contextlib.suppress(BackendBusyError):
            end = ended(backend.start(f"{folder.name}{attempt}", folder, LIMITS))
            if end.how != "interrupted":
                break
    assert end.how == "outcome", end
    return end


def folder_of(path: Path, kind: str, parameters: dict[str, Any], **files: Path) -> Path:
    path.mkdir()
    (path / "spec.json").write_text(json.dumps(spec(kind, parameters, files)), encoding="utf-8")
    return path


def endless(cluster: Processes, backend: DaskBackend, path: Path, arm: Path, limits: Limits = LIMITS) -> DaskRun:
    """Start a run that goes on, and wait until it says so."""
    ready(backend)
    run = backend.start(path.name, folder_of(path, "compare", ENDLESS | {"robot": str(arm)}), limits)
    assert backend.free() == 0
    with pytest.raises(BackendBusyError, match="free"):
        backend.start("another", path, limits)
    until(lambda: run.poll() or run.pace.share > 0.0, "progress")
    assert run.poll() is None, run.poll()
    assert run.pace.what.startswith("seed ")
    assert len(cluster.runners()) == 1
    return run


def left(folder: Path) -> dict[str, bytes]:
    """Contents of what a run left."""
    paths = [folder / "outcome.json", folder / "log.txt", *sorted((folder / "results").iterdir())]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.slow
def test_a_run_leaves_the_same_bytes_as_a_local_one(
    cluster: Processes, dask: DaskBackend, tmp_path: Path, arm2_model: Path, arm2_recording: Path
) -> None:
    recording = tmp_path / "recording.mcap"
    shutil.copy(arm2_recording, recording)
    files = {"model": arm2_model, "recording": recording}
    words = {name: str(path) for name, path in files.items()}
    local = LocalBackend(1, frozenset(os.sched_getaffinity(0)), "normal")
    here, there, again = (folder_of(tmp_path / name, "validate", words, **files) for name in ("here", "there", "again"))
    assert ended(local.start("1", here, LIMITS)).how == "outcome"
    assert outcome(dask, there).outcome == json.loads((here / "outcome.json").read_bytes())
    assert set(left(there)) == {"outcome.json", "log.txt", "report.html", "metrics.json"}
    assert left(there) == left(here)

    # The worker keeps inputs; one that rotted on its disk is sent again, one that it has is not read again.
    kept = {path.name: path for path in cluster.folder.rglob("thetad-inputs/*")}
    inputs = {name: entry["sha256"] for name, entry in json.loads((there / "spec.json").read_text())["inputs"].items()}
    assert set(inputs.values()) <= set(kept)
    kept[inputs["model"]].write_bytes(b"rotten")
    recording.unlink()
    assert outcome(dask, again).how == "outcome"
    assert left(again) == left(here)


def test_an_input_that_changed_ends_a_run_as_it_does_locally(
    dask: DaskBackend, tmp_path: Path, arm2_model: Path
) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(arm2_model.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")  # no worker has it
    files = {"model": model, "recording": arm2_model}
    folder = folder_of(tmp_path / "job", "validate", {name: str(path) for name, path in files.items()}, **files)
    model.write_text(model.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    ready(dask)
    end = ended(dask.start("1", folder, LIMITS))
    assert (end.how, end.reason) == (
        "final",
        f"model: {model}: has changed since the job was submitted; submit it again",
    )


@pytest.mark.slow
def test_a_worker_that_is_killed_interrupts_its_run_alone(
    cluster: Processes, dask: DaskBackend, tmp_path: Path, arm2: Path
) -> None:
    run = endless(cluster, dask, tmp_path / "first", arm2)
    (runner,) = cluster.runners()
    runner.parent().kill()
    end = ended(run)
    assert end.how == "interrupted"
    assert "worker" in end.reason
    psutil.wait_procs([runner], timeout=PATIENCE_S)
    assert not runner.is_running()

    ready(dask)  # the nanny starts another one


def test_a_worker_that_is_lost_while_a_run_starts_ends_it(
    cluster: Processes, dask: DaskBackend, tmp_path: Path, arm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers are lost when a run has been sent, and before its task is known."""
    original = Cluster.begin

    def begin(self: Cluster, work: Any) -> Any:
        task = original(self, work)
        until(cluster.runners, "the runner")
        lost = threading.Event()
        for step in (partial(self._update_nodes, {}, "its worker was lost"), lost.set):
            self._loop.call_soon_threadsafe(step)
        assert lost.wait(PATIENCE_S)
        return task

    ready(dask)
    folder = folder_of(tmp_path / "run", "compare", ENDLESS | {"robot": str(arm2), "seconds": 400.0})
    monkeypatch.setattr(Cluster, "begin", begin)
    run = dask.start("run", folder, LIMITS)
    assert ended(run).how == "interrupted"
    until(run.task.done, "the end of the task")
    until(lambda: not cluster.runners(), "the end of the runner")


@pytest.mark.parametrize("error", [KeyError("nthreads"), asyncio.CancelledError("nthreads")], ids=type)
def test_the_connection_is_made_again_after_any_error(
    error: BaseException, cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, original = [error] * 2, Cluster._update_nodes

    def see(self: Cluster, workers: Any, why: str) -> None:
        if workers and errors:
            raise errors.pop()
        original(self, workers, why)

    monkeypatch.setattr(Cluster, "_update_nodes", see)
    backend = DaskBackend(cluster.address)
    try:
        ready(backend)
        assert not errors
    finally:
        backend.close()


def test_workers_end_what_they_do_for_a_client_that_is_gone(cluster: Processes, tmp_path: Path, arm2: Path) -> None:
    from distributed import Client

    def report_progress() -> list[Any]:
        """What the scheduler keeps of the run's progress."""
        every = [message for said_there in client.get_events().values() for _, message in said_there]
        return [message for message in every if isinstance(message, dict) and message.get("run") == "of-one-that-goes"]

    backend = DaskBackend(cluster.address)
    with Client(cluster.address, set_as_default=False) as client:
        endless(cluster, backend, tmp_path / "of-one-that-goes", arm2)
        assert report_progress()
        backend.close()
        until(lambda: not cluster.runners(), "the end of the runner")
        until(lambda: not report_progress(), "the scheduler forgets what was said")


@pytest.mark.slow
def test_a_scheduler_that_is_killed_interrupts_all_and_other_code_is_refused(tmp_path: Path, arm2: Path) -> None:
    cluster = Processes(tmp_path)
    backend = DaskBackend(cluster.address)
    try:
        worker = cluster.start_worker()
        run = endless(cluster, backend, tmp_path / "run", arm2)
        (runner,) = cluster.runners()
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        end = ended(run)
        assert end.how == "interrupted"
        assert cluster.address in end.reason
        until(lambda: backend.trouble, "word of the loss")
        assert backend.free() == 0
        assert worker.wait(PATIENCE_S) is not None  # workers end with their scheduler
        psutil.wait_procs([runner], timeout=PATIENCE_S)
        assert not runner.is_running()

        cluster.start_scheduler()
        changed = tmp_path / "changed"
        for package in WHAT_RUNS:
            shutil.copytree(ROOT / package, changed / package, ignore=shutil.ignore_patterns("__pycache__"))
        with (changed / "rt_core" / "types.py").open("a") as source:
            source.write("\n")
        cluster.start_worker(changed)
        until(lambda: "sources of thetad" in backend.trouble, "refusal of the worker")
        assert backend.free() == 0

        cluster.start_worker()
        ready(backend)
    finally:
        backend.close()
        cluster.close()


@pytest.mark.slow
def test_a_full_disk_puts_a_run_off_on_either_side(tmp_path: Path, arm2: Path) -> None:
    """The worker is not used until there is room again; results that cannot be kept are computed again."""
    with small_disk(tmp_path / "there", 4) as there, small_disk(tmp_path / "here", 1) as here:
        cluster = Processes(there)
        backend = DaskBackend(cluster.address)
        folder = folder_of(here / "job", "compare", ENDLESS | {"seeds": 1, "robot": str(arm2)})
        try:
            cluster.start_worker()
            for disk, how in ((there, "interrupted"), (here, "put_off")):
                ready(backend)
                filler = fill(disk)
                end = ended(backend.start(f"run {how}", folder, LIMITS))
                assert (end.how, "No space left on device" in end.reason) == (how, True)
                filler.unlink()
            assert outcome(backend, folder).how == "outcome"
        finally:
            backend.close()
            cluster.close()


@pytest.mark.parametrize("listens", [False, True], ids=["nobody", "silent"])
def test_a_scheduler_that_does_not_answer_is_reported(
    listens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.dask._cluster.CONNECT_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        backend = DaskBackend(address)
        try:
            assert backend.trouble
            assert backend.free() == 0
            until(lambda: f"the scheduler at {address} does not answer" in backend.trouble, "the reason")
            assert "\n" not in backend.trouble
            with pytest.raises(BackendBusyError, match="does not answer"):
                backend.start("1", tmp_path, LIMITS)
        finally:
            backend.close()


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "http://127.0.0.1:8786", "tcp://host:port"])
def test_a_wrong_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(FatalError, match=r"jobs\.scheduler: .* is not like"):
        DaskBackend(address)


def test_without_the_extra_one_line_has_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FatalError) as refused:
        DaskBackend("tcp://127.0.0.1:8786")
    assert str(refused.value) == "jobs.backend = \"dask\" needs Dask: pip install 'thetad[dask]'"
