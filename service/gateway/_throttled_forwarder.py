"""The mirror: everything that is published, thinned out, on one port, for programs that draw it.

A plotter connects to one port, and draws no faster than a screen shows.  Messages are passed on as they are; of those
that come often only the newest of each turn is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import zmq

from service.gateway._forwarder import Forwarder
from service.worker.worker import FRAME_QUEUE, POLL_MS

#: Kinds of which each message replaces the one before; of the others every one is passed on.
THINNED = frozenset((b"frame", b"torque", b"estimate"))


@dataclass
class ThrottledForwarder(Forwarder):
    """A lane that passes on at most `rate_hz` messages a second of each topic with frames, torques or estimates.

    They pass through Python, and cost something: nothing is subscribed to while nobody is connected.
    """

    rate_hz: float = 50.0

    def run(self) -> None:
        """Forward until the context is terminated."""
        hears = True  # as the lane was opened
        try:
            while True:
                watched = bool(self.connected)
                if watched != hears:
                    self.inner.setsockopt(zmq.SUBSCRIBE if watched else zmq.UNSUBSCRIBE, b"")
                    hears = watched
                if self.inner.poll(POLL_MS):
                    self._turn()
                    time.sleep(1.0 / self.rate_hz)
        except zmq.ContextTerminated:
            self.inner.close()
            self.outer.close()

    def _turn(self) -> None:
        newest: dict[bytes, list[bytes]] = {}
        for _ in range(FRAME_QUEUE):  # at full load there is no end to what waits
            try:
                parts = self.inner.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if parts[0].rpartition(b"/")[2] in THINNED:
                newest[parts[0]] = parts
            else:
                self.outer.send_multipart(parts)
        for parts in newest.values():
            self.outer.send_multipart(parts)
