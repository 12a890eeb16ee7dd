"""Record the latency of estimates and the bus's status of a daemon while something else runs."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from service.client import BodyMessage, ClientTimeoutError, Message, Subscriber

_WAIT_S = 0.2


class LatencyMonitor:
    """Two threads, one for estimates and one for the acquisition's status.

    Attributes
    ----------
    bus : dict or None
        Last status of the driver; None for a source without a bus.
    stopped : str
        Why the motion was stopped; empty if it was not.
    """

    def __init__(self, endpoints: dict[str, str], arm: str) -> None:
        self.bus: dict[str, Any] | None = None
        self.stopped = ""
        self._ages: list[float] = []
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._record_latency, args=(endpoints["estimates"], f"{arm}/estimate")),
            threading.Thread(target=self._watch_status, args=(endpoints["frames"], f"{arm}/status")),
        ]

    def latency_us(self) -> dict[str, float]:
        """Return percentiles of the time from a frame's arrival at the driver to its estimate at a subscriber [us]."""
        if not self._ages:
            return {}
        p50, p99, p999 = np.percentile(self._ages, (50.0, 99.0, 99.9))
        return {"p50_us": float(p50), "p99_us": float(p99), "p999_us": float(p999), "max_us": max(self._ages)}

    def _messages(self, endpoint: str, topic: str) -> Iterator[Message]:
        """Yield the messages of a topic until the end."""
        with Subscriber(endpoint, [topic], timeout_s=_WAIT_S) as stream:
            while not self._done.is_set():
                with contextlib.suppress(ClientTimeoutError):
                    yield stream.receive()

    def _record_latency(self, endpoint: str, topic: str) -> None:
        for message in self._messages(endpoint, topic):
            self._ages.append(1e6 * Subscriber.age_s(message))

    def _watch_status(self, endpoint: str, topic: str) -> None:
        for message in self._messages(endpoint, topic):
            if isinstance(message, BodyMessage) and isinstance(message.body.get("source"), dict):
                self.bus = message.body["source"]
                motion = message.body.get("motion", {})
                self.stopped = motion["reason"] if motion.get("state") == "stopped" else ""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
