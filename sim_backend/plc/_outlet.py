"""Outgoing packets of a connection: immediate, delayed, batched or fragmented."""

from collections import deque
from dataclasses import dataclass

_MAX = 16 * 1024 * 1024  # bytes that may wait behind a packet


@dataclass
class LineFaults:
    """Faults of the line to all clients of a PLC; none by default.

    The next `delayed` packets have a delay, and later ones wait for them; packets are held until `hold_until_ns`, to be
    sent together; until `silent_until_ns` nothing is answered; fragments have `piece_bytes` (0: none) every
    `piece_gap_ns`.
    """

    delay_ns: int = 0
    delayed: int = 0
    hold_until_ns: int = 0
    silent_until_ns: int = 0
    piece_bytes: int = 0
    piece_gap_ns: int = 0


class Outlet:
    """Queue of packets of one connection."""

    def __init__(self, faults: LineFaults) -> None:
        self._faults = faults
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._last_ns = 0

    def put(self, data: bytes, now_ns: int) -> None:
        """Queue a packet at a time [ns]."""
        faults = self._faults
        release_ns = max(now_ns, self._last_ns, faults.hold_until_ns)
        if faults.delayed > 0:
            faults.delayed -= 1
            release_ns = max(release_ns, now_ns + faults.delay_ns)
        self._bytes += len(data)
        size = faults.piece_bytes or len(data)
        for place in range(0, len(data), size):
            self._waiting.append((release_ns, data[place : place + size]))
            if place + size < len(data):
                release_ns += faults.piece_gap_ns
        self._last_ns = release_ns

    def due(self, now_ns: int) -> list[bytes]:
        """Remove and return the pieces due by now."""
        waiting, pieces, last_ns = self._waiting, list[list[bytes]](), None
        while waiting and waiting[0][0] <= now_ns:
            release_ns, data = waiting.popleft()
            self._bytes -= len(data)
            if release_ns != last_ns:
                pieces.append([])
            pieces[-1].append(data)
            last_ns = release_ns
        return [b"".join(piece) for piece in pieces]

    @property
    def full(self) -> bool:
        """Whether the client has left too much unread; a single packet may have any length."""
        return self._bytes > _MAX and len(self._waiting) > 1

    @property
    def next_ns(self) -> int | None:
        """Time of the next piece [ns]; None if the queue is empty."""
        return self._waiting[0][0] if self._waiting else None
