"""A bridge to Foxglove within the test's process."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Self

from service.bridge.conversion import MessageConverter
from service.bridge.foxglove import FoxgloveServer
from service.bridge.relay import RelayCounts, relay
from service.client import Subscriber

ALL_HZ = 1e6


class Bridge:
    """Runs in a thread of its own; `relayed` is what came in the end."""

    def __init__(self, endpoints: tuple[str, str], rate_hz: float = ALL_HZ) -> None:
        self.told: list[str] = []  # what it has said for people
        self.shaper = MessageConverter(rate_hz)
        self.server = FoxgloveServer("127.0.0.1", 0)
        self.stream = Subscriber(endpoints, [""])
        self.relayed = RelayCounts()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.relayed = relay(self.stream, self.shaper, self.server, self._done, self.told.append)

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self._done.set()
            self._thread.join()
            self.server.close()
            self.stream.close()
