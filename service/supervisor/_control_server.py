"""Public control socket of the daemon: checks messages, passes requests on, and sends the replies.

ZeroMQ bounds the size of a message's part, not the number of parts, so that clients can make the process that holds
this socket grow; `limit_memory` reopens the socket then, which disconnects all of them.
"""

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import zmq

from service.config.load import Config
from service.io.log import Log
from service.io.sockets import readable
from service.protocol.control import (
    OVERTAKEN,
    UNLIMITED,
    ControlError,
    Request,
    check_request,
    decode_request,
    encode_error,
)
from service.protocol.json_values import shortened
from service.protocol.messages import MAX_REQUEST, WireError
from service.security.access import Access
from service.security.authenticator import Authenticator, protect
from service.security.files import replacement_risk
from service.security.keys import KeyPair, server_pair
from service.security.registry import Registry
from service.worker.bind import bind_tcp
from service.worker.resources import files_used_up, release_memory, resident_mb

MESSAGES_A_TURN = 64  # received before each request
REQUESTS_A_TURN = 8
QUEUE = 100  # messages of one client, in each direction, and of its requests that wait here
MAX_WAITING = 10 * QUEUE  # of all clients; twice as many where each is its client's only one
REOPEN_S = 3.0  # a port that was closed is free after a moment
MEMORY_NS = 500_000_000  # between two looks at the memory
TOO_MANY_FILES = "connections take half of the files that it may open"
RESTART_NS = 100_000_000  # from the end of an authenticator to the next

#: Takes the route to a client and its request; raises `ControlError` to refuse it.
Dispatch: TypeAlias = Callable[[list[bytes], Request], None]


