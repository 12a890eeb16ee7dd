"""Connections to a daemon and requests; exported by `service.client`."""

import contextlib
import struct
import time
from pathlib import Path
from typing import Any, Self

import zmq

from service.protocol.control import ControlError, Request, decode_reply, encode_request
from service.protocol.endpoints import CONTROL as CONTROL  # re-exported for clients
from service.protocol.messages import MAX_REPLY
from service.security.keys import ClientKey, client_key


class ClientError(RuntimeError):
    """Any failure on the client's side."""


class ClientTimeoutError(ClientError, TimeoutError):
    """No message within the given time."""


class UnreachableError(ClientError, ConnectionError):
    """No daemon answers at this endpoint."""


class NotAdmittedError(ClientError, ConnectionError):
    """The daemon refuses this client: a key is missing, unknown or revoked, or there should be none."""


def may_retry(error: UnreachableError | ControlError) -> bool:
    """Return whether the same request may succeed a moment later, as while the daemon restarts."""
    return isinstance(error, UnreachableError) or error.type in ("unavailable", "timeout")


#: Events of a connection's monitor: the handshake failed.
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_MONITOR = "inproc://monitor"
_HEARTBEAT_MS = 5000


class Connection:
    """One socket of a client; a context manager.

    Parameters
    ----------
    kind : int
        Type of the socket.
    endpoint : str
    key : ClientKey, str or Path, optional
        The client's key or its file, for a daemon that requires one; the file holds the daemon's key, too.
    options : tuple of (int, int or bytes)
        Socket options, set before connecting.

    Raises
    ------
    ClientError
        Invalid endpoint.
    SecretFileError
        The file of the key cannot be used.
    """

    def __init__(
        self, kind: int, endpoint: str, key: ClientKey | str | Path | None, options: tuple[tuple[int, int | bytes], ...]
    ) -> None:
        self.endpoint = endpoint
        self.key = client_key(Path(key)) if isinstance(key, (str, Path)) else key
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._socket = self._context.socket(kind)
            self._socket.monitor(_MONITOR, _FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
            self._monitor = self._context.socket(zmq.PAIR)
            self._monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would stop the connection
            self._monitor.connect(_MONITOR)
            self._failures = 0  # consecutive failed handshakes without a reason
            self._refused = ""  # why the daemon refuses this client; libzmq does not retry then
            for option, value in (*options, (zmq.LINGER, 0)):
                self._socket.setsockopt(option, value)
            if self.key is not None:
                self._socket.setsockopt(zmq.CURVE_SERVERKEY, self.key.server.encode())
                self._socket.setsockopt(zmq.CURVE_PUBLICKEY, self.key.pair.public.encode())
                self._socket.setsockopt(zmq.CURVE_SECRETKEY, self.key.pair.secret.encode())
                self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
                self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
            self._poller = zmq.Poller()
            self._poller.register(self._socket, zmq.POLLIN)
            self._poller.register(self._monitor, zmq.POLLIN)
        except zmq.ZMQError as error:
            self.close()
            raise ClientError(f"{endpoint}: cannot connect: {error.strerror}") from error
        self._connect(endpoint)

    def _connect(self, endpoint: str) -> None:
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ClientError(f"{endpoint}: cannot connect: {error.strerror}") from error

    def _arrives(self, deadline: float, event: int = zmq.POLLIN) -> bool:
        """Wait for a message, or room for one, until `deadline` of `time.monotonic`; raises `NotAdmittedError`."""
        self._poller.modify(self._socket, event)
        while True:
            if self._refused:
                raise NotAdmittedError(f"{self.endpoint}: {self._refused}")
            events = dict(self._poller.poll(max(0, int((deadline - time.monotonic()) * 1000))))
            if self._socket in events:
                return True
            if self._monitor not in events:
                return False
            self._on_handshake(*struct.unpack("=HI", self._monitor.recv_multipart()[0]))

    def _on_handshake(self, event: int, code: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._failures = 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._refused = "the daemon does not admit this key: it does not know it, or it has been revoked"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and code == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            self._refused = (
                "the daemon asks for a key: get one made with `thetad keys new`, and give its file"
                if self.key is None
                else "the daemon uses no keys: connect without one"
            )
        else:
            self._failures += 1

    @property
    def _hint(self) -> str:
        """Hint at a cause if nothing arrives."""
        if not self._failures:
            return ""
        if self.key is None:
            return "; it hangs up during the handshake: it may be a daemon that asks for a key"
        return "; it hangs up during the handshake: is the server's key that of this daemon?"

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Control(Connection):
    """Connection for requests; not thread-safe.

    Parameters
    ----------
    endpoint : str
    key : ClientKey, str or Path, optional
        The client's key or its file, for a daemon that requires one.
    """

    def __init__(self, endpoint: str = CONTROL, key: ClientKey | str | Path | None = None) -> None:
        super().__init__(zmq.DEALER, endpoint, key, ((zmq.MAXMSGSIZE, MAX_REPLY),))
        self._id = 0

    def request(self, verb: str, timeout_s: float = 5.0, **args: Any) -> dict[str, Any]:
        """Make one request and return its result.

        Raises
        ------
        ControlError
            The daemon refused it; `type` and `message` say why.
        UnreachableError
            No answer within `timeout_s`.
        NotAdmittedError
            The daemon refuses this client.
        """
        self._id += 1
        deadline = time.monotonic() + timeout_s
        message = encode_request(Request(self._id, verb, args))
        sent = False
        while not sent and self._arrives(deadline, zmq.POLLOUT):  # a connection that was refused takes no message
            with contextlib.suppress(zmq.Again):  # it was refused since then
                self._socket.send(message, zmq.DONTWAIT)
                sent = True
        while True:
            if not sent or not self._arrives(deadline):
                raise UnreachableError(
                    f"{self.endpoint}: no answer within {timeout_s:g} s{self._hint or '; is the daemon running?'}"
                )
            reply = decode_reply(self._socket.recv_multipart()[-1])
            if reply.id not in (self._id, 0):  # late reply to an abandoned request
                continue
            if reply.error is not None:
                raise reply.error
            return reply.result
