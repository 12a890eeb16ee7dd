"""What other programs import: subscribe to a daemon's messages, and make requests.

    from service.client import Subscriber

    with Subscriber("tcp://127.0.0.1:9871", ["panda/estimate"]) as subscriber:
        for message in subscriber:
            print(message.theta, message.std, subscriber.age_s(message))

Importing this module loads neither numba nor any estimator.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import zmq

from service.control import ControlError, Request, decode_reply, encode_request
from service.wire import (
    MAX_MESSAGE,
    MAX_REPLY,
    BodyMessage,
    EstimateMessage,
    FrameMessage,
    Message,
    TorqueMessage,
    WireError,
    decode,
)

__all__ = [
    "CONTROL",
    "ESTIMATES",
    "FRAMES",
    "BodyMessage",
    "ClientError",
    "ClientTimeoutError",
    "Control",
    "ControlError",
    "EstimateMessage",
    "FrameMessage",
    "Message",
    "StreamCounts",
    "Subscriber",
    "TorqueMessage",
    "UnreachableError",
]

FRAMES = "tcp://127.0.0.1:9870"
ESTIMATES = "tcp://127.0.0.1:9871"
CONTROL = "tcp://127.0.0.1:9873"


class ClientError(RuntimeError):
    """Any failure on the client's side."""


class ClientTimeoutError(ClientError, TimeoutError):
    """No message within the given time."""


class UnreachableError(ClientError, ConnectionError):
    """No daemon answers at this endpoint."""


@dataclass
class StreamCounts:
    """What was received of one topic from one process.

    Attributes
    ----------
    epoch : int
        Of the newest message; 0 before the first.
    epochs : int
        How many starts of the sender were seen.
    received, lost, repeated : int
        Messages; sequence numbers missing between them within an epoch; messages that came late or twice.
    """

    epoch: int = 0
    epochs: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    expected: int = 0

    def count(self, epoch: int, seq: int) -> None:
        """Take note of a message."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.epochs += 1
        elif epoch < self.epoch or seq < self.expected:
            self.repeated += 1
            return
        else:
            self.lost += seq - self.expected
        self.received += 1
        self.expected = seq + 1


class Subscriber:
    """Receives the messages of some topics.

    Parameters
    ----------
    endpoint : str
        Such as `client.ESTIMATES`; whether anything is there shows only when messages come.
    topics : iterable of str
        `<arm>/<kind>`, or an empty text for everything.
    timeout_s : float
        Longest wait of `receive` and of iteration for one message.
    queue : int
        Messages kept for a slow reader before the oldest undelivered are lost, and counted so.

    Attributes
    ----------
    counts : dict of (topic, src) to StreamCounts
    invalid : int
        Messages that could not be decoded; they are skipped.
    """

    def __init__(self, endpoint: str, topics: Iterable[str], timeout_s: float = 5.0, queue: int = 20_000) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self.counts: dict[tuple[str, str], StreamCounts] = {}
        self.invalid = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, queue)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        self._socket.setsockopt(zmq.LINGER, 0)
        try:
            for topic in topics:
                self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ClientError(f"{endpoint}: cannot connect: {error.strerror}") from error

    def receive(self, timeout_s: float | None = None) -> Message:
        """Return the next message.

        Raises
        ------
        ClientTimeoutError
            None came within `timeout_s` (None: as given at the start).
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        while True:
            remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
            if not self._socket.poll(remaining_ms):
                raise ClientTimeoutError(f"{self.endpoint}: no message within {limit:g} s")
            message = self._take()
            if message is not None:
                return message

    def newest(self, timeout_s: float | None = None) -> Message:
        """Drop what waits but the last message, and return that one; waits for one if there is none.

        With several topics, use one subscriber each: the last message is that of any of them.
        """
        message = self.receive(timeout_s)
        while self._socket.poll(0):
            message = self._take() or message
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages; ends with `ClientTimeoutError` when none comes within the timeout."""
        while True:
            yield self.receive()

    @property
    def lost(self) -> int:
        """Messages lost, over all topics."""
        return sum(counts.lost for counts in self.counts.values())

    @staticmethod
    def age_s(message: Message) -> float:
        """Time since the newest frame that a message rests on was received by the daemon, on this host [s]."""
        return (time.monotonic_ns() - message.envelope.t_host_ns) * 1e-9

    def _take(self) -> Message | None:
        try:
            message = decode(self._socket.recv_multipart())
        except WireError:
            self.invalid += 1
            return None
        envelope = message.envelope
        counts = self.counts.setdefault((f"{message.arm}/{_kind(message)}", envelope.src), StreamCounts())
        counts.count(envelope.epoch, envelope.seq)
        return message

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kind(message: Message) -> str:
    if isinstance(message, FrameMessage):
        return "frame"
    if isinstance(message, EstimateMessage):
        return "estimate"
    return "torque" if isinstance(message, TorqueMessage) else message.kind


class Control:
    """Makes requests of a daemon; not for use by several threads at once."""

    def __init__(self, endpoint: str = CONTROL) -> None:
        self.endpoint = endpoint
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._id = 0
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ClientError(f"{endpoint}: cannot connect: {error.strerror}") from error

    def request(self, verb: str, timeout_s: float = 5.0, **args: Any) -> dict[str, Any]:
        """Make one request and return its result.

        Raises
        ------
        ControlError
            The daemon refused it; `type` and `message` say why.
        UnreachableError
            No answer within `timeout_s`.
        """
        self._id += 1
        self._socket.send(encode_request(Request(self._id, verb, args)))
        deadline = time.monotonic() + timeout_s
        while True:
            remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
            if not self._socket.poll(remaining_ms):
                raise UnreachableError(f"{self.endpoint}: no answer within {timeout_s:g} s; is the daemon running?")
            reply = decode_reply(self._socket.recv_multipart()[-1])
            if reply.id not in (self._id, 0):  # the late answer to a request that was given up
                continue
            if reply.error is not None:
                raise reply.error
            return reply.result

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
