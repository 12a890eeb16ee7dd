"""The web process: hears the daemon's processes, and answers by HTTP from what it has heard.

One event loop does both: if it hangs its heartbeats stop, and the supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Iterator

import uvicorn
import zmq

from service.io.log import Log
from service.io.sockets import readable
from service.protocol.messages import MAX_MESSAGE, topic
from service.web._app import make_app
from service.web._cache import Cache
from service.web._connection import MAX_HEADERS, Connection
from service.web._live import TURN_S, Live
from service.web._request_proxy import RequestProxy
from service.web.guard import read_tokens
from service.worker.bind import BIND_S, PortTakenError
from service.worker.worker import Worker

MESSAGES_A_TURN = 256  # of one socket
QUEUE = 1000
_BACKLOG = 128


class Server(uvicorn.Server):
    """A server that leaves the signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def leave(self) -> None:
        """End soon, and hang up on everybody."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.hang_up()


class Forward(logging.Handler):
    """Writes what the server has to complain about to the process's own log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._log.error("http_failed", reason=record.getMessage(), exc_info=record.exc_info)


class Web:
    """Everything that the web process does."""

    def __init__(self, child: Worker) -> None:
        self.child = child
        daemon = child.config.daemon
        tokens = read_tokens(daemon.http_token_file, daemon.http_role)
        self.listener = listen(daemon.http_bind, daemon.http_port)
        self.latest = Cache(tuple(arm.name for arm in child.config.arm), time.monotonic_ns())
        self.live = Live(self.latest, child.epoch)
        asking = RequestProxy(child, daemon)
        for name in ("uvicorn.error", "asyncio"):
            log = logging.getLogger(name)
            log.handlers, log.propagate = [Forward(child.log)], False
            log.setLevel(logging.ERROR)
        self.server = Server(
            uvicorn.Config(
                make_app(child.config, self.latest, self.live, asking, tokens),
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                h11_max_incomplete_event_size=MAX_HEADERS,
                backlog=_BACKLOG,
            )
        )
        self._sockets: list[zmq.Socket[bytes]] = []
        self._results: dict[str, zmq.Socket[bytes]] = {}  # by arm: what its estimator publishes
        self._shown: set[str] = set()  # arms whose torque is heard, for somebody looks
        for arm in child.config.arm:
            heard = [topic(arm.name, kind) for kind in ("status", "stats", "meta")]
            self._sockets.append(self._hear(child.runtime.frames(arm.name), heard))
            heard = [topic(arm.name, kind) for kind in ("estimate", "status", "stats", "meta")]
            self._results[arm.name] = self._hear(child.runtime.results(arm.name, "estimator"), heard)
        self._sockets += self._results.values()

    def _hear(self, endpoint: str, topics: list[bytes]) -> zmq.Socket[bytes]:
        heard = self.child.context.socket(zmq.SUB)
        heard.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        heard.setsockopt(zmq.RCVHWM, QUEUE)
        heard.setsockopt(zmq.LINGER, 0)
        heard.setsockopt(zmq.RECONNECT_IVL, 50)
        heard.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        for name in topics:
            heard.setsockopt(zmq.SUBSCRIBE, name)
        heard.connect(endpoint)
        return heard

    async def run(self) -> None:
        """Hear and answer until told to stop."""
        serving = asyncio.create_task(self.server.serve(sockets=[self.listener]))
        try:
            while not self.server.started and not serving.done():
                await asyncio.sleep(0.001)
            self.child.ready(http_port=self.listener.getsockname()[1])
            due = time.monotonic()
            while not self.child.stopping and not serving.done():
                self._turn(time.monotonic_ns())
                due = max(due + TURN_S, time.monotonic())
                await asyncio.sleep(due - time.monotonic())
        finally:
            self.server.leave()
            await serving
        if not self.child.stopping:
            raise RuntimeError("the HTTP server has ended by itself")

    def _turn(self, now_ns: int) -> None:
        self.child.serve({}, self.latest.on_status)
        for heard in self._sockets:
            for _ in range(MESSAGES_A_TURN):
                if not readable(heard):
                    break
                self.latest.on_message(heard.recv_multipart())
        self._listen_to_torque(self.live.watched(now_ns))
        self.live.go_on(now_ns)
        if self.child.beat_due(now_ns):
            state = self.server.server_state
            counts = {"requests": state.total_requests, "connections": len(state.connections)}
            self.child.beat(now_ns, {"state": "running", **counts, "refused": self.latest.refused})

    def _listen_to_torque(self, shown: set[str]) -> None:
        """Hear the torque of the arms that somebody looks at, a hundred times a second, and of no others."""
        for option, arms in ((zmq.SUBSCRIBE, shown - self._shown), (zmq.UNSUBSCRIBE, self._shown - shown)):
            for arm in arms:
                self._results[arm].setsockopt(option, topic(arm, "torque"))
        self._shown = shown


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `PortTakenError` if the port stays in use."""
    deadline = time.monotonic() + BIND_S
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    while True:
        try:
            listener.bind((address, port))
            listener.listen(_BACKLOG)  # of two that have bound the same port, one fails here
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            listener.close()
            raise PortTakenError(
                f"daemon.http_port: cannot bind {address}:{port}: {error.strerror}; is another daemon running? "
                "Choose another port, or 0 for any free one, or http = false"
            ) from error
        listener.setblocking(False)
        return listener


def main(child: Worker) -> None:
    """Run the web process."""
    web = Web(child)
    try:
        asyncio.run(web.run())
    finally:
        web.listener.close()
