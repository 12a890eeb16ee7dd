"""Mailbox of a slave: header, counter, repeat handshake, error replies and queue (ETG.1000.4 and ETG.1000.6)."""

import struct
from collections import deque

from sim_backend.ethercat._coe import CoeError, CoeServer

HEADER = 6
TYPE_ERROR, TYPE_COE = 0x00, 0x03

ERROR_PROTOCOL, ERROR_SERVICE, ERROR_TOO_SHORT, ERROR_SIZE = 0x02, 0x04, 0x06, 0x08

_HEADER = struct.Struct("<HHBB")  # length, station, channel and priority, type and counter
_ROOM = 16  # messages in the queue; beyond, requests wait in the buffer and emergencies are lost


def message(kind: int, counter: int, data: bytes, station: int = 0) -> bytes:
    """Return a message: header with type and counter (1-7, 0 for none), then data."""
    return _HEADER.pack(len(data), station, 0, kind | counter << 4) + data


def parse_header(data: bytes) -> tuple[int, int, int]:
    """Return length, type and counter of a message of at least 6 bytes."""
    length, _, _, kind = _HEADER.unpack_from(data)
    return length, kind & 0x0F, kind >> 4 & 0x07


class Mailbox:
    """Queue of replies and emergencies, held until the master has read them; CoE is the only protocol supported."""

    def __init__(self, coe: CoeServer) -> None:
        self._coe = coe
        self._queue: deque[bytes] = deque()
        self._room = 0
        self._heard = 0  # counter of the last request
        self._counter = 0  # of the last message made here
        self._read: bytes | None = None  # the last message that the master has read, until its next request

    def start(self, send_bytes: int) -> None:
        """Reset, with a send buffer of that size."""
        self._room = send_bytes - HEADER
        self._queue.clear()
        self._heard = self._counter = 0
        self._read = None
        self._coe.reset()

    @property
    def full(self) -> bool:
        return len(self._queue) >= _ROOM

    def request(self, data: bytes, state: int) -> None:
        """Queue the replies to a request, the whole receive buffer; a repeated request is ignored."""
        length, kind, counter = parse_header(data)
        if counter and counter == self._heard:
            return
        self._heard = counter
        self._read = None
        if length > len(data) - HEADER:
            self._refuse(ERROR_SIZE)
        elif kind != TYPE_COE:
            self._refuse(ERROR_PROTOCOL)
        else:
            try:
                replies = self._coe.request(data[HEADER : HEADER + length], state, self._room)
            except CoeError as error:
                self._refuse(ERROR_TOO_SHORT if error.too_short else ERROR_SERVICE)
                return
            for reply in replies:
                self._put(TYPE_COE, reply)

    def emergency(self, code: int, register: int, data: bytes) -> bool:
        """Queue an emergency; False if the queue is full."""
        if self.full:
            return False
        self._put(TYPE_COE, self._coe.emergency(code, register, data))
        return True

    def next(self) -> bytes | None:
        """Remove and return the next message for the send buffer, None if there is none."""
        return self._queue.popleft() if self._queue else None

    def was_read(self, sent: bytes) -> None:
        """Keep the message just read by the master, for a repeat."""
        self._read = sent

    def repeat(self, unread: bytes | None) -> bytes | None:
        """Return the message for the send buffer after the master has requested a repeat.

        `unread`, the message in the buffer now, is queued again if an older one has to be repeated.
        """
        if self._read is None:
            return unread if unread is not None else self.next()
        if unread is not None:
            self._queue.appendleft(unread)
        again, self._read = self._read, None
        return again

    def _refuse(self, detail: int) -> None:
        self._put(TYPE_ERROR, struct.pack("<HH", 0x0001, detail))

    def _put(self, kind: int, data: bytes) -> None:
        self._counter = self._counter % 7 + 1
        self._queue.append(message(kind, self._counter, data))