class ControlSocket:
    """The socket that receives requests; `dispatch` answers one that is well-formed, now or later, with `reply`.

    `port` is the real one, also where the configuration leaves it open. Messages were `requests`, or `garbage`;
    `reopened` counts how often the socket was opened anew because of its memory, `authenticator_restarts` how often the
    authenticator has failed; nobody is let in until it is back. Raises `PortTakenError`; `SecretFileError` if the
    server's key, which the configuration asks for, cannot be used.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], config: Config, dispatch: Dispatch, log: Log) -> None:
        self._context, self._daemon, self._dispatch, self.log = context, config.daemon, dispatch, log
        self._arms = tuple(arm.name for arm in config.arm)
        self.requests = self.garbage = self.reopened = self.too_many = 0
        self._waiting: dict[bytes, list[tuple[list[bytes], Request]]] = {}  # by client, in the order of their turns
        self._memory_mb = self._daemon.memory_mb
        self._next_memory_ns = 0
        self.port = self._daemon.control_port
        self.authenticator_restarts = 0
        self._authenticator: Authenticator | None = None
        self._next_authenticator_ns = 0
        self._pair: KeyPair | None = None
        if self._daemon.keyed:
            self._pair = server_pair(config.keys_dir)
            if risk := replacement_risk(config.keys_dir):
                log.warning("keys_could_be_replaced", reason=risk)
            self._registry = Registry(config.keys_dir)
            self._access = Access(self._registry, self._daemon.requests_per_s, log)
            self._authenticator = self._authenticate()
        self._socket = self._open()

    def _authenticate(self) -> Authenticator:
        return Authenticator(self._context, self._registry, self.log)

    def _open(self, patience_s: float = 0.0) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        for option, value in ((zmq.MAXMSGSIZE, MAX_REQUEST), (zmq.RCVHWM, QUEUE), (zmq.SNDHWM, QUEUE)):
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.HANDSHAKE_IVL, 2000)
        if self._pair is not None:
            protect(socket, self._pair)
        self.port = bind_tcp(socket, self._daemon.bind, self.port, "control_port", patience_s)
        return socket

    def register(self, poller: zmq.Poller) -> None:
        """Register the sockets with a poller."""
        poller.register(self._socket, zmq.POLLIN)
        if self._authenticator is not None:
            poller.register(self._authenticator.socket, zmq.POLLIN)

    def serve(self) -> None:
        """Process what has arrived, at most `REQUESTS_A_TURN` requests; those in `UNLIMITED` before the others."""
        if self._pair is not None:
            self._admit()
        for _ in range(REQUESTS_A_TURN):
            self._receive_all()
            if not self._waiting:
                return
            client = next(iter(self._waiting))
            (route, request), *later = self._waiting.pop(client)
            if later:
                self._waiting[client] = later  # after the other clients
            self._run(route, request.id, partial(self._dispatch, route, request))

    @property
    def busy(self) -> bool:
        """Whether requests wait that have arrived."""
        return bool(self._waiting)

    def _receive_all(self) -> None:
        """Receive what has arrived, so that a request to stop waits behind no other."""
        for _ in range(MESSAGES_A_TURN):
            if not readable(self._socket):
                return
            self._receive()

    def _admit(self) -> None:
        """Run the authenticator; while a failed one is replaced, no client is admitted."""
        now_ns = time.monotonic_ns()
        try:
            if self._authenticator is None and now_ns >= self._next_authenticator_ns:
                self._authenticator = self._authenticate()
            if self._authenticator is not None:
                self._authenticator.serve()
        except Exception:
            self.log.exception("authenticator_failed")
            self.authenticator_restarts += 1
            self._next_authenticator_ns = now_ns + RESTART_NS
            if self._authenticator is not None:
                self._authenticator.close()
                self._authenticator = None

    def _receive(self) -> None:
        if self._pair is None:
            self._on_message(self._socket.recv_multipart(), None)
            return
        frames = self._socket.recv_multipart(copy=False)
        key = ""  # nobody's
        with contextlib.suppress(zmq.ZMQError):
            key = str(frames[-1].get("User-Id"))  # set by libzmq from the handshake, out of the client's reach
        self._on_message([frame.bytes for frame in frames], key)

    def _on_message(self, parts: list[bytes], key: str | None) -> None:
        """Process a message of the client with this public key; without keys, of any client."""
        empty = len(parts) == 3 and parts[1] == b""
        route = parts[: 2 if empty else 1]
        request, wrong = _read(parts[len(route)] if len(parts) == len(route) + 1 else b"")
        self._run(route, request.id, partial(self._take, route, request, wrong, key))

    def _take(self, route: list[bytes], request: Request, wrong: str, key: str | None) -> None:
        """Check a request; dispatch it if it must not wait, and have it wait its turn otherwise."""
        client = None if key is None else self._access.client(key, request.verb)
        if client is not None:
            self._access.count(client, request.verb)
        if wrong:
            self._on_garbage(wrong)
        self.requests += 1
        request = check_request(request, self._arms)
        if client is not None:
            self._access.check(client, request.verb)
        if request.verb in UNLIMITED or request.verb == "shutdown":
            self._dispatch(route, request)
            return
        own = self._waiting.get(route[0], [])
        if len(own) >= QUEUE or sum(map(len, self._waiting.values())) >= (1 if own else 2) * MAX_WAITING:
            self.too_many += 1
            raise ControlError("too_many", f"{request.verb}: too many requests wait already: await their answers first")
        self._waiting.setdefault(route[0], own).append((route, request))

    def overtake(self, stop: Request) -> None:
        """Refuse what waits and would move the arm again after a request to stop it has been answered."""
        arm = stop.args["arm"]
        self._refuse(lambda r: r.verb in OVERTAKEN and r.args["arm"] == arm, "a request to stop the arm came after it")

    def refuse_all(self) -> None:
        """Refuse all requests that wait: the daemon stops."""
        self._refuse(lambda _: True, "the daemon is stopping")

    def _refuse(self, which: Callable[[Request], bool], why: str) -> None:
        for client, waiting in list(self._waiting.items()):
            self._waiting[client] = [(route, request) for route, request in waiting if not which(request)]
            for route, request in waiting:
                if which(request):
                    self.reply(route, encode_error(request.id, "unavailable", f"{request.verb}: {why}"))
            if not self._waiting[client]:
                del self._waiting[client]

    def _run(self, route: list[bytes], id: int, step: Callable[[], None]) -> None:
        """Run a step of a request, and refuse that for whatever goes wrong: it must not end all processes."""
        try:
            step()
        except ControlError as error:
            self.reply(route, encode_error(id, error.type, error.message))
        except Exception as error:
            self.log.exception("request_failed")
            self.reply(route, encode_error(id, "failed", shortened(f"{type(error).__name__}: {error}")))

    def _on_garbage(self, reason: str) -> None:
        self.garbage += 1
        if self.garbage & (self.garbage - 1) == 0:
            self.log.warning("request_refused", reason=reason, count=self.garbage)
        raise ControlError("bad_request", reason)

    def reply(self, route: list[bytes], payload: bytes) -> None:
        """Send a payload along the route to a client; nothing if the route is empty."""
        if not route:
            return
        with contextlib.suppress(zmq.Again):  # a client that does not read its replies gets none
            self._socket.send_multipart([*route, payload], zmq.NOBLOCK)

    def limit_memory(self) -> None:
        """Free memory and files that clients occupy by disconnecting them; they reconnect by themselves."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_memory_ns:
            return
        self._next_memory_ns = now_ns + MEMORY_NS
        limit_mb, own = self._daemon.memory_mb, os.getpid()
        reason = TOO_MANY_FILES if files_used_up(own) else ""
        if not reason:
            if resident_mb(own) <= self._memory_mb:
                return
            release_memory()  # free memory is no reason to disconnect anybody
            if resident_mb(own) <= self._memory_mb:
                return
            reason = f"clients make it larger than {limit_mb:g} MB"
        self.reopened += 1
        self.log.error("control_reopened", reason=reason)
        self._receive_all()  # what stops an arm is not lost with the socket
        self._socket.close(linger=0)
        self._waiting.clear()
        deadline = time.monotonic() + REOPEN_S
        while files_used_up(own) and time.monotonic() < deadline:  # connections end one by one
            time.sleep(0.01)
        self._socket = self._open(REOPEN_S)
        release_memory()
        self._memory_mb = max(limit_mb, 1.5 * resident_mb(own))

    def describe(self) -> dict[str, Any]:
        """Return the counters for the reply to `status`."""
        counts: dict[str, Any] = {"requests": self.requests, "garbage": self.garbage, "reopened": self.reopened}
        counts["too_many"] = self.too_many
        if self._pair is not None:
            now = {} if self._authenticator is None else self._authenticator.describe()
            counts["refused"] = dict(self._access.refused)
            counts["authenticator"] = {"restarts": self.authenticator_restarts, **now}
        return counts


def _read(data: bytes) -> tuple[Request, str]:
    """Return a request and its error; one with an error has neither id nor verb."""
    try:
        return decode_request(data), ""
    except WireError as error:
        return Request(0, ""), str(error)
