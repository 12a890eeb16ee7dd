"""Connections that do not get on with their handshake."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable

PATIENCE_S = 20.0  # libzmq itself, left to its own ways, hangs up after 30 s


def hung_up_on(endpoints: Iterable[str], said: Iterable[bytes]) -> float:
    """Connect to each endpoint, once for each of the things said, and wait for the end of all; returns how long [s]."""
    began = time.monotonic()
    words = list(said)
    with contextlib.ExitStack() as stack:
        connections = []
        for endpoint in endpoints:
            host, _, port = endpoint.removeprefix("tcp://").partition(":")
            for word in words:
                raw = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
                raw.sendall(word)
                connections.append(raw)
        for raw in connections:
            with contextlib.suppress(ConnectionError):  # which is an end as well
                while raw.recv(65536):
                    pass
    return time.monotonic() - began
