"""Foxglove live connection: a read-only WebSocket server for viewers, based on Foxglove's SDK.

For each viewer the SDK queues at most `BACKLOG` messages and drops the oldest, so sending never blocks.
"""

import json
from typing import Self

import foxglove
from foxglove.websocket import ChannelView, Client, ServerListener, StatusLevel

from service.bridge._schemas import Stream
from service.bridge.conversion import ViewerMessage
from service.protocol.json_values import json_values

BACKLOG = 256
_SILENCE = "thetad-silence"


class BindError(OSError):
    """The server cannot listen at this address."""


class _Viewers(ServerListener):
    """Clients that have subscribed to something since the start; called by threads of the SDK."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_subscribe(self, client: Client, channel: ChannelView) -> None:  # noqa: ARG002
        self.seen.add(client.id)


class FoxgloveServer:
    """Server that offers streams to viewers at `url`; a context manager.

    It listens at the address `host` and the `port`, 0 for any free one; raises `BindError`: the port is in use, or the
    address does not belong to this computer.  `sent` counts messages that at least one viewer had subscribed to.
    """

    def __init__(self, host: str, port: int) -> None:
        self.sent = 0
        self._viewers = _Viewers()
        self._channels: dict[str, tuple[Stream, foxglove.Channel]] = {}
        self._context = foxglove.Context()
        try:
            self._server = foxglove.start_server(
                name="thetad", host=host, port=port, context=self._context, capabilities=[],
                server_listener=self._viewers, message_backlog_size=BACKLOG,
            )  # fmt: skip
        except RuntimeError as error:  # the SDK has no specific exception for this
            raise BindError(f"{host}:{port}: cannot listen there: {error}; choose another --port or --host") from error
        self.url = f"ws://{host}:{self._server.port}"

    @property
    def viewers(self) -> int:
        """Number of clients that have subscribed to something since the start."""
        return len(self._viewers.seen)

    def offer(self, stream: Stream) -> None:
        """Advertise a stream to viewers, replacing one of the same topic."""
        known = self._channels.get(stream.topic)
        if known is not None:
            if known[0] == stream:
                return
            known[1].close()
        schema = foxglove.Schema(name=stream.name, encoding="jsonschema", data=json.dumps(stream.schema).encode())
        channel = foxglove.Channel(stream.topic, schema=schema, message_encoding="json", context=self._context)
        self._channels[stream.topic] = stream, channel

    def send(self, shaped: ViewerMessage) -> None:
        """Send a message to the subscribers of its topic; returns at once."""
        _, channel = self._channels[shaped.topic]
        if channel.has_sinks():
            self.sent += 1
            channel.log(json.dumps(json_values(shaped.content), allow_nan=False, separators=(",", ":")))

    def warn(self, text: str) -> None:
        """Show viewers a warning, or remove it if `text` is empty."""
        if text:
            self._server.publish_status(text, StatusLevel.Warning, _SILENCE)
        else:
            self._server.remove_status([_SILENCE])

    def close(self) -> None:
        """Disconnect all viewers; may be called more than once."""
        self._server.stop()
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
