"""Progress bar on stderr, shown only on a terminal."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from service.cli._common import Exit, printed_json
from service.operations.kind import Kind, Outcome


class Progress:
    """Progress bar with the current step and the time left; a context manager."""

    def __init__(self, title: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(title, total=None)

    def step(self, done: float, of: float, what: str) -> None:
        """Show that `done` of `of` steps are finished and `what` comes next."""
        self._bar.update(self._task, completed=done, total=of, description=what)

    def share(self, share: float, what: str) -> None:
        """Show that a share of the work is finished."""
        self.step(share, 1.0, what)

    def __enter__(self) -> Self:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.console.is_terminal:
            self._bar.stop()


def run_operation(kind: Kind[Any], parameters: Any, folder: Path) -> Outcome:
    """Run a job with `parameters` from `kind.read`, and write its results to `folder`; raises `OperationError`."""
    with Progress(kind.name) as progress:
        return kind.run_here(parameters, folder, progress.share)


def report_outcome(outcome: Outcome, args: argparse.Namespace, show: Callable[[Outcome, Path], None]) -> int:
    """Print the outcome, as JSON or with `show`, and return the exit code."""
    if not printed_json(args, outcome.metrics | {"output": str(args.output)}):
        show(outcome, args.output)
    return Exit.OK if outcome.accepted else Exit.NO
