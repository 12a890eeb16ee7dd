"""ADS devices behind the ports of the PLC: the runtime, and TwinCAT's system service."""

import struct
from collections.abc import Callable

from sim_backend.plc._codes import AdsError, Code, Command
from sim_backend.plc._notifications import NOTIFICATION, Notifications
from sim_backend.plc._services import Services

SYSTEM_PORT = 10_000
VERSION = (3, 1, 4026)
_RESULT, _LENGTH = struct.Struct("<I"), struct.Struct("<II")
_READ, _READ_WRITE, _CONTROL = struct.Struct("<III"), struct.Struct("<IIII"), struct.Struct("<HHI")
_INFO = struct.Struct("<IBBH16s")


class Device:
    """Device behind a port; `control` sets an ADS state or raises `AdsError`; without `services` it has states only."""

    def __init__(
        self, name: str, state: Callable[[], tuple[int, int]], control: Callable[[int], None],
        services: Services | None = None,
    ) -> None:  # fmt: skip
        self._info = _INFO.pack(0, *VERSION, name.encode())
        self._state, self._control, self._services = state, control, services

    def answer(self, command: int, data: bytes, client: Notifications) -> bytes:
        """Return the data of the answer to a request, error codes included."""
        try:
            return self._answer(command, data, client)
        except AdsError as error:
            code = _RESULT.pack(error.code)
        except struct.error:
            code = _RESULT.pack(Code.INVALID_SIZE)
        if command in (Command.READ, Command.READ_WRITE, Command.STATE, Command.ADD_NOTIFICATION):
            return code + bytes(4)
        return code if command != Command.DEVICE_INFO else code + bytes(_INFO.size - 4)

    def _answer(self, command: int, data: bytes, client: Notifications) -> bytes:
        if command == Command.DEVICE_INFO:
            return self._info
        if command == Command.STATE:
            return struct.pack("<IHH", 0, *self._state())
        if command == Command.WRITE_CONTROL:
            self._control(_CONTROL.unpack_from(data)[0])
            return _RESULT.pack(0)
        if self._services is None:
            raise AdsError(Code.SERVICE_NOT_SUPPORTED)
        return _values(command, data, self._services, client)


def _values(command: int, data: bytes, services: Services, client: Notifications) -> bytes:
    """Answer a request about values."""
    if command == Command.READ:
        value = services.read(*_READ.unpack(data))
        return _LENGTH.pack(0, len(value)) + value
    if command == Command.WRITE:
        group, offset, length = _READ.unpack_from(data)
        services.write(group, offset, _rest(data, _READ.size, length))
        return _RESULT.pack(0)
    if command == Command.READ_WRITE:
        group, offset, length, written = _READ_WRITE.unpack_from(data)
        value = services.read_write(group, offset, length, _rest(data, _READ_WRITE.size, written), client)
        return _LENGTH.pack(0, len(value)) + value
    if command == Command.ADD_NOTIFICATION:
        return _LENGTH.pack(0, client.add_notification(data[: NOTIFICATION.size]))
    if command == Command.DELETE_NOTIFICATION:
        client.delete_notification(_RESULT.unpack(data)[0])
        return _RESULT.pack(0)
    raise AdsError(Code.SERVICE_NOT_SUPPORTED)


def _rest(data: bytes, place: int, length: int) -> bytes:
    if len(data) - place != length:
        raise AdsError(Code.INVALID_SIZE)
    return data[place:]
