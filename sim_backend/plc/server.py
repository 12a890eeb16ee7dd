"""Server of a simulated PLC: sockets and the clock, in one thread.

All due cycles run in order; a late process loses none.  It catches up at no more than twice the speed of time, and
answers its clients meanwhile, so that they can keep up.
"""

import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sim_backend.errors import SimulationError
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc._route import RouteService
from sim_backend.plc._session import Session
from sim_backend.signals import stop_on_signals

_MAX_WAIT_S = 0.05
_MAX_STEP_NS = 5_000_000
_CATCH_UP = 2
_RECEIVED = 256 * 1024
_BACKLOG = 32
_MAX_CLIENTS = 64
_PAUSE_NS = 100_000_000  # until the next try after a client could not be accepted
_SELECTABLE = 1024  # limit of descriptors in a call of select
Result = TypeVar("Result")


class ServerError(SimulationError):
    """The server cannot listen at this address."""


class _Connection:
    """A socket and its session."""

    def __init__(self, client: socket.socket, session: Session) -> None:
        self.socket, self.session = client, session
        self.unsent = bytearray()


class Server:
    """A PLC at a TCP address, with routes at the next UDP port.

    `address` is IPv4, usually of loopback; several PLCs can use different ones of 127.0.0.0/8.  `port` 0 is any free
    one; the attribute has the port in use.  `latest_ns` is the largest delay of a cycle [ns].  Raises `ServerError`:
    the address is not of this machine, or in use.
    """

    def __init__(self, simulated: SimulatedPlc, address: str, port: int = 48898) -> None:
        self.plc = simulated
        self.latest_ns = 0
        self._routes = RouteService(simulated)
        self._connections: dict[int, _Connection] = {}
        self._lock = threading.Lock()
        self._stop = False
        self._now_ns = time.monotonic_ns()
        self._paced_ns = self._now_ns
        self._accept_ns, self._listening = self._now_ns, True  # clients are accepted from then on
        self._listener, self._udp = _bind(address, port)
        self.port = int(self._listener.getsockname()[1])
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.epoll()
        for descriptor in (self._wake_reader, self._listener.fileno(), self._udp.fileno()):
            self._poll.register(descriptor, select.EPOLLIN)
        if self._poll.fileno() >= _SELECTABLE:
            self.close()
            raise ServerError(f"this process has {_SELECTABLE} files open already: close some before")

    def close(self) -> None:
        """Close all sockets."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._poll.close()
        self._listener.close()
        self._udp.close()
        for end in (self._wake_reader, self._wake_writer):
            os.close(end)

    def stop(self) -> None:
        """Make `run` return; may be called from a signal handler or another thread."""
        self._stop = True
        self._wake()

    def do(self, task: Callable[[SimulatedPlc], Result]) -> Result:
        """Call `task` with the PLC from another thread, between two turns of the loop of `run`."""
        with self._lock:
            result = task(self.plc)
        self._wake()
        return result

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`, SIGTERM or SIGINT; `ready` is called when the server is ready: its clients are answered.

        Raises `SimulationDivergedError`.
        """
        with stop_on_signals(self.stop):
            # The first cycle loads the kernels, which takes seconds: what falls due meanwhile runs now as long as it
            # becomes less, and what a slow computer leaves of it beside the clients.
            late_ns: float = math.inf
            while late_ns and not self._stop:
                self.plc.advance(time.monotonic_ns())
                before_ns, late_ns = late_ns, max(time.monotonic_ns() - self.plc.due_ns(), 0)
                if late_ns >= before_ns:
                    break
            self._now_ns, self._paced_ns = time.monotonic_ns(), self.plc.due_ns()
            self.latest_ns = 0
            if ready is not None:
                ready()
            while not self._stop:
                self._wait()
                self.serve()

    def serve(self) -> None:
        """Do what is due: cycles of the task, received requests, packets to send."""
        with self._lock:
            self._advance()
            self._accept()
            for connection in list(self._connections.values()):
                self._receive(connection)
            now_ns = time.monotonic_ns()
            for connection in list(self._connections.values()):
                self._send(connection, now_ns)

    def _advance(self) -> None:
        now_ns = time.monotonic_ns()
        step_ns = min(now_ns - self._now_ns, _MAX_STEP_NS) * _CATCH_UP
        self._now_ns = now_ns
        self._paced_ns = min(now_ns, self._paced_ns + step_ns)
        self.latest_ns = max(self.latest_ns, now_ns - self.plc.due_ns())
        self.plc.advance(self._paced_ns)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full: `run` wakes up anyway
            os.write(self._wake_writer, b"\0")

    def _wait(self) -> None:
        due_ns = [self.plc.due_ns()]
        for connection in self._connections.values():
            next_ns = connection.session.outlet.next_ns
            if next_ns is not None and not connection.unsent:
                due_ns.append(next_ns)
        wait_s = max(0.0, (min(due_ns) - time.monotonic_ns()) * 1e-9)
        # Not epoll alone, whose time-outs are whole milliseconds; nor select alone, which stops at descriptor 1023.
        if not select.select((self._poll,), (), (), min(wait_s, _MAX_WAIT_S))[0]:
            return
        ready = {descriptor for descriptor, _ in self._poll.poll(0)}
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if self._udp.fileno() in ready:
            self._answer_datagram()

    def _accept(self) -> None:
        while time.monotonic_ns() >= self._accept_ns:
            try:
                client, (host, _) = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                self._listen(True)
                return
            except OSError:  # no descriptor is left
                self._accept_ns = time.monotonic_ns() + _PAUSE_NS
                self._listen(False)
                return
            if len(self._connections) >= _MAX_CLIENTS:
                client.close()
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client, self.plc.connect(host))
            self._connections[client.fileno()] = connection
            self._poll.register(client, select.EPOLLIN)
            if connection.session.closed:
                self._drop(connection)

    def _listen(self, listening: bool) -> None:
        """Set whether a waiting client ends `_wait`."""
        if listening != self._listening:
            self._listening = listening
            self._poll.modify(self._listener, select.EPOLLIN if listening else 0)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_RECEIVED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.session.receive(data, time.monotonic_ns())

    def _send(self, connection: _Connection, now_ns: int) -> None:
        waited = bool(connection.unsent)
        try:
            if waited:
                del connection.unsent[: _send(connection.socket, connection.unsent)]
            # What the socket does not accept stays in the outlet, which counts it.
            for piece in () if connection.unsent else connection.session.outlet.due(now_ns):
                sent = 0 if connection.unsent else _send(connection.socket, piece)
                connection.unsent += piece[sent:]
        except OSError:
            self._drop(connection)
            return
        if connection.session.closed:
            self._drop(connection)
        elif waited != bool(connection.unsent):
            self._poll.modify(connection.socket, select.EPOLLIN | (0 if waited else select.EPOLLOUT))

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.socket.fileno(), None) is not None:
            self._poll.unregister(connection.socket)
        self.plc.disconnect(connection.session)
        connection.socket.close()

    def _answer_datagram(self) -> None:
        try:
            data, sender = self._udp.recvfrom(4096)
            answer = self._routes.answer(data)
            if answer is not None:
                self._udp.sendto(answer, sender)
        except OSError:
            pass  # the sender is gone


def _send(client: socket.socket, data: bytes | bytearray) -> int:
    """Send, and return the number of bytes accepted."""
    try:
        return client.send(data)
    except BlockingIOError:
        return 0


def _bind(address: str, port: int) -> tuple[socket.socket, socket.socket]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        port = int(listener.getsockname()[1])
        udp.bind((address, port + 1))
        udp.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        udp.close()
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) and error.errno else str(error)
        raise ServerError(
            f"cannot listen at {address}, TCP port {port} and UDP port {port + 1}: {reason}; give an address of this "
            "machine, such as 127.0.0.2, where nothing else listens"
        ) from error
    return listener, udp
