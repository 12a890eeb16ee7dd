"""Connections that ask by HTTP, with limits: who sends nothing, or slowly, or takes no answer, is hung up on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 5.0  # for a whole request to come, and for an answer to be taken: without either, no longer than this
MAX = 64  # connections at a time; beyond it the one that has stood still longest makes room
MAX_HEADERS = 8192  # bytes of the line and the headers of a request
#: In the scope of a request: what renews the limit of its connection, for an answer that others have to make first.
RENEW = "thetad.renew"


class Connection(H11Protocol):
    """One connection; from its beginning to its end a limit of time runs, whatever it waits for.

    The limit is renewed by a request whose headers have come and by an answer that was handed to the socket, not by
    bytes: neither a client that sends in drops nor one that takes no answer keeps its place.
    """

    _limit: asyncio.TimerHandle | None = None  # None once it is hung up on

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait, and make room if there are too many."""
        super().connection_made(transport)
        self._renew()
        limits = {
            other: other._limit.when()
            for other in self.connections
            if isinstance(other, Connection) and other._limit is not None
        }
        if len(limits) > MAX:
            min(limits, key=limits.__getitem__).hang_up()

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._renew()
            cast("dict[str, Any]", self.cycle.scope)[RENEW] = self._renew_if_there

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request; after an answer there is no other way than to hang up."""
        if self.cycle is None:
            super().send_400_response(msg)
        else:
            self.hang_up()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the answer to be taken if it was the last."""
        super().on_response_complete()
        self._renew()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """End the connection at once, with nothing more said, even if it is closing and has something left to say."""
        self._stop()
        self.transport.abort()

    def _renew_if_there(self) -> None:
        if self._limit is not None:
            self._renew()

    def _renew(self) -> None:
        self._stop()
        self._limit = self.loop.call_later(REQUEST_S, self.hang_up)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
