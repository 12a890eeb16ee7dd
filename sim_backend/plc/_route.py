"""Routes over UDP, in the wire format of Beckhoff's open ADS library: identity of the controller, adding a route."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sim_backend.plc._codes import Code
from sim_backend.plc._device import SYSTEM_PORT, VERSION

if TYPE_CHECKING:
    from sim_backend.plc._plc import SimulatedPlc

_HEADER, _TAG = struct.Struct("<III6sHI"), struct.Struct("<HH")
_COOKIE = 0x71146603
_INFO, _ADD_ROUTE, _ANSWER = 1, 6, 0x80000000
# Tags.
_STATUS, _PASSWORD, _VERSION, _OS, _NAME, _NET_ID, _USER = 1, 2, 3, 4, 5, 7, 13


class RouteService:
    def __init__(self, plc: SimulatedPlc) -> None:
        self._plc = plc

    def answer(self, data: bytes) -> bytes | None:
        """Return the answer to a datagram; None if it is no request."""
        if len(data) < _HEADER.size:
            return None
        cookie, invoke_id, service, _, _, count = _HEADER.unpack_from(data)
        if cookie != _COOKIE:
            return None
        if service == _INFO:
            version = struct.pack("<BBH", *VERSION)
            tags = [(_NAME, b"SIM-PLC\0"), (_OS, bytes(276)), (_VERSION, version)]
            return self._packet(invoke_id, service, tags)
        if service != _ADD_ROUTE:
            return None
        tags_of = _tags(data[_HEADER.size :], count)
        settings = self._plc.settings
        user, password = _text(tags_of.get(_USER, b"")), _text(tags_of.get(_PASSWORD, b""))
        good = (user, password) == (settings.user, settings.password) and len(tags_of.get(_NET_ID, b"")) == 6
        if good:
            self._plc.add_route(tags_of[_NET_ID])
        code = Code.NONE if good else Code.INVALID_ACCESS
        return self._packet(invoke_id, service, [(_STATUS, struct.pack("<I", code))])

    def _packet(self, invoke_id: int, service: int, tags: list[tuple[int, bytes]]) -> bytes:
        head = _HEADER.pack(_COOKIE, invoke_id, service | _ANSWER, self._plc.net_id, SYSTEM_PORT, len(tags))
        return head + b"".join(_TAG.pack(tag, len(value)) + value for tag, value in tags)


def _tags(data: bytes, count: int) -> dict[int, bytes]:
    """Return the complete values by tag."""
    values, place = {}, 0
    for _ in range(count):
        if len(data) - place < _TAG.size:
            break
        tag, length = _TAG.unpack_from(data, place)
        values[tag] = data[place + _TAG.size : place + _TAG.size + length]
        place += _TAG.size + length
    return values


def _text(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode("cp1252", "replace")
