"""Stop of a server by SIGTERM or SIGINT."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT; no handlers are set outside the main thread."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    old = [(number, signal.signal(number, handle)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in old:
            signal.signal(number, handler)
