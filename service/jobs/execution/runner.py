"""Runner of one job in a process of its own: `python -m service.jobs.execution.runner FOLDER`.

Reads `FOLDER/spec.json`, runs the job, and writes results to `FOLDER/results/` and finally `FOLDER/outcome.json`.
Progress goes to stdout, one JSON object per line; stderr is the log. SIGTERM requests the end. The runner has no access
to the queue, so a run gives the same results anywhere and every time.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from service.worker.resources import die_with_parent
from service.worker.thread_limits import SINGLE_THREADED

if TYPE_CHECKING:
    from service.jobs.execution.spec import Spec
    from service.operations.workspace import Workspace

EXIT_OK = 0
EXIT_FAILED = 1
_BETWEEN_LINES_S = 0.2
PRIORITIES = ("idle", "low", "normal")
MB = 1_000_000
#: Memory of Python, compiled code and libraries, with room for a small job [10^6 bytes].
MIN_MEMORY_MB = 320


class ProgressWriter:
    """Writes progress: at once at a new step, otherwise a few times a second.

    A slow reader misses lines; without a reader the process ends.
    """

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # output of libraries belongs in the log
        self._what = ""
        self._next_s = 0.0

    def __call__(self, share: float, what: str) -> None:
        """Report the share done and the present step."""
        now = time.monotonic()
        if what == self._what and now < self._next_s:
            return
        self._what, self._next_s = what, now + _BETWEEN_LINES_S
        line = json.dumps({"share": round(share, 4), "what": what[:200]}).encode() + b"\n"
        if not select.select((), (self._out,), (), 0.0)[1]:
            return
        try:
            os.write(self._out, line)
        except BrokenPipeError:
            os._exit(EXIT_FAILED)


class StopFlag:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the daemon, which ends all in order

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True


def list_results(results: Path) -> dict[str, dict[str, Any]]:
    """Return hash and size of all results; raises `OperationError` if one is not a plain file with a plain name."""
    from drivers.files.atomic_write import sync_folder
    from service.jobs.queue.artifacts import sha256_of
    from service.operations.errors import OperationError
    from service.operations.workspace import PLAIN_NAME

    found: dict[str, dict[str, Any]] = {}
    for path in sorted(results.iterdir()):
        if PLAIN_NAME.fullmatch(path.name) is None or path.is_symlink() or not path.is_file():
            raise OperationError(f"result {path.name!r} is not a plain file with a plain name")
        found[path.name] = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
    sync_folder(results)
    return found


def empty_results(folder: Path) -> Path:
    """Return the folder for results, without what an earlier run has left; its outcome is removed first."""
    from service.jobs.execution.spec import OUTCOME_FILE, RESULTS_FOLDER

    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    results = folder / RESULTS_FOLDER
    results.mkdir(exist_ok=True)
    for path in results.iterdir():
        path.unlink()
    return results


def work(spec: Spec, workspace: Workspace) -> dict[str, Any]:
    """Run the job of `spec` and return the outcome of a good run."""
    from service.jobs.execution.code_version import code_version
    from service.jobs.kinds import find_kind
    from service.operations.errors import OperationError
    from service.protocol.json_values import json_values

    code = code_version()  # before most of it is loaded
    kind = find_kind(spec.kind)
    parameters = kind.read(spec.parameters)
    if spec.part is None and spec.parts is None:
        outcome = kind.run(parameters, workspace)
    elif kind.fan_out is None:
        raise OperationError(f"{spec.kind}: has no parts")
    elif spec.part is not None:
        return {"ok": True, "part": kind.fan_out.run_part(parameters, spec.part, workspace), "code": code}
    else:
        outcome = kind.fan_out.gather(parameters, spec.parts or [], workspace)
    return {
        "ok": True, "verdict": outcome.verdict, "summary": outcome.summary, "metrics": json_values(outcome.metrics),
        "accepted": outcome.accepted, "results": list_results(workspace.folder), "code": code,
    }  # fmt: skip


def run(folder: Path, memory_mb: float | None, spec: Spec, report: ProgressWriter, stop: StopFlag) -> dict[str, Any]:
    """Run the job and return its outcome, good or bad."""
    from service.operations.errors import OperationCancelledError, OperationError
    from service.operations.workspace import Workspace

    if memory_mb is not None and memory_mb < MIN_MEMORY_MB:
        raise OperationError(f"limits.memory_mb: {memory_mb:g} is less than the {MIN_MEMORY_MB} MB that any job needs")
    limit_memory(memory_mb)
    workspace = Workspace(
        empty_results(folder), spec.created, spec.arm, {name: entry.file for name, entry in spec.inputs.items()},
        report, lambda: stop.requested,
    )  # fmt: skip
    try:
        return work(spec, workspace)
    except OperationCancelledError:
        return failure("cancelled", final=True, cancelled=True)
    except MemoryError:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # so that the failure can be reported
        traceback.print_exc()
        limit = "there is" if memory_mb is None else f"{memory_mb:g} MB of"
        return failure(f"needed more than {limit} memory", final=True)


def failure(reason: str, *, final: bool, cancelled: bool = False) -> dict[str, Any]:
    """Return the outcome of a failed run."""
    from service.jobs.execution.code_version import code_version

    try:
        code = code_version()
    except OSError:  # which may be what ended the run
        code = {}
    return {"ok": False, "reason": " ".join(reason.split()), "final": final, "cancelled": cancelled, "code": code}


def outcome_of_error(error: Exception) -> dict[str, Any]:
    """Return the outcome after an error; the log has the traceback of one that is not the project's own."""
    from service.protocol.transient_errors import is_own
    from service.worker.worker import is_fatal

    if is_own(error):
        sys.stderr.write(f"{error}\n")
        return failure(str(error) or type(error).__name__, final=is_fatal(error))
    traceback.print_exception(error)
    return failure(f"{type(error).__name__}: {error}", final=False)


def yield_processor(priority: str) -> None:
    """Run only on idle processors ("idle"), with a small share of one ("low"), or like other processes ("normal")."""
    if priority == "idle":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    if priority != "normal":
        os.nice(19)


def limit_memory(memory_mb: float | None) -> None:
    """Limit this process's memory, and disable core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = int(memory_mb * MB)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def lacks_room(error: BaseException | None) -> bool:
    """Return whether an error, or what has led to it, is that there is no room on a disk."""
    while error is not None and getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
        error = error.__cause__ or error.__context__
    return error is not None


def main() -> int:
    """Run the job of a folder; the exit code is 0 if the outcome is good, EX_TEMPFAIL without room, 1 otherwise."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.runner")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int, help="end at once if this is not the process that started this one")
    parser.add_argument("--priority", choices=PRIORITIES, default="idle", help="among all processes")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent, signal.SIGKILL, EXIT_FAILED)
    os.environ.update(SINGLE_THREADED, MPLBACKEND="Agg")  # libraries read it when they are loaded
    yield_processor(arguments.priority)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    stop, report = StopFlag(), ProgressWriter()
    folder: Path = arguments.folder

    from service.jobs.execution.spec import read_spec, write_outcome

    try:
        try:
            spec = read_spec(folder)
            outcome = run(folder, spec.limits.get("memory_mb"), spec, report, stop)
        except Exception as error:
            if lacks_room(error):
                raise
            outcome = outcome_of_error(error)
        write_outcome(folder, outcome)
    except Exception as error:
        if lacks_room(error):
            return os.EX_TEMPFAIL
        raise
    return EXIT_OK if outcome["ok"] else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
