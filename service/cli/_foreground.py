"""A kind of job as a command: done here and now, without a daemon, with a line of progress."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, print_json
from service.cli._progress import Progress

if TYPE_CHECKING:
    from service.operations.kind import Kind, Outcome
    from service.operations.workspace import Input


def run_here(kind: Kind[Any], parameters: Any, folder: Path, inputs: Mapping[str, Input] | None = None) -> Outcome:
    """Do a job with `parameters`, as `kind.read` returned them, and leave its results in `folder`; `JobError`."""
    from service.operations.workspace import Workspace

    with Progress(kind.name) as progress:
        workspace = Workspace(
            folder,
            datetime.now(UTC).isoformat(timespec="seconds"),
            inputs=inputs or {},
            tell=lambda share, what: progress.step(share, 1.0, what),
        )
        return kind.run(parameters, workspace)


def tell_outcome(outcome: Outcome, args: argparse.Namespace, show: Callable[[Outcome, Path], None]) -> int:
    """Print the outcome, as JSON or with `show`, and return the exit code."""
    if args.json:
        print_json(outcome.metrics | {"output": str(args.output)})
    else:
        show(outcome, args.output)
    return EXIT_OK if outcome.accepted else EXIT_NO
