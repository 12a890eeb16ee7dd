"""Events of a daemon, on their way to the jobs process."""

import time
from collections import Counter, deque
from typing import Any

import zmq

from service.io.log import Log
from service.protocol.messages import MAX_REPLY, pack_map
from service.protocol.worker_messages import Event
from service.supervisor._worker_handle import WorkerHandle

MAX_EVENTS = 1000  # kept for the jobs process, which writes the history
MAX_EVENT_KINDS = 200  # counted separately, several times as many as there are; the rest together
OTHER_EVENTS = "other"


class Events:
    """Events that the jobs process does not have yet, and counts of all by their kinds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.counts: Counter[str] = Counter()

    def record(
        self, kind: str, text: str, arm: str | None = None, data: dict[str, Any] | None = None, ids: Any = None
    ) -> None:
        """Keep an event for the history, and log it with the ids of the messages it rests on."""
        known = {key: value for key, value in (data or {}).items() if key in ("model", "job", "number")}
        self._log.info("event", event_kind=kind, text=text, arm=arm, **known, **(ids or {}))
        known_kind = kind in self.counts or len(self.counts) < MAX_EVENT_KINDS
        self.counts[kind if known_kind else OTHER_EVENTS] += 1
        self._events.append(Event(kind, text, data or {}, t_ns=time.time_ns(), arm=arm))

    def forward(self, private: zmq.Socket[bytes], jobs: WorkerHandle) -> None:
        """Send the events to the jobs process, which writes the history."""
        while self._events and jobs.state == "ready":
            try:
                private.send_multipart([jobs.identity, pack_map(self._events[0], MAX_REPLY)], zmq.NOBLOCK)
            except zmq.ZMQError:  # it does not read, or has just ended: later
                return
            self._events.popleft()
