"""From a daemon to a viewer until told to stop: says when nothing comes any more, and waits for it to come again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from service.bridge._schemas import Stream
from service.bridge.shape import Shaped, Shaper
from service.client import ClientTimeoutError, Subscriber

#: A daemon tells of itself every second; after so long without a word it counts as gone.
SILENT_S = 3.0
_TURN_S = 0.2


class Viewer(Protocol):
    """Where messages are shown."""

    def offer(self, stream: Stream) -> None:
        """Tell of a stream, before its first message."""

    def send(self, shaped: Shaped) -> None:
        """Show a message; does not wait for anybody."""

    def warn(self, text: str) -> None:
        """Show a warning, or take it away if `text` is empty."""


@dataclass
class Relayed:
    """What came in the end: messages heard, times that the daemon fell silent, seconds."""

    messages: int = 0
    silences: int = 0
    seconds: float = 0.0


def relay(
    stream: Subscriber,
    shaper: Shaper,
    viewer: Viewer,
    done: threading.Event,
    tell: Callable[[str], None],
    seconds: float | None = None,
) -> Relayed:
    """Pass on what comes until `done` is set, or for some seconds; raises `NotAdmittedError`."""
    result = Relayed()
    began = heard = time.monotonic()
    silent = False
    while not done.is_set() and (seconds is None or time.monotonic() - began < seconds):
        try:
            message = stream.receive(_TURN_S)
        except ClientTimeoutError:
            if not silent and time.monotonic() - heard > SILENT_S:
                silent = True
                result.silences += 1
                text = f"{stream.endpoint}: nothing from the daemon, or of that arm, for {SILENT_S:g} s; waiting"
                tell(text)
                viewer.warn(text)
            continue
        heard = time.monotonic()
        result.messages += 1
        if silent:
            silent = False
            tell(f"{stream.endpoint}: the daemon is heard again")
            viewer.warn("")
        shown = shaper.take(message)
        for new in shaper.fresh:
            viewer.offer(new)
        shaper.fresh.clear()
        for shaped in shown:
            viewer.send(shaped)
    result.seconds = time.monotonic() - began
    return result


@contextlib.contextmanager
def until_told() -> Iterator[threading.Event]:
    """Return an event that SIGTERM or SIGINT sets, in place of ending the process; for the main thread."""
    done = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        done.set()

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield done
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
