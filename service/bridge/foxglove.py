"""Foxglove's live connection: a WebSocket server that offers streams to viewers, by Foxglove's own SDK.

The SDK works in threads of its own.  For each viewer it keeps at most `BACKLOG` messages, and drops the oldest when a
viewer is slow: whoever sends never waits.  It does not tell how many it has dropped.

Viewers can look, and nothing else: the server takes no messages, parameters or requests of theirs.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

import foxglove
from foxglove.websocket import ChannelView, Client, ServerListener, StatusLevel

from service.bridge._schemas import Stream
from service.bridge.shape import Shaped
from service.protocol.json_values import plain

BACKLOG = 256
_SILENCE = "thetad-silence"


class BindError(OSError):
    """The server cannot listen at this address."""


class _Viewers(ServerListener):
    """Who has subscribed to something since the start; called by threads of the SDK."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_subscribe(self, client: Client, channel: ChannelView) -> None:  # noqa: ARG002
        self.seen.add(client.id)


class FoxgloveServer:
    """Offers streams to viewers at `url`; a context manager.

    Parameters
    ----------
    host : str
        Address to listen at.
    port : int
        0: any free one.

    Attributes
    ----------
    sent : int
        Messages that at least one viewer had subscribed to.

    Raises
    ------
    BindError
        Another program listens there, or the address is not of this computer.
    """

    def __init__(self, host: str, port: int) -> None:
        self.sent = 0
        self._viewers = _Viewers()
        self._channels: dict[str, tuple[Stream, foxglove.Channel]] = {}
        self._context = foxglove.Context()
        try:
            self._server = foxglove.start_server(
                name="thetad",
                host=host,
                port=port,
                capabilities=[],
                server_listener=self._viewers,
                context=self._context,
                message_backlog_size=BACKLOG,
            )
        except RuntimeError as error:  # the SDK has no error of its own for this
            raise BindError(f"{host}:{port}: cannot listen there: {error}; choose another --port or --host") from error
        self.url = f"ws://{host}:{self._server.port}"

    @property
    def viewers(self) -> int:
        """How many connections have subscribed to something since the start."""
        return len(self._viewers.seen)

    def offer(self, stream: Stream) -> None:
        """Tell viewers of a stream; one of the same topic is replaced."""
        known = self._channels.get(stream.topic)
        if known is not None:
            if known[0] == stream:
                return
            known[1].close()
        schema = foxglove.Schema(name=stream.name, encoding="jsonschema", data=json.dumps(stream.schema).encode())
        channel = foxglove.Channel(stream.topic, schema=schema, message_encoding="json", context=self._context)
        self._channels[stream.topic] = stream, channel

    def send(self, shaped: Shaped) -> None:
        """Send a message to those who have subscribed to its topic; returns at once."""
        _, channel = self._channels[shaped.topic]
        if channel.has_sinks():
            self.sent += 1
            channel.log(json.dumps(plain(shaped.content), allow_nan=False, separators=(",", ":")))

    def warn(self, text: str) -> None:
        """Show viewers a warning, or take it away if `text` is empty."""
        if text:
            self._server.publish_status(text, StatusLevel.Warning, _SILENCE)
        else:
            self._server.remove_status([_SILENCE])

    def close(self) -> None:
        """Hang up on all viewers; may be called more than once."""
        self._server.stop()
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
