"""The gateway process: publishes the private messages of the arms' processes on TCP ports.

They pass through libzmq's own proxy, except frames, of which several come as one message, and those of the throttled
forwarder. What subscribers send stays in this process, and the supervisor restarts it if they make it too large.
"""

import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq

from service.io.sockets import readable
from service.protocol.messages import MAX_MESSAGE, messages_of
from service.security.authenticator import Authenticator, protect
from service.security.keys import KeyPair, server_pair
from service.security.registry import Registry
from service.worker.bind import BIND_S, bind_tcp
from service.worker.worker import FRAME_QUEUE, POLL_MS, Worker

MAX_SUBSCRIPTION = 512  # bytes of what a subscriber may send

#: Kinds of which each message replaces the one before; every message of the others is forwarded.
THINNED = frozenset((b"frame", b"torque", b"estimate"))


@dataclass
class Forwarder:
    """One public port and the private endpoints that it publishes."""

    name: str
    port: int
    sources: list[str]
    per_message: int = 1  # most frames in a message of the sources
    connected: set[int] = field(default_factory=set)  # file descriptors of the connections there are

    def open(self, context: zmq.Context[zmq.Socket[bytes]], address: str, queue: int, pair: KeyPair | None) -> None:
        """Bind and connect; `port` becomes the real one; raises `PortTakenError`."""
        self.inner = context.socket(zmq.SUB)
        self.inner.setsockopt(zmq.SUBSCRIBE, b"")
        self.inner.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.inner.setsockopt(zmq.RCVHWM, max(queue // self.per_message, 1))
        self.inner.setsockopt(zmq.RECONNECT_IVL, 20)
        self.inner.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.outer = context.socket(zmq.PUB)
        self.outer.setsockopt(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION)
        self.outer.setsockopt(zmq.SNDHWM, queue)
        self.outer.setsockopt(zmq.HANDSHAKE_IVL, 2000)
        if pair is not None:
            protect(self.outer, pair)
        monitor_endpoint = f"inproc://{self.name}-connections"
        self.outer.monitor(monitor_endpoint, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.monitor = context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop the connections
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(monitor_endpoint)
        self.inner.setsockopt(zmq.LINGER, 0)
        self.outer.setsockopt(zmq.LINGER, 500)
        self.port = bind_tcp(self.outer, address, self.port, f"{self.name}_port", BIND_S)
        for endpoint in self.sources:
            self.inner.connect(endpoint)

    def connections(self) -> int:
        """Return how many subscribers are connected; for the thread that opened the forwarder."""
        while readable(self.monitor):
            event, descriptor = struct.unpack("=Hi", self.monitor.recv_multipart()[0])
            (self.connected.add if event == zmq.EVENT_ACCEPTED else self.connected.discard)(descriptor)
        return len(self.connected)

    def stop_counting(self) -> None:
        """Close the monitor, in this order: an event that nobody reads would block libzmq's own thread."""
        self.outer.disable_monitor()
        self.monitor.close()

    def run(self) -> None:
        """Forward until the context is terminated."""
        try:
            self._forward()
        except zmq.ContextTerminated:
            self.inner.close()
            self.outer.close()

    def _forward(self) -> None:
        zmq.proxy(self.inner, self.outer)


@dataclass
class FrameForwarder(Forwarder):
    """A forwarder that publishes each frame of a message of several by itself."""

    def _forward(self) -> None:
        while True:
            for name, *contents in messages_of(self.inner.recv_multipart()):
                self.outer.send(name, zmq.SNDMORE if contents else 0)  # half of what `send_multipart` takes
                for k, content in enumerate(contents, 1):
                    self.outer.send(content, zmq.SNDMORE if k < len(contents) else 0)


@dataclass
class ThrottledForwarder(Forwarder):
    """A forwarder of at most `rate_hz` messages a second for each topic with frames, torques or estimates.

    It sends the latest of each turn. Messages pass through Python, so nothing is subscribed to without a client.
    """

    rate_hz: float = 50.0

    def _forward(self) -> None:
        hears = True  # as `open` has subscribed
        while True:
            watched = bool(self.connected)
            if watched != hears:
                self.inner.setsockopt(zmq.SUBSCRIBE if watched else zmq.UNSUBSCRIBE, b"")
                hears = watched
            if self.inner.poll(POLL_MS):
                self._turn()
                time.sleep(1.0 / self.rate_hz)

    def _turn(self) -> None:
        newest: dict[bytes, Sequence[bytes]] = {}
        for _ in range(FRAME_QUEUE):  # at full load the queue never empties
            try:
                parts = list(messages_of(self.inner.recv_multipart(zmq.NOBLOCK)))[-1]
            except zmq.Again:
                break
            if parts[0].rpartition(b"/")[2] in THINNED:
                newest[parts[0]] = parts
            else:
                self.outer.send_multipart(parts)
        for parts in newest.values():
            self.outer.send_multipart(parts)


class RevokedError(RuntimeError):
    """A connected client has been revoked: only the end of the process disconnects it."""


def main(worker: Worker) -> None:
    """Run all forwarders until stopped."""
    settings = worker.config.daemon
    most = max((arm.publish.block_frames for arm in worker.config.arm), default=1)
    frames = (FrameForwarder if most > 1 else Forwarder)("frames", settings.frames_port, [], most)
    estimates = Forwarder("estimates", settings.estimates_port, [])
    for arm in worker.config.arm:
        frames.sources.append(worker.runtime.frames(arm.name))
        estimates.sources.append(worker.runtime.results(arm.name, "estimator"))
        if arm.recorder is not None:
            estimates.sources.append(worker.runtime.results(arm.name, "recorder"))
    forwarders: list[Forwarder] = [frames, estimates]
    if settings.mirror_port is not None:
        sources = [*frames.sources, *estimates.sources]
        forwarders.append(ThrottledForwarder("mirror", settings.mirror_port, sources, most, rate_hz=settings.mirror_hz))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = server_pair(worker.config.keys_dir) if settings.keyed else None
    authenticator = None
    if pair is not None:
        authenticator = Authenticator(context, Registry(worker.config.keys_dir), worker.log)
    threads = []
    poller = zmq.Poller()
    poller.register(worker.socket, zmq.POLLIN)
    if authenticator is not None:
        poller.register(authenticator.socket, zmq.POLLIN)
    try:
        for forwarder in forwarders:
            forwarder.open(context, settings.bind, FRAME_QUEUE, pair)
        for forwarder in forwarders:
            threads.append(threading.Thread(target=forwarder.run, name=forwarder.name))
            threads[-1].start()
        worker.ready(**{f"{forwarder.name}_port": forwarder.port for forwarder in forwarders})
        while not worker.stopping and all(thread.is_alive() for thread in threads):
            poller.poll(POLL_MS)
            now_ns = time.monotonic_ns()
            worker.serve({})
            if authenticator is not None:
                authenticator.serve()
                if names := authenticator.revoked():
                    raise RevokedError(f"clients that were connected have been revoked: {', '.join(names)}")
            if worker.heartbeat_due(now_ns):
                counts = {} if authenticator is None else {"authenticator": authenticator.describe()}
                connected = {forwarder.name: forwarder.connections() for forwarder in forwarders}
                worker.heartbeat(now_ns, {"state": "running", "connections": connected, **counts})
    finally:
        if authenticator is not None:
            authenticator.close()
        if threads:
            for forwarder in forwarders:
                forwarder.stop_counting()
            context.term()
            for thread in threads:
                thread.join()
        else:
            context.destroy(linger=0)
