"""Connections that ask by HTTP, with limits: who sends nothing, or slowly, or never ends, is hung up on."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 5.0  # for a whole request, counted from the connection or from the answer before
MOST = 64  # connections at a time; beyond it the one that has waited longest makes room
MOST_HEADERS = 8192  # bytes of the line and the headers of a request


class Connection(H11Protocol):
    """One connection; it waits while it has no whole request, and may do so for a limited time only."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait, and make room if there are too many."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MOST:
            waiting = [other for other in self.connections if isinstance(other, Connection) and other._limit]
            min(waiting, key=lambda other: other._limit.when() if other._limit else 0.0).hang_up()

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        super().data_received(data)
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request; after an answer there is no other way than to hang up."""
        if self.cycle is None:
            super().send_400_response(msg)
        else:
            self.hang_up()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """End the connection at once, with nothing more said."""
        self._stop_waiting()
        self.transport.abort()

    def _look(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self._limit is None and not self.transport.is_closing():
            self._limit = self.loop.call_later(REQUEST_S, self.hang_up)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
