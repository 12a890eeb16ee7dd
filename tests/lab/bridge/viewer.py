"""A Foxglove viewer without a screen: it speaks the protocol `foxglove.sdk.v1` over a real WebSocket."""

import contextlib
import json
import re
import socket
import struct
import time
from typing import Any

from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.lab.closing import Closing

DEADLINE_S = 30.0
#: First byte of a binary message: a message of a subscription; its number, and when it was logged, follow.
MESSAGE = 1
_HEAD = struct.Struct("<BIQ")


class Viewer(Closing):
    """One connection; a `slow` one takes in next to nothing until it is asked for."""

    def __init__(self, url: str, slow: bool = False) -> None:
        host, _, port = url.removeprefix("ws://").partition(":")
        plain = socket.socket()
        if slow:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect((host, int(port)))
        self._stack = contextlib.ExitStack()
        opening = connect(
            url, sock=plain, subprotocols=[Subprotocol("foxglove.sdk.v1")], compression=None, ping_interval=None,
            max_queue=1 if slow else 64, proxy=None,
        )  # fmt: skip
        self._socket = self._stack.enter_context(opening)
        self.channels: dict[str, dict[str, Any]] = {}  # what it offers, by topic
        self.statuses: dict[str, str] = {}  # texts that are shown now, by id
        self._topics: dict[int, str] = {}  # by number of the subscription
        self._subscribed: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self.info: dict[str, Any] = {}  # what the server said of itself
        while not self.info:
            self._take(DEADLINE_S)

    def subscribe(self, *topics: str) -> None:
        """Wait until all are offered, and subscribe to them."""
        self.await_(lambda: self.channels.keys() >= set(topics))
        wanted = []
        for topic in topics:
            number = len(self._topics) + 1
            self._topics[number] = topic
            self._subscribed[topic] = self.channels[topic]["id"]
            wanted.append({"id": number, "channelId": self.channels[topic]["id"]})
        if wanted:
            self._socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))

    def _offered(self, topic: str) -> int:
        return int(self.channels.get(topic, {}).get("id", self._subscribed[topic]))

    def schema(self, topic: str) -> tuple[str, dict[str, Any]]:
        """Name and JSON schema of the messages of a topic."""
        channel = self.channels[topic]
        assert (channel["encoding"], channel["schemaEncoding"]) == ("json", "jsonschema")
        return channel["schemaName"], json.loads(channel["schema"])

    def next(self, topic: str) -> tuple[int, dict[str, Any]]:
        """The next message of a topic, with the time at which it was logged [ns]."""
        self.await_(lambda: bool(self._waiting.get(topic)))
        return self._waiting[topic].pop(0)

    def has(self, topic: str) -> bool:
        """Whether a message of a topic is there."""
        with contextlib.suppress(TimeoutError):
            while not self._waiting.get(topic):
                self._take(0.0)
        return bool(self._waiting.get(topic))

    def await_(self, done: Any) -> None:
        """Take in messages until `done()` holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            self._take(deadline - time.monotonic())

    def _take(self, timeout_s: float) -> None:
        message = self._socket.recv(timeout_s)
        if isinstance(message, bytes):
            kind, number, logged_ns = _HEAD.unpack_from(message)
            assert kind == MESSAGE
            content = json.loads(message[_HEAD.size :], parse_constant=_no_number)
            self._waiting.setdefault(self._topics[number], []).append((logged_ns, content))
            return
        said = json.loads(message)
        if said["op"] == "serverInfo":
            self.info = said
        elif said["op"] == "advertise":
            self.channels |= {channel["topic"]: channel for channel in said["channels"]}
            self.subscribe(*(topic for topic, number in self._subscribed.items() if self._offered(topic) != number))
        elif said["op"] == "unadvertise":
            gone = set(said["channelIds"])
            self.channels = {topic: channel for topic, channel in self.channels.items() if channel["id"] not in gone}
        elif said["op"] == "status" and "id" in said:
            self.statuses[said["id"]] = said["message"]
        elif said["op"] == "status":  # of a channel that has gone, or that the server offered before it knew it itself
            refused = {int(number) for number in re.findall(r"Unknown channel ID: (\d+)", said["message"])}
            self.subscribe(
                *(topic for topic, number in self._subscribed.items() if {number, self._offered(topic)} <= refused)
            )
        elif said["op"] == "removeStatus":
            for number in said["statusIds"]:
                self.statuses.pop(number, None)

    def close(self) -> None:
        self._stack.close()


def _no_number(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")
