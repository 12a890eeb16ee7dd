"""Kernel filter on SOEM's sockets that drops frames with inconsistent lengths.

SOEM recognises an answer by its index alone and copies as many bytes as it requested: the rest of a truncated frame
comes from the frame before, and values of a frame with other lengths come from wrong places.  Ethernet's checksum keeps
such frames off a cable, but not those that software sends to this interface.

The filter is a classic Berkeley Packet Filter (Linux: Documentation/networking/filter.rst).  Its compiled size is
limited by `net.core.optmem_max`, 20,480 bytes before Linux 6.8, and so is the number of datagrams that it follows.
"""

import contextlib
import ctypes
import socket

#: Datagrams beyond this number are not checked: SOEM reads the states of up to 64 slaves in one frame.
MAX_DATAGRAMS = 20
#: Longest process data of one frame, beside the datagram of the clock.
ONE_FRAME_BYTES = 1466
_LRW = 12
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27

_LOAD_BYTE, _LOAD_BYTE_AT_X, _LOAD_SIZE, _LOAD_M, _LOAD_X, _LOAD_X_M = 0x30, 0x50, 0x80, 0x60, 0x01, 0x61
_STORE_M, _TO_X, _FROM_X = 0x02, 0x07, 0x87
_ADD, _ADD_X, _AND, _OR_X, _SHIFT = 0x04, 0x0C, 0x54, 0x4C, 0x64
_IF_EQUAL, _IF_EQUAL_X, _IF_NOT_LESS_X, _RETURN = 0x15, 0x1D, 0x3D, 0x06
_END, _MORE, _NEXT = range(3)  # places in the filter's memory
_ALL = 0x40000

Instruction = tuple[int, int, int, int]  # code, instructions to skip if true, if false, operand


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def program(image_bytes: int | None = None) -> list[Instruction]:
    """Return the filter, which requires `image_bytes` of process data (LRW) unless None.

    It accepts a frame whose EtherCAT header announces datagrams, with a length within the frame, and whose first
    `MAX_DATAGRAMS` datagrams end exactly there.
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


#: One datagram; X is the offset of its header.  Continues with the next one, or ends after the last; reading beyond the
#: frame drops it.
_DATAGRAM: list[Instruction] = [
    (_LOAD_BYTE_AT_X, 0, 0, 7), (_AND, 0, 0, 0x80), (_STORE_M, 0, 0, _MORE),
    (_LOAD_BYTE_AT_X, 0, 0, 7), (_AND, 0, 0, 7), (_SHIFT, 0, 0, 8), (_ADD_X, 0, 0, 0), (_ADD, 0, 0, 12),
    (_STORE_M, 0, 0, _NEXT), (_LOAD_BYTE_AT_X, 0, 0, 6), (_LOAD_X_M, 0, 0, _NEXT), (_ADD_X, 0, 0, 0), (_TO_X, 0, 0, 0),
    (_LOAD_M, 0, 0, _MORE), (_IF_EQUAL, 0, 5, 0),
    (_FROM_X, 0, 0, 0), (_LOAD_X_M, 0, 0, _END), (_IF_EQUAL_X, 0, 1, 0), (_RETURN, 0, 0, _ALL), _drop(),
]  # fmt: skip


def attach(to: socket.socket, image_bytes: int | None = None) -> bool:
    """Replace the filter of a socket; see `program`.

    Returns False, and leaves the socket without a filter, if the kernel has no room for it or does not support filters.
    """
    instructions = program(image_bytes)
    array = (_Filter * len(instructions))(*(_Filter(*each) for each in instructions))
    with contextlib.suppress(OSError):  # there may be none; two may not fit at once
        to.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    try:
        to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(_Program(len(instructions), array)))
    except OSError:
        return False
    return True
