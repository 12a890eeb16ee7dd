"""Pass messages from a daemon to a viewer, and report when the daemon falls silent and when it is back."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from service.bridge._schemas import Stream
from service.bridge.conversion import MessageConverter, ViewerMessage
from service.client import ClientTimeoutError, Subscriber

#: A daemon publishes its status every second; after this time without a message it counts as gone.
SILENT_S = 3.0
_TURN_S = 0.2


class Viewer(Protocol):
    """Destination of messages."""

    def offer(self, stream: Stream) -> None:
        """Advertise a stream, before its first message."""

    def send(self, shaped: ViewerMessage) -> None:
        """Show a message without blocking."""

    def warn(self, text: str) -> None:
        """Show a warning, or remove it if `text` is empty."""


@dataclass
class RelayCounts:
    """Totals of a relay: messages received, silences of the daemon, duration."""

    messages: int = 0
    silences: int = 0
    seconds: float = 0.0


def relay(
    stream: Subscriber, shaper: MessageConverter, viewer: Viewer, done: threading.Event, report: Callable[[str], None],
    seconds: float | None = None,
) -> RelayCounts:  # fmt: skip
    """Pass messages on until `done` is set, or for some seconds; raises `NotAdmittedError`."""
    result = RelayCounts()
    began = received = time.monotonic()
    silent = False
    while not done.is_set() and (seconds is None or time.monotonic() - began < seconds):
        try:
            message = stream.receive(_TURN_S)
        except ClientTimeoutError:
            if not silent and time.monotonic() - received > SILENT_S:
                silent = True
                result.silences += 1
                text = f"{stream.endpoint}: nothing from the daemon, or of that arm, for {SILENT_S:g} s; waiting"
                report(text)
                viewer.warn(text)
            continue
        received = time.monotonic()
        result.messages += 1
        if silent:
            silent = False
            report(f"{stream.endpoint}: the daemon is heard again")
            viewer.warn("")
        shown = shaper.take(message)
        for new in shaper.fresh:
            viewer.offer(new)
        shaper.fresh.clear()
        for shaped in shown:
            viewer.send(shaped)
    result.seconds = time.monotonic() - began
    return result
