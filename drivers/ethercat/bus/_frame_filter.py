"""A filter in the kernel, before SOEM's sockets: only frames that are what they say come through.

SOEM takes a frame for the answer by its index alone, and then as many bytes as it has asked for: of a frame that was
cut short it takes the rest from the one before, of one whose lengths are others, values from wrong places.  Ethernet's
check sum sees to it that such frames do not come over a cable; what software sends to this interface has none.

The filter is a program of the classic Berkeley Packet Filter (Linux: Documentation/networking/filter.rst).  What the
kernel makes of it has to go into `net.core.optmem_max`, 20,480 bytes on kernels before 6.8, so it cannot follow a chain
of datagrams to any length.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket

#: A chain of more comes through by its header alone: SOEM asks for the states of up to 64 slaves in one frame.
MAX_DATAGRAMS = 20
#: The longest process data of one frame, beside the datagram of the clock.
ONE_FRAME_BYTES = 1466
_LRW = 12
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27

_LOAD_BYTE, _LOAD_BYTE_AT_X, _LOAD_SIZE, _LOAD_M, _LOAD_X, _LOAD_X_M = 0x30, 0x50, 0x80, 0x60, 0x01, 0x61
_STORE_M, _TO_X, _FROM_X = 0x02, 0x07, 0x87
_ADD, _ADD_X, _AND, _OR_X, _SHIFT = 0x04, 0x0C, 0x54, 0x4C, 0x64
_IF_EQUAL, _IF_EQUAL_X, _IF_NOT_LESS_X, _RETURN = 0x15, 0x1D, 0x3D, 0x06
_END, _MORE, _NEXT = range(3)  # places in the filter's memory
_ALL = 0x40000

Instruction = tuple[int, int, int, int]  # code, how many to pass over if true, and if false, operand


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def program(image_bytes: int | None = None) -> list[Instruction]:
    """Return the filter.

    A frame comes through whose EtherCAT header is one of datagrams, with a length that the frame has, and whose
    datagrams end exactly there; of more than `MAX_DATAGRAMS` the last are not looked at.

    Parameters
    ----------
    image_bytes : int, optional
        So many bytes have the process data as well, if a frame has any by LRW; None: any number.
    """
    found = [_load(15), (_AND, 0, 0, 0xF8), (_IF_EQUAL, 1, 0, 0x10), _drop()]
    found += [_load(15), (_AND, 0, 0, 7), (_SHIFT, 0, 0, 8), (_TO_X, 0, 0, 0), _load(14), (_OR_X, 0, 0, 0)]
    found += [(_ADD, 0, 0, 16), (_STORE_M, 0, 0, _END), (_TO_X, 0, 0, 0)]
    found += [(_LOAD_SIZE, 0, 0, 0), (_IF_NOT_LESS_X, 1, 0, 0), _drop()]
    if image_bytes is not None:
        length = [_load(23), (_AND, 0, 0, 7), (_SHIFT, 0, 0, 8), (_TO_X, 0, 0, 0), _load(22), (_OR_X, 0, 0, 0)]
        length += [(_IF_EQUAL, 1, 0, image_bytes), _drop()]
        found += [_load(16), (_IF_EQUAL, 0, len(length), _LRW), *length]
    found += [(_LOAD_X, 0, 0, 16)]
    found += _DATAGRAM * MAX_DATAGRAMS
    return [*found, (_RETURN, 0, 0, _ALL)]


def _load(place: int) -> Instruction:
    return _LOAD_BYTE, 0, 0, place


def _drop() -> Instruction:
    return _RETURN, 0, 0, 0


#: X is the place of a datagram's header.  The filter goes on behind this with the next one, and ends with the last one.
#: A byte beyond the frame ends it too, and drops the frame.
_DATAGRAM: list[Instruction] = [
    (_LOAD_BYTE_AT_X, 0, 0, 7), (_AND, 0, 0, 0x80), (_STORE_M, 0, 0, _MORE),
    (_LOAD_BYTE_AT_X, 0, 0, 7), (_AND, 0, 0, 7), (_SHIFT, 0, 0, 8), (_ADD_X, 0, 0, 0), (_ADD, 0, 0, 12),
    (_STORE_M, 0, 0, _NEXT), (_LOAD_BYTE_AT_X, 0, 0, 6), (_LOAD_X_M, 0, 0, _NEXT), (_ADD_X, 0, 0, 0), (_TO_X, 0, 0, 0),
    (_LOAD_M, 0, 0, _MORE), (_IF_EQUAL, 0, 5, 0),
    (_FROM_X, 0, 0, 0), (_LOAD_X_M, 0, 0, _END), (_IF_EQUAL_X, 0, 1, 0), (_RETURN, 0, 0, _ALL), _drop(),
]  # fmt: skip


def attach(to: socket.socket, image_bytes: int | None = None) -> bool:
    """Let a socket receive only what comes through the filter, instead of the one before; see `program`.

    Returns False, and leaves the socket without a filter, if the kernel has no room for it or knows no filters: a bus
    that works does without.
    """
    instructions = program(image_bytes)
    array = (_Filter * len(instructions))(*(_Filter(*each) for each in instructions))
    with contextlib.suppress(OSError):  # there may be none; both at once may be more than there is room for
        to.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    try:
        to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(_Program(len(instructions), array)))
    except OSError:
        return False
    return True
