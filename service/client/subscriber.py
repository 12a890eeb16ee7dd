"""Subscribe to a daemon: decoded messages, their age, and losses; exported by `service.client`."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from service.client.control import ClientTimeoutError, Connection
from service.protocol import messages
from service.protocol.messages import Message
from service.security.keys import ClientKey

FRAMES = "tcp://127.0.0.1:9870"
ESTIMATES = "tcp://127.0.0.1:9871"


@dataclass
class StreamCounts:
    """Counters of one topic from one process.

    Attributes
    ----------
    epoch : int
        Boot counter of the sender in the latest message; 0 before the first.
    epochs : int
        Number of the sender's starts seen.
    received, lost, repeated : int
        Messages; sequence numbers missing within an epoch; late or repeated messages.
    """

    epoch: int = 0
    epochs: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    expected: int = 0

    def count(self, epoch: int, seq: int) -> None:
        """Count a message."""
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
    """Connection that receives the messages of some topics.

    Parameters
    ----------
    endpoint : str or sequence of str
        Such as `client.ESTIMATES`, or several of one daemon; a missing daemon shows only by the absence of messages.
    topics : iterable of str, or one
        `<arm>/<kind>`, or an empty text for everything.
    timeout_s : float
        Longest wait of `receive` and of iteration for one message.
    queue : int
        Messages kept for a slow reader; beyond that messages are lost, and counted.
    key : ClientKey, str or Path, optional
        The client's key or its file, for a daemon that requires one.

    Attributes
    ----------
    counts : dict of (topic, src) to StreamCounts
    invalid : int
        Messages that could not be decoded; they are skipped.
    """

    def __init__(
        self, endpoint: str | Sequence[str], topics: Iterable[str], timeout_s: float = 5.0, queue: int = 20_000,
        key: ClientKey | str | Path | None = None,
    ) -> None:  # fmt: skip
        self.timeout_s = timeout_s
        self.counts: dict[tuple[str, str], StreamCounts] = {}
        self.invalid = 0
        options: list[tuple[int, int | bytes]] = [(zmq.RCVHWM, queue), (zmq.MAXMSGSIZE, messages.MAX_MESSAGE)]
        options += [(zmq.RECONNECT_IVL, 50), (zmq.RECONNECT_IVL_MAX, 500)]
        options += [(zmq.SUBSCRIBE, topic.encode()) for topic in ([topics] if isinstance(topics, str) else topics)]
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
            No message within `timeout_s` (None: that of the constructor).
        NotAdmittedError
            The daemon refuses this client.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        while True:
            if not self._arrives(deadline):
                raise ClientTimeoutError(f"{self.endpoint}: no message within {limit:g} s{self._hint}")
            message = self._take()
            if message is not None:
                return message

    def newest(self, timeout_s: float | None = None) -> Message:
        """Drop all waiting messages but the last, and return it; wait for one if there is none.

        With several topics use one subscriber each: the last message may be of any topic.
        """
        message = self.receive(timeout_s)
        while self._socket.poll(0):
            message = self._take() or message
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages; ends with `ClientTimeoutError` if none arrives within the timeout."""
        while True:
            yield self.receive()

    def each(self, function: Callable[[Message], object]) -> None:
        """Call a function with each message, until it returns False."""
        for message in self:
            if function(message) is False:
                return

    @property
    def lost(self) -> int:
        """Messages lost, over all topics."""
        return sum(counts.lost for counts in self.counts.values())

    @staticmethod
    def age_s(message: Message) -> float:
        """Return the time since the daemon received the latest frame that the message is based on, on this host [s]."""
        return (time.monotonic_ns() - message.envelope.t_host_ns) * 1e-9

    def _take(self) -> Message | None:
        try:
            message = messages.decode(self._socket.recv_multipart())
        except messages.WireError:
            self.invalid += 1
            return None
        envelope = message.envelope
        counts = self.counts.setdefault((f"{message.arm}/{_kind(message)}", envelope.src), StreamCounts())
        counts.count(envelope.epoch, envelope.seq)
        return message


def _kind(message: Message) -> str:
    if isinstance(message, messages.FrameMessage):
        return "frame"
    if isinstance(message, messages.EstimateMessage):
        return "estimate"
    return "torque" if isinstance(message, messages.TorqueMessage) else message.kind
