"""Authenticate connections against the registry: handler of ZeroMQ's authentication protocol, ZAP (RFC 27).

Sockets set up by `protect` refuse everybody while this handler is missing or does not answer. An authenticator belongs
to one thread, which has to call `serve` often.
"""

from collections import Counter
from typing import Any, TypeAlias

import zmq
from zmq.utils import z85

from service.io.log import Log
from service.io.sockets import readable
from service.security.keys import KeyPair
from service.security.registry import Registry, RegistryError

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"thetad"
HANDSHAKE_MS = 2000  # longest time from connection to admission
HEARTBEAT_MS = 5000  # between two heartbeats; a peer silent for three times as long is disconnected
_MAX_A_TURN = 64
Verdict: TypeAlias = tuple[bytes, bytes]  # status code and text
_OK, _LATER, _NO = (b"200", b"OK"), (b"300", b"not now"), (b"400", b"not admitted")


def protect(socket: zmq.Socket[bytes], pair: KeyPair) -> None:
    """Set up a socket, before it is bound, for encrypted connections of admitted clients only.

    `pair` holds the daemon's keys. Without an authenticator in the same context nobody connects.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)


class Authenticator:
    """Admission of clients to the public sockets of one context.

    `accepted` counts admitted connections, `refused` the others by reason: "unknown", "revoked", "registry" (unusable),
    "request".
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], registry: Registry, log: Log) -> None:
        self.registry, self._log = registry, log
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self._admitted: set[str] = set()
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ENDPOINT)

    def serve(self) -> None:
        """Answer pending admission requests."""
        for _ in range(_MAX_A_TURN):
            if not readable(self.socket):
                return
            request = self.socket.recv_multipart()
            (code, text), user = self._judge(request)
            self.socket.send_multipart([b"1.0", request[1] if len(request) > 1 else b"", code, text, user, b""])

    def _judge(self, request: list[bytes]) -> tuple[Verdict, bytes]:
        """Return the verdict, and the key as the user id of the connection."""
        if len(request) != 7 or (request[0], request[2], request[5]) != (b"1.0", DOMAIN, b"CURVE"):
            return self._refuse(_NO, "request", "", "")
        address, key = request[3].decode("ascii", "replace"), z85.encode(request[6]).decode("ascii")
        try:
            client = self.registry.find(key)
        except RegistryError as error:
            return self._refuse(_LATER, "registry", key, address, str(error))
        if client is None:
            return self._refuse(_NO, "unknown", key, address)
        if client.revoked is not None:
            return self._refuse(_NO, "revoked", key, address)
        self.accepted += 1
        self._admitted.add(key)
        self._log.info("client_admitted", client=client.name, role=client.role, address=address)
        return _OK, key.encode()

    def _refuse(self, verdict: Verdict, reason: str, key: str, address: str, more: str = "") -> tuple[Verdict, bytes]:
        self.refused[reason] += 1
        count = self.refused[reason]
        if count & (count - 1) == 0:
            told = {"reason": reason, "public_key": key, "address": address, "count": count, "more": more or None}
            self._log.warning("client_refused", **told)
        return verdict, b""

    def revoked(self) -> list[str]:
        """Return the names of clients that were admitted here and have been revoked since.

        An unusable registry revokes nobody; it admits nobody either.
        """
        names = []
        for key in self._admitted:
            try:
                client = self.registry.find(key)
            except RegistryError:
                return []
            if client is None or client.revoked is not None:
                names.append(key if client is None else client.name)
        return sorted(names)

    def describe(self) -> dict[str, Any]:
        """Return the counters."""
        return {"accepted": self.accepted, "refused": dict(self.refused)}

    def close(self) -> None:
        """Close the socket; nobody is admitted from now on."""
        self.socket.close(linger=0)
