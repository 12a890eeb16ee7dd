"""AL states of a bus, read without a scan, which would reset the slaves, to leave a bus in operation alone."""

import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus.al_status import BOOT, OP, SAFEOP, AlStatus
from drivers.ethercat.bus.interface import ETHERTYPE, permission_text

_APRD, _BRD = 1, 7
_AL_STATUS = 0x0130
_INDEX = 0xFE  # SOEM uses 0 to 15, and ignores others
_SOURCE = b"\x02\x00\x00\x00\x00\x02"
_DATAGRAM = struct.Struct("<BBHHHH")
_HEADERS = 16  # of Ethernet and EtherCAT
_FRAME_MIN = 60
_TRIES, _ANSWER_S = 3, 0.02


def read_states(names: Sequence[str]) -> list[AlStatus | None]:
    """Read the AL status of each slave, without writing to any; None: no answer.

    The slaves are in order from the first of one or two interfaces (the ends of a ring).  Raises
    `DriverConnectionError` if that is not permitted.
    """
    with ExitStack() as stack:
        sockets = []
        for name in names:
            try:
                raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
            except PermissionError as error:
                raise DriverConnectionError(permission_text(name)) from error
            raw.bind((name, ETHERTYPE))
            sockets.append(stack.enter_context(raw))
        _, count = _read(sockets, _BRD, 0, 2)
        states: list[AlStatus | None] = []
        for position in range(count):
            raw_status, answered = _read(sockets, _APRD, -position & 0xFFFF, 6)
            if not answered:
                states.append(None)
                continue
            word, _, code = struct.unpack("<HHH", raw_status)
            states.append(AlStatus(word & 0x0F, bool(word & 0x10), code))
        return states


def refuse_operation(names: Sequence[str], states: Sequence[AlStatus | None]) -> None:
    """Raise `DriverConnectionError` if a slave is in a state that an active master keeps it in.

    SAFE-OP with an error is the state of a slave whose master has gone.
    """
    for position, status in enumerate(states):
        if status is None or not (status.state in (BOOT, OP) or (status.state == SAFEOP and not status.error)):
            continue
        name = {BOOT: "BOOT", OP: "OP", SAFEOP: "SAFE-OP"}[status.state]
        raise DriverConnectionError(
            f"the slave at position {position} on {names[0]} is in {name}: another master has it, although none of its "
            "frames come by here; stop that master, or switch the slave off and on"
        )


def _read(sockets: Sequence[socket.socket], command: int, address: int, size: int) -> tuple[bytes, int]:
    """Return data and working counter of one read; (zeros, 0) without an answer."""
    head = _DATAGRAM.pack(command, _INDEX, address, _AL_STATUS, size, 0)
    datagram = head + bytes(size + 2)
    frame = b"\xff" * 6 + _SOURCE + struct.pack(">H", ETHERTYPE) + struct.pack("<H", len(datagram) | 0x1000) + datagram
    end = _HEADERS + len(head) + size
    for _ in range(_TRIES):  # in a ring the answer comes out at the other end
        sockets[0].send(frame.ljust(_FRAME_MIN, b"\0"))
        until = time.monotonic() + _ANSWER_S
        while (left := until - time.monotonic()) > 0.0:
            for raw in select.select(sockets, [], [], left)[0]:
                answer = raw.recv(2048)
                if len(answer) < end + 2 or answer[_HEADERS] != command or answer[_HEADERS + 1] != _INDEX:
                    continue
                (count,) = struct.unpack_from("<H", answer, end)
                if count:
                    return answer[end - size : end], int(count)
    return bytes(size), 0
