"""The web process: receive the messages of the daemon's processes, and serve HTTP from their cache.

Both run in one event loop: if it hangs, its heartbeats stop and the supervisor restarts the process.
"""

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
from service.web._history import EVERY_NS, History
from service.web._live import TURN_S, Live
from service.web._request_proxy import RequestProxy
from service.web.guard import read_tokens
from service.worker.bind import BIND_S, PortTakenError
from service.worker.worker import Worker

MESSAGES_A_TURN = 256  # of each socket
QUEUE = 1000
_BACKLOG = 128


class Server(uvicorn.Server):
    """Server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def shut_down(self) -> None:
        """Shut down, and disconnect all clients."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.disconnect()


class LogForwarder(logging.Handler):
    """Handler that writes the server's errors to the process's log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._log.error("http_failed", reason=record.getMessage(), exc_info=record.exc_info)


class Web:
    """State and loop of the web process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        daemon = worker.config.daemon
        tokens = read_tokens(daemon.http_token_file, daemon.http_role)
        self.listener = listen(daemon.http_bind, daemon.http_port)
        self.cache = Cache(tuple(arm.name for arm in worker.config.arm), time.monotonic_ns())
        self.live = Live(self.cache, worker.epoch)
        request_proxy = RequestProxy(worker, daemon)
        for name in ("uvicorn.error", "asyncio"):
            log = logging.getLogger(name)
            log.handlers, log.propagate = [LogForwarder(worker.log)], False
            log.setLevel(logging.ERROR)
        self.server = Server(
            uvicorn.Config(
                make_app(worker.config, self.cache, self.live, request_proxy, tokens), http=Connection, ws="none",
                lifespan="off", interface="asgi3", log_config=None, access_log=False, proxy_headers=False,
                server_header=False, h11_max_incomplete_event_size=MAX_HEADERS, backlog=_BACKLOG,
            )
        )  # fmt: skip
        self._next_row_ns = 0
        self._sockets: list[zmq.Socket[bytes]] = []
        for arm in worker.config.arm:
            self.cache.arms[arm.name].history = History(worker.config.state_dir / arm.name / "dashboard.history")
            topics = [topic(arm.name, kind) for kind in ("status", "stats", "meta")]
            # A source that waits for its readers (`DriverInfo.lossless`) must not wait for this process.
            waits = "max" in (getattr(arm.driver, "speed", 1.0), getattr(arm.driver, "pace", 1.0))
            frames = [] if waits else [topic(arm.name, "frame")]
            self._sockets.append(self._subscribe(worker.runtime.frames(arm.name), topics + frames))
            topics += [topic(arm.name, kind) for kind in ("estimate", "torque")]
            self._sockets.append(self._subscribe(worker.runtime.results(arm.name, "estimator"), topics))

    def _subscribe(self, endpoint: str, topics: list[bytes]) -> zmq.Socket[bytes]:
        subscriber = self.worker.context.socket(zmq.SUB)
        options = ((zmq.MAXMSGSIZE, MAX_MESSAGE), (zmq.RCVHWM, QUEUE), (zmq.LINGER, 0))
        for option, value in (*options, (zmq.RECONNECT_IVL, 50), (zmq.RECONNECT_IVL_MAX, 500)):
            subscriber.setsockopt(option, value)
        for name in topics:
            subscriber.setsockopt(zmq.SUBSCRIBE, name)
        subscriber.connect(endpoint)
        return subscriber

    async def run(self) -> None:
        """Receive and serve until stopped."""
        serving = asyncio.create_task(self.server.serve(sockets=[self.listener]))
        try:
            while not self.server.started and not serving.done():
                await asyncio.sleep(0.001)
            self.worker.ready(http_port=self.listener.getsockname()[1])
            due = time.monotonic()
            while not self.worker.stopping and not serving.done():
                self._turn(time.monotonic_ns())
                due = max(due + TURN_S, time.monotonic())
                await asyncio.sleep(due - time.monotonic())
        finally:
            self.server.shut_down()
            await serving
        if not self.worker.stopping:
            raise RuntimeError("the HTTP server has ended by itself")

    def _turn(self, now_ns: int) -> None:
        self.worker.serve({}, self.cache.on_status)
        for subscriber in self._sockets:
            for _ in range(MESSAGES_A_TURN):
                if not readable(subscriber):
                    break
                self.cache.on_message(subscriber.recv_multipart())
        self.live.update(now_ns)
        if now_ns >= self._next_row_ns:
            self._next_row_ns = now_ns + EVERY_NS
            self.cache.keep(now_ns, time.time())
        if self.worker.heartbeat_due(now_ns):
            state = self.server.server_state
            counts = {"requests": state.total_requests, "connections": len(state.connections)}
            self.worker.heartbeat(now_ns, {"state": "running", **counts, "refused": self.cache.refused})


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket; raises `PortTakenError` if the port stays in use."""
    deadline = time.monotonic() + BIND_S
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    while True:
        try:
            listener.bind((address, port))
            listener.listen(_BACKLOG)  # of two processes that have bound the same port, one fails here
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


def main(worker: Worker) -> None:
    """Run the web process."""
    web = Web(worker)
    try:
        asyncio.run(web.run())
    finally:
        web.listener.close()
