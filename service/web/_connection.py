"""HTTP connections with time limits: a client that sends or receives too slowly is disconnected."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 5.0  # for receiving a request, and for delivering a response
MAX = 64  # concurrent connections; beyond it the one with the least time left is closed
MAX_HEADERS = 8192  # bytes of a request's line and headers
#: Key in a request's scope: renews the limit of its connection, while other processes prepare the response.
RENEW = "thetad.renew"


class Connection(H11Protocol):
    """One connection, with a time limit from its beginning to its end.

    The limit is renewed by complete headers of a request and by a response handed to the socket, not by bytes: a client
    that sends or receives in drops is disconnected.
    """

    _limit: asyncio.TimerHandle | None = None  # None once it is disconnected

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the limit, and close another connection if there are too many."""
        super().connection_made(transport)
        self._renew()
        limits = {
            other: other._limit.when()
            for other in self.connections
            if isinstance(other, Connection) and other._limit is not None
        }
        if len(limits) > MAX:
            min(limits, key=limits.__getitem__).disconnect()

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._renew()
            cast("dict[str, Any]", self.cycle.scope)[RENEW] = self._renew_if_there

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request; after a response only disconnecting is left."""
        if self.cycle is None:
            super().send_400_response(msg)
        else:
            self.disconnect()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for delivery of the last response."""
        super().on_response_complete()
        self._renew()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """Abort the connection at once, even if it is closing and has data left to send."""
        self._stop()
        self.transport.abort()

    def _renew_if_there(self) -> None:
        if self._limit is not None:
            self._renew()

    def _renew(self) -> None:
        self._stop()
        self._limit = self.loop.call_later(REQUEST_S, self.disconnect)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
