"""Subscribe to what a daemon publishes: decoded messages, their age, and what was lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from service.client.control import (
    ClientTimeoutError,
    Connection,
)
from service.protocol.messages import (
    MAX_MESSAGE,
    EstimateMessage,
    FrameMessage,
    Message,
    TorqueMessage,
    WireError,
    decode,
)
from service.security.keys import ClientKey

FRAMES = "tcp://127.0.0.1:9870"
ESTIMATES = "tcp://127.0.0.1:9871"


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


class Subscriber(Connection):
    """Receives the messages of some topics.

    Parameters
    ----------
    endpoint : str or sequence of str
        Such as `client.ESTIMATES`, or several of one daemon; whether anything is there shows only when messages come.
    topics : iterable of str
        `<arm>/<kind>`, or an empty text for everything.
    timeout_s : float
        Longest wait of `receive` and of iteration for one message.
    queue : int
        Messages kept for a slow reader before the oldest undelivered are lost, and counted so.
    key : ClientKey, str or Path, optional
        The client's key or its file, for a daemon that asks for one.

    Attributes
    ----------
    counts : dict of (topic, src) to StreamCounts
    invalid : int
        Messages that could not be decoded; they are skipped.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        topics: Iterable[str],
        timeout_s: float = 5.0,
        queue: int = 20_000,
        key: ClientKey | str | Path | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.counts: dict[tuple[str, str], StreamCounts] = {}
        self.invalid = 0
        options: list[tuple[int, int | bytes]] = [(zmq.RCVHWM, queue), (zmq.MAXMSGSIZE, MAX_MESSAGE)]
        options += [(zmq.RECONNECT_IVL, 50), (zmq.RECONNECT_IVL_MAX, 500)]
        options += [(zmq.SUBSCRIBE, topic.encode()) for topic in topics]
        first, *others = [endpoint] if isinstance(endpoint, str) else endpoint
        super().__init__(zmq.SUB, first, key, tuple(options))
        for other in others:
            self._connect(other)
            self.endpoint += f", {other}"

    def receive(self, timeout_s: float | None = None) -> Message:
        """Return the next message.

        Raises
        ------
        ClientTimeoutError
            None came within `timeout_s` (None: as given at the start).
        NotAdmittedError
            The daemon does not let this client in.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        while True:
            if not self._arrives(deadline):
                raise ClientTimeoutError(f"{self.endpoint}: no message within {limit:g} s{self._doubt}")
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


def _kind(message: Message) -> str:
    if isinstance(message, FrameMessage):
        return "frame"
    if isinstance(message, EstimateMessage):
        return "estimate"
    return "torque" if isinstance(message, TorqueMessage) else message.kind
