"""The gateway process: what the arms' processes publish privately, made public on two TCP ports.

The messages pass through libzmq's own proxy, one thread for each port, and never through Python.
Nothing passes the other way: what subscribers send stays in this process, and the supervisor starts it
anew if they make it too large.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, field

import zmq

from service.config import ConfigError
from service.process import FRAME_QUEUE, POLL_MS, Child, readable
from service.security.authenticator import Authenticator, protect
from service.security.keys import KeyPair, server_pair
from service.security.registry import Registry
from service.wire import MAX_MESSAGE

MAX_SUBSCRIPTION = 512  # bytes of what a subscriber may send
BIND_S = 3.0  # a predecessor that was killed may still hold the port for a moment


class PortTakenError(ConfigError):
    """A port that the configuration names is in use."""

    again = True


class RevokedError(RuntimeError):
    """A client that is connected has been revoked: only an end of the process hangs up on it."""


@dataclass
class Lane:
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


def bind_tcp(socket: zmq.Socket[bytes], address: str, port: int, key: str, patience_s: float = 0.0) -> int:
    """Bind and return the real port; raises `PortTakenError` if it stays in use for `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.bind(f"tcp://{address}:{port or '*'}")
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise PortTakenError(
                f"daemon.{key}: cannot bind {address}:{port}: {error.strerror}; "
                "is another daemon running? Choose another port, or 0 for any free one"
            ) from error
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        return int(bytes(endpoint).rstrip(b"\x00").rpartition(b":")[2])


def main(child: Child) -> None:
    """Run both lanes until told to stop."""
    settings = child.config.daemon
    frames = Lane("frames", settings.frames_port, [])
    estimates = Lane("estimates", settings.estimates_port, [])
    for arm in child.config.arm:
        frames.sources.append(child.runtime.frames(arm.name))
        estimates.sources.append(child.runtime.results(arm.name, "estimator"))
        if arm.recorder is not None:
            estimates.sources.append(child.runtime.results(arm.name, "recorder"))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = server_pair(child.config.keys_dir) if settings.keyed else None
    authenticator = None
    if pair is not None:
        authenticator = Authenticator(context, Registry(child.config.keys_dir), child.log)
    threads = []
    poller = zmq.Poller()
    poller.register(child.socket, zmq.POLLIN)
    if authenticator is not None:
        poller.register(authenticator.socket, zmq.POLLIN)
    try:
        for lane in (frames, estimates):
            lane.open(context, settings.bind, FRAME_QUEUE, pair)
        for lane in (frames, estimates):
            threads.append(threading.Thread(target=lane.run, name=lane.name))
            threads[-1].start()
        child.ready(frames_port=frames.port, estimates_port=estimates.port)
        while not child.stopping and all(thread.is_alive() for thread in threads):
            poller.poll(POLL_MS)
            now_ns = time.monotonic_ns()
            child.serve({})
            if authenticator is not None:
                authenticator.serve()
                if names := authenticator.revoked():
                    raise RevokedError(f"clients that were connected have been revoked: {', '.join(names)}")
            if child.beat_due(now_ns):
                counts = {} if authenticator is None else {"authenticator": authenticator.describe()}
                connected = {lane.name: lane.connections() for lane in (frames, estimates)}
                child.beat(now_ns, {"state": "running", "connections": connected, **counts})
    finally:
        if authenticator is not None:
            authenticator.close()
        if threads:
            for lane in (frames, estimates):
                lane.stop_counting()
            context.term()
            for thread in threads:
                thread.join()
        else:
            context.destroy(linger=0)
