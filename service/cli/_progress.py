"""A line of progress on stderr for what takes longer than a blink; silent where nobody watches."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rt_core.optimise.run import Progress as SearchProgress


class Progress:
    """Shows how much is done, what is under way and how long it will take; a context manager."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(title, total=None)

    def step(self, done: float, of: float, what: str) -> None:
        """Say that `done` of `of` steps are over and `what` comes next."""
        self._bar.update(self._task, completed=done, total=of, description=what)

    def search(self, progress: SearchProgress) -> None:
        """Follow a search of `rt_core.optimise`."""
        self.step(progress.iteration, progress.of, f"search ({progress.stage}), cost {progress.cost:.4g}")

    def __enter__(self) -> Self:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar.console.is_terminal:
            self._bar.stop()
