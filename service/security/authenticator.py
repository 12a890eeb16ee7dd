"""Asks the registry about everybody who connects: the handler of ZeroMQ's authentication protocol, ZAP (RFC 27).

libzmq asks the socket `inproc://zeromq.zap.01` of the same context whether a client's key may connect.  Sockets that
`protect` has set let nobody in while there is no such handler, or it does not answer.  An authenticator belongs to one
thread, which has to call `serve` often.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import zmq
from zmq.utils import z85

from service.io.log import Log
from service.io.sockets import readable
from service.security.keys import KeyPair
from service.security.registry import Registry, RegistryError

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"thetad"
HANDSHAKE_MS = 2000  # longest time from a connection to its admission
HEARTBEAT_MS = 5000  # between two signs of life; a peer without any for three times as long is hung up on
_MAX_A_TURN = 64
_OK, _LATER, _NO = (b"200", b"OK"), (b"300", b"not now"), (b"400", b"not admitted")


def protect(socket: zmq.Socket[bytes], pair: KeyPair) -> None:
    """Set a socket that is not bound yet so that only admitted clients connect to it, and encrypted.

    `pair` holds the daemon's keys.  Without an authenticator in the same context nobody connects.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)


class Authenticator:
    """Admits clients to the public sockets of one context.

    Parameters
    ----------
    context : zmq.Context
    registry : Registry
    log : Log

    Attributes
    ----------
    accepted : int
        Connections that were admitted.
    refused : Counter
        Connections that were not, by the reason: "unknown", "revoked", "registry" (it cannot be used), "request".
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
        """Answer those who wait for admission."""
        for _ in range(_MAX_A_TURN):
            if not readable(self.socket):
                return
            request = self.socket.recv_multipart()
            (code, text), user = self._judge(request)
            self.socket.send_multipart([b"1.0", request[1] if len(request) > 1 else b"", code, text, user, b""])

    def _judge(self, request: list[bytes]) -> tuple[tuple[bytes, bytes], bytes]:
        """Return the verdict, and the key as the name by which sockets know who a message is from."""
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

    def _refuse(
        self, verdict: tuple[bytes, bytes], reason: str, key: str, address: str, more: str = ""
    ) -> tuple[tuple[bytes, bytes], bytes]:
        self.refused[reason] += 1
        count = self.refused[reason]
        if count & (count - 1) == 0:
            self._log.warning(
                "client_refused", reason=reason, public_key=key, address=address, count=count, more=more or None
            )
        return verdict, b""

    def revoked(self) -> list[str]:
        """Return the names of clients that were admitted here and are known as revoked now.

        A registry that cannot be used at the moment revokes nobody; it admits nobody either.
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
        """Admit nobody from now on."""
        self.socket.close(linger=0)
