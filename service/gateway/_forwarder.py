"""A lane: one public port, and the private endpoints whose messages it makes public."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import zmq

from service.io.sockets import readable
from service.protocol.messages import MAX_MESSAGE
from service.security.authenticator import protect
from service.security.keys import KeyPair
from service.worker.bind import BIND_S, bind_tcp

MAX_SUBSCRIPTION = 512  # bytes of what a subscriber may send


@dataclass
class Forwarder:
    """One public port and the private endpoints that it makes public."""

    name: str
    port: int
    sources: list[str]
    connected: set[int] = field(default_factory=set)  # file descriptors of the connections there are

    def open(self, context: zmq.Context[zmq.Socket[bytes]], address: str, queue: int, pair: KeyPair | None) -> None:
        """Bind and connect; `port` becomes the real one; raises `PortTakenError`."""
        self.inner = context.socket(zmq.SUB)
        self.inner.setsockopt(zmq.SUBSCRIBE, b"")
        self.inner.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.inner.setsockopt(zmq.RCVHWM, queue)
        self.inner.setsockopt(zmq.RECONNECT_IVL, 20)
        self.inner.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.outer = context.socket(zmq.PUB)
        self.outer.setsockopt(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION)
        self.outer.setsockopt(zmq.SNDHWM, queue)
        self.outer.setsockopt(zmq.HANDSHAKE_IVL, 2000)
        if pair is not None:
            protect(self.outer, pair)
        told = f"inproc://{self.name}-connections"
        self.outer.monitor(told, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.monitor = context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop the connections
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(told)
        self.inner.setsockopt(zmq.LINGER, 0)
        self.outer.setsockopt(zmq.LINGER, 500)
        self.port = bind_tcp(self.outer, address, self.port, f"{self.name}_port", BIND_S)
        for endpoint in self.sources:
            self.inner.connect(endpoint)

    def connections(self) -> int:
        """Return how many subscribers are connected; for the thread that opened the lane."""
        while readable(self.monitor):
            event, descriptor = struct.unpack("=Hi", self.monitor.recv_multipart()[0])
            (self.connected.add if event == zmq.EVENT_ACCEPTED else self.connected.discard)(descriptor)
        return len(self.connected)

    def stop_counting(self) -> None:
        """Let go of the monitor, in this order: an event that nobody takes would hold up libzmq's own thread."""
        self.outer.disable_monitor()
        self.monitor.close()

    def run(self) -> None:
        """Forward until the context is terminated."""
        try:
            zmq.proxy(self.inner, self.outer)
        except zmq.ContextTerminated:
            self.inner.close()
            self.outer.close()
