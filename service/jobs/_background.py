"""Background work for requests that read or copy large files."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from service.protocol.control import ControlError

T = TypeVar("T")

SOON_BYTES = 20_000_000  # of a file that is read without noticeable delay
_THREADS = 4
_MAX = 32  # running or waiting


class BackgroundWork:
    """Runs work in threads, and continues with the results in the thread that calls `step`.

    The work must not use the queue, which belongs to the thread that opened it. Long work checks the event `stopping`,
    set when the process ends, now and then.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._pool = ThreadPoolExecutor(_THREADS, "aside")
        self._begun: list[tuple[Future[Any], Callable[[Callable[[], Any]], None]]] = []

    def begin(self, work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> None:
        """Begin `work`; `then` gets a function that returns its result or raises its error; `ControlError`: busy."""
        if len(self._begun) >= _MAX:
            raise ControlError("failed", f"{_MAX} requests are at work on large files already; try again later")
        self._begun.append((self._pool.submit(work), then))

    def step(self) -> None:
        """Continue with the results of finished work."""
        done = [one for one in self._begun if one[0].done()]
        self._begun = [one for one in self._begun if one not in done]
        for future, then in done:
            then(future.result)

    def close(self) -> None:
        """Begin nothing more, and let running work finish."""
        self.stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
