"""One run of a job in a process of its own: `python -m service.jobs.execution.runner FOLDER`.

Reads `FOLDER/spec.json`, does what it says, leaves results in `FOLDER/results/`, and last of all `FOLDER/outcome.json`.
It says how far it is on stdout, one JSON object a line; stderr is the log.  SIGTERM asks it to stop.  It never sees the
queue, so it does the same wherever it runs, and again the same when it runs again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from service.jobs.execution._resource_limits import (
    MIN_MEMORY_MB,
    die_with_parent,
    lift_memory_limit,
    limit_memory,
    set_environment,
    yield_processor,
)

if TYPE_CHECKING:
    from service.jobs.execution.spec import Spec
    from service.operations.workspace import Workspace

EXIT_OK = 0
EXIT_FAILED = 1
_BETWEEN_LINES_S = 0.2
PRIORITIES = ("idle", "low", "normal")


class Teller:
    """Says how far the job is: at once when something else begins, else a few times a second.

    A reader that is slow misses lines; one that is gone ends the process, for nobody waits for the result.
    """

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # what a library prints belongs in the log
        self._what = ""
        self._next_s = 0.0

    def __call__(self, share: float, what: str) -> None:
        """Say that a `share` is done, and `what` is being done."""
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


class Stop:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the daemon, which ends all in order

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True


def listed(results: Path) -> dict[str, dict[str, Any]]:
    """Hash and size of all results; `JobError` if one is no plain file with a plain name."""
    from service.io.atomic_files import sync_folder
    from service.operations.workspace import PLAIN_NAME, JobError

    found: dict[str, dict[str, Any]] = {}
    for path in sorted(results.iterdir()):
        if PLAIN_NAME.fullmatch(path.name) is None or path.is_symlink() or not path.is_file():
            raise JobError(f"result {path.name!r} is not a plain file with a plain name")
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        found[path.name] = {"sha256": digest, "bytes": path.stat().st_size}
    sync_folder(results)
    return found


def emptied(folder: Path) -> Path:
    """Folder for results without what an earlier run has left there; its outcome goes first."""
    from service.jobs.execution.spec import OUTCOME_FILE, RESULTS_FOLDER

    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    results = folder / RESULTS_FOLDER
    results.mkdir(exist_ok=True)
    for path in results.iterdir():
        path.unlink()
    return results


def work(spec: Spec, workspace: Workspace) -> dict[str, Any]:
    """Do what `spec` says and return the outcome of a good run."""
    from service.jobs.execution.code_version import code_version
    from service.jobs.kinds import find_kind
    from service.operations.workspace import JobError
    from service.protocol.json_values import plain

    code = code_version()  # as it is before most of it is loaded
    kind = find_kind(spec.kind)
    parameters = kind.read(spec.parameters)
    if spec.part is None and spec.parts is None:
        outcome = kind.run(parameters, workspace)
    elif kind.fan_out is None:
        raise JobError(f"{spec.kind}: has no parts")
    elif spec.part is not None:
        return {"ok": True, "part": kind.fan_out.run_part(parameters, spec.part, workspace), "code": code}
    else:
        outcome = kind.fan_out.gather(parameters, spec.parts or [], workspace)
    return {
        "ok": True,
        "verdict": outcome.verdict,
        "summary": outcome.summary,
        "metrics": plain(outcome.metrics),
        "accepted": outcome.accepted,
        "results": listed(workspace.folder),
        "code": code,
    }


def run(folder: Path, memory_mb: float | None, spec: Spec, tell: Teller, stop: Stop) -> dict[str, Any]:
    """Do the job and return its outcome, good or bad."""
    from service.operations.workspace import JobCancelledError, JobError, Workspace

    if memory_mb is not None and memory_mb < MIN_MEMORY_MB:
        raise JobError(f"limits.memory_mb: {memory_mb:g} is less than the {MIN_MEMORY_MB} MB that any job needs")
    limit_memory(memory_mb)
    workspace = Workspace(
        emptied(folder),
        spec.created,
        spec.arm,
        {name: entry.file for name, entry in spec.inputs.items()},
        tell,
        lambda: stop.asked,
    )
    try:
        return work(spec, workspace)
    except JobCancelledError:
        return failure("cancelled", final=True, cancelled=True)
    except MemoryError:
        lift_memory_limit()
        traceback.print_exc()
        limit = "there is" if memory_mb is None else f"{memory_mb:g} MB of"
        return failure(f"needed more than {limit} memory", final=True)


def failure(reason: str, *, final: bool, cancelled: bool = False) -> dict[str, Any]:
    """Outcome of a run that gave nothing."""
    from service.jobs.execution.code_version import code_version

    try:
        code = code_version()
    except OSError:  # which may be what ended the run
        code = {}
    return {"ok": False, "reason": " ".join(reason.split()), "final": final, "cancelled": cancelled, "code": code}


def explained(error: Exception) -> dict[str, Any]:
    """Outcome of a run that an error ended; the log has the place of one that is not the project's own."""
    from service.worker.worker import is_fatal, is_own

    if is_own(error):
        sys.stderr.write(f"{error}\n")
        return failure(str(error) or type(error).__name__, final=is_fatal(error))
    traceback.print_exception(error)
    return failure(f"{type(error).__name__}: {error}", final=False)


def main() -> int:
    """Run the job of a folder; the exit code is 0 if the outcome is good, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m service.jobs.execution.runner")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int, help="end at once if this is not the process that started this one")
    parser.add_argument("--priority", choices=PRIORITIES, default="idle", help="among all processes")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    set_environment()
    yield_processor(arguments.priority)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    stop, tell = Stop(), Teller()
    folder: Path = arguments.folder

    from service.jobs.execution.spec import read_spec, write_outcome

    try:
        spec = read_spec(folder)
        outcome = run(folder, spec.limits.memory_mb, spec, tell, stop)
    except Exception as error:
        write_outcome(folder, explained(error))
        raise SystemExit(EXIT_FAILED) from error
    write_outcome(folder, outcome)
    return EXIT_OK if outcome["ok"] else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
