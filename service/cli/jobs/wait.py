"""Connect to a daemon's jobs, and wait for jobs with a progress display."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from service.cli._common import CliError, Exit, fail, print_json
from service.cli._remote import connected_control
from service.cli.jobs.text import line, now_line

if TYPE_CHECKING:
    from service.client import Jobs
    from service.protocol.job_replies import JobDetail

_BETWEEN_LINES_S = 10.0
_MAX_S = 1e8


@contextlib.contextmanager
def connected(arguments: argparse.Namespace, timeout_s: float | None = None) -> Iterator[Jobs]:
    """Connect to a daemon's jobs; raises `CliError` if refused, `UnavailableError` if it is busy or silent.

    `timeout_s` is the longest wait for a reply, by default `--timeout`.
    """
    from service.client import Jobs

    timeout_s = arguments.timeout if timeout_s is None else timeout_s
    if not 0.0 < timeout_s <= _MAX_S:
        raise CliError(f"--timeout {timeout_s:g}: give seconds above zero")
    with connected_control(arguments) as control:
        yield Jobs(control, timeout_s)


class Display:
    """Progress of a job on stderr: one redrawn line on a terminal, else a line for each change."""

    def __init__(self) -> None:
        self._live, self._shown, self._next_s = sys.stderr.isatty(), "", 0.0

    def __call__(self, job: JobDetail) -> None:
        """Show a job."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + now_line(job)[:width], end="", file=sys.stderr, flush=True)
            return
        if job.state not in ("queued", "running"):
            return
        what = f"{job.id} {job.state} {job.waits}"
        now = time.monotonic()
        if what != self._shown or now >= self._next_s:
            self._shown, self._next_s = what, now + _BETWEEN_LINES_S
            print(line(job), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clear the line."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def wait_and_report(jobs: Jobs, ids: Sequence[int], *, as_json: bool, timeout_s: float | None = None) -> int:
    """Wait for all jobs and print their results; return the exit code.

    With `as_json` a single job is printed as itself, several as `{"jobs": [...]}`. Ctrl-C leaves them running.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    display = Display()
    done: list[JobDetail] = []
    try:
        for id in ids:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            done.append(jobs.wait(id, left_s, display))
            display.clear()
            if not as_json:
                print(line(done[-1]), flush=True)
    except KeyboardInterrupt:
        display.clear()
        numbers = " ".join(str(id) for id in ids[len(done) :])
        verb = "goes on" if len(ids) - len(done) == 1 else "go on"
        fail(f"job {numbers} {verb}; `thetad jobs wait {numbers}` waits again, `thetad jobs cancel {numbers}` stops")
        return Exit.INTERRUPTED
    except BaseException:
        display.clear()
        raise
    if as_json:
        print_json(done[0] if len(ids) == 1 else {"jobs": done})
    return Exit.OK if all(job.state == "succeeded" for job in done) else Exit.NO
