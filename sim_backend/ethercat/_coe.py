"""CANopen over EtherCAT: SDO server, emergencies and SDO information of a slave (ETG.1000.6, section 5.6)."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from sim_backend.canopen.dictionary import AbortCode, ObjectDictionary, SdoAbort
from sim_backend.errors import SimulationError
from sim_backend.ethercat._sdo_information import information

# Services.
EMERGENCY, SDO_REQUEST, SDO_RESPONSE, SDO_INFORMATION = 1, 2, 3, 8

# Command specifiers of requests (upper three bits), and of responses.
DOWNLOAD_SEGMENT, DOWNLOAD, UPLOAD, UPLOAD_SEGMENT, ABORT = 0x00, 0x20, 0x40, 0x60, 0x80
DOWNLOADED_SEGMENT, DOWNLOADED, UPLOADED, UPLOADED_SEGMENT = 0x20, 0x60, 0x40, 0x00
_SPECIFIER, _COMPLETE, _TOGGLE = 0xE0, 0x10, 0x10
_EXPEDITED, _SIZE_GIVEN, _LAST = 0x02, 0x01, 0x01

_COE_HEADER = 2
_SDO_HEADER = 8  # command, index, subindex, data or size
_SEGMENT_MIN = 7  # bytes of data in a segment, padded if there are fewer
_MAX = 1 << 16  # of a download

Reader = Callable[[int, int, int], bytes]
Writer = Callable[[int, int, bytes, int], None]


class CoeError(SimulationError, ValueError):
    """An invalid request, answered with a mailbox error: `too_short` for its header, or of an unknown service."""

    def __init__(self, reason: str, *, too_short: bool) -> None:
        self.too_short = too_short
        super().__init__(reason)


@dataclass(slots=True)
class _Transfer:
    """A segmented transfer: object, data left to send or received so far, next toggle bit."""

    index: int
    subindex: int
    data: bytearray
    download: bool
    complete: bool = False
    size: int = 0
    toggle: int = 0


class CoeServer:
    """Answers CoE messages from an object dictionary."""

    def __init__(
        self, dictionary: ObjectDictionary, *, complete_access: bool = True, sdo_information: bool = True
    ) -> None:
        self._dictionary = dictionary
        self._complete_access = complete_access
        self._information = sdo_information
        self._transfer: _Transfer | None = None

    def reset(self) -> None:
        """Drop an unfinished transfer."""
        self._transfer = None

    def request(self, data: bytes, state: int, room: int) -> list[bytes]:
        """Return the replies to a message (CoE header and service), each at most `room` bytes; `state` is the AL state.

        Raises `CoeError` if the message is too short, or of a service that slaves do not take.
        """
        if len(data) < _COE_HEADER:
            raise CoeError("a CoE message has a header of two bytes", too_short=True)
        service = data[1] >> 4
        if service == SDO_REQUEST:
            if len(data) < _COE_HEADER + _SDO_HEADER:
                raise CoeError("an SDO request has eight bytes or more", too_short=True)
            return self._sdo(data[_COE_HEADER:], state, room - _COE_HEADER)
        if service == SDO_INFORMATION and self._information:
            if len(data) < _COE_HEADER + 4:
                raise CoeError("an SDO information request has a header of four bytes", too_short=True)
            fragments = information(self._dictionary, data[_COE_HEADER:], room - _COE_HEADER)
            return [_header(SDO_INFORMATION) + fragment for fragment in fragments]
        raise CoeError(f"CoE service {service} is not supported", too_short=False)

    @staticmethod
    def emergency(code: int, register: int, data: bytes = b"") -> bytes:
        """Return an emergency message: error code, error register, up to five bytes of the manufacturer's."""
        return _header(EMERGENCY) + struct.pack("<HB5s", code & 0xFFFF, register & 0xFF, data)

    def _sdo(self, data: bytes, state: int, room: int) -> list[bytes]:
        command, index, subindex = struct.unpack_from("<BHB", data)
        specifier = command & _SPECIFIER
        if specifier == ABORT:
            self._transfer = None
            return []
        if specifier in (UPLOAD, DOWNLOAD):
            self._transfer = None
        elif self._transfer is not None:
            index, subindex = self._transfer.index, self._transfer.subindex
        try:
            reply = self._serve(data, state, room)
        except SdoAbort as abort:
            self._transfer = None
            # The standard sends an abort as a request; SOEM accepts no other service.
            return [_header(SDO_REQUEST) + struct.pack("<BHBI", ABORT, index, subindex, abort.code)]
        return [_header(SDO_RESPONSE) + reply]

    def _serve(self, data: bytes, state: int, room: int) -> bytes:
        command, index, subindex = struct.unpack_from("<BHB", data)
        specifier = command & _SPECIFIER
        if specifier == UPLOAD:
            return self._upload(command, index, subindex, state, room)
        if specifier == DOWNLOAD:
            return self._download(command, index, subindex, data[4:], state)
        if specifier == UPLOAD_SEGMENT:
            return self._upload_segment(command, room)
        if specifier == DOWNLOAD_SEGMENT:
            return self._download_segment(command, data[1:], state)
        raise SdoAbort(AbortCode.COMMAND)

    def _check_complete(self, command: int) -> bool:
        complete = bool(command & _COMPLETE)
        if complete and not self._complete_access:
            raise SdoAbort(AbortCode.NO_COMPLETE_ACCESS)
        return complete

    def _upload(self, command: int, index: int, subindex: int, state: int, room: int) -> bytes:
        complete = self._check_complete(command)
        read: Reader = self._dictionary.read_complete if complete else self._dictionary.read
        data = read(index, subindex, state)
        mark = UPLOADED | _COMPLETE * complete | _SIZE_GIVEN
        if 0 < len(data) <= 4:
            mark |= _EXPEDITED | (4 - len(data)) << 2
            return struct.pack("<BHB4s", mark, index, subindex, data)
        first = room - _SDO_HEADER
        if len(data) > first:
            self._transfer = _Transfer(index, subindex, bytearray(data[first:]), download=False)
        return struct.pack("<BHBI", mark, index, subindex, len(data)) + data[:first]

    def _upload_segment(self, command: int, room: int) -> bytes:
        transfer = self._running(command, download=False)
        part = bytes(transfer.data[: room - 1])
        del transfer.data[: room - 1]
        mark = UPLOADED_SEGMENT | transfer.toggle
        transfer.toggle ^= _TOGGLE
        if not transfer.data:
            mark |= _LAST
            self._transfer = None
        missing = max(0, _SEGMENT_MIN - len(part))
        return bytes((mark | missing << 1,)) + part + bytes(missing)

    def _download(self, command: int, index: int, subindex: int, data: bytes, state: int) -> bytes:
        complete = self._check_complete(command)
        reply = struct.pack("<BHB4x", DOWNLOADED | _COMPLETE * complete, index, subindex)
        if command & _EXPEDITED:
            size = 4 - (command >> 2 & 0x03) if command & _SIZE_GIVEN else self._size(index, subindex, complete)
            self._write(index, subindex, data[: min(size, 4)], state, complete)
            return reply
        (size,) = struct.unpack_from("<I", data)
        content = data[4 : 4 + size]
        if size > _MAX:
            raise SdoAbort(AbortCode.MEMORY)
        if len(content) == size:
            self._write(index, subindex, content, state, complete)
            return reply
        if not complete:
            self._dictionary.announce(index, subindex, size, state)
        self._transfer = _Transfer(index, subindex, bytearray(content), download=True, complete=complete, size=size)
        return reply

    def _download_segment(self, command: int, data: bytes, state: int) -> bytes:
        transfer = self._running(command, download=True)
        unused = command >> 1 & 0x07 if len(data) == _SEGMENT_MIN else 0
        transfer.data += data[: len(data) - unused]
        if len(transfer.data) > transfer.size:
            raise SdoAbort(AbortCode.LENGTH_HIGH)
        if command & _LAST:
            if len(transfer.data) < transfer.size:
                raise SdoAbort(AbortCode.LENGTH_LOW)
            self._transfer = None
            self._write(transfer.index, transfer.subindex, bytes(transfer.data), state, transfer.complete)
        mark = DOWNLOADED_SEGMENT | transfer.toggle
        transfer.toggle ^= _TOGGLE
        return bytes((mark,)) + bytes(_SEGMENT_MIN)

    def _running(self, command: int, *, download: bool) -> _Transfer:
        transfer = self._transfer
        if transfer is None or transfer.download != download:
            raise SdoAbort(AbortCode.COMMAND)
        if command & _TOGGLE != transfer.toggle:
            raise SdoAbort(AbortCode.TOGGLE)
        return transfer

    def _size(self, index: int, subindex: int, complete: bool) -> int:
        """Return the size of a download that does not state it."""
        return 4 if complete else (self._dictionary.entry(index, subindex).bits + 7) // 8

    def _write(self, index: int, subindex: int, data: bytes, state: int, complete: bool) -> None:
        write: Writer = self._dictionary.write_complete if complete else self._dictionary.write
        write(index, subindex, data, state)


def _header(service: int) -> bytes:
    return struct.pack("<H", service << 12)
