"""Work that takes longer than a request may keep the others waiting: files that are read or copied."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from service.protocol.control import ControlError

T = TypeVar("T")

SOON_BYTES = 20_000_000  # of a file that is read in no time
_THREADS = 4
_MAX = 32  # at work or waiting


class BackgroundWork:
    """Does work in threads, and goes on with what came of it in the thread that calls `step`.

    Nothing that is done aside may use the queue, which belongs to the thread that opened it.

    Attributes
    ----------
    stopping : threading.Event
        Set when the process ends: work that takes long looks at it now and then.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._pool = ThreadPoolExecutor(_THREADS, "aside")
        self._begun: list[tuple[Future[Any], Callable[[Callable[[], Any]], None]]] = []

    def begin(self, work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> None:
        """Begin with `work`; `then` gets a function that returns its result, or raises what it raised.

        Raises
        ------
        ControlError
            Too much has been begun already.
        """
        if len(self._begun) >= _MAX:
            raise ControlError("failed", f"{_MAX} requests are at work on large files already; try again later")
        self._begun.append((self._pool.submit(work), then))

    def step(self) -> None:
        """Go on with what is done."""
        done = [one for one in self._begun if one[0].done()]
        self._begun = [one for one in self._begun if one not in done]
        for future, then in done:
            then(future.result)

    def close(self) -> None:
        """Begin nothing more, and let what is at work come to an end."""
        self.stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
