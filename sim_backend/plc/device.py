"""ADS devices behind the ports of the PLC: the runtime, and TwinCAT's system service.

Data of a request in, data of the answer out.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from sim_backend.plc.codes import AdsError, Code, Command
from sim_backend.plc.services import Services
from sim_backend.plc.sums import NOTIFICATION, Client

SYSTEM_PORT = 10_000
VERSION = (3, 1, 4026)
_RESULT, _LENGTH = struct.Struct("<I"), struct.Struct("<II")
_READ, _READ_WRITE, _CONTROL = struct.Struct("<III"), struct.Struct("<IIII"), struct.Struct("<HHI")
_INFO = struct.Struct("<IBBH16s")


class Device(Protocol):
    """What answers behind a port."""

    def answer(self, command: int, data: bytes, client: Client) -> bytes:
        """Return the data of the answer to a request."""
        ...


class _Device(ABC):
    """What all devices answer alike.

    Parameters
    ----------
    name : str
    state : callable
        Returns ADS state and device state.
    control : callable
        Takes the ADS state that a client asks for; raises `AdsError`.
    """

    def __init__(self, name: str, state: Callable[[], tuple[int, int]], control: Callable[[int], None]) -> None:
        self._info = _INFO.pack(0, *VERSION, name.encode())
        self._state, self._control = state, control

    def answer(self, command: int, data: bytes, client: Client) -> bytes:
        """Return the data of the answer; an error is part of it."""
        try:
            return self._answer(command, data, client)
        except AdsError as error:
            code = _RESULT.pack(error.code)
        except struct.error:
            code = _RESULT.pack(Code.INVALID_SIZE)
        if command in (Command.READ, Command.READ_WRITE, Command.STATE, Command.ADD_NOTIFICATION):
            return code + bytes(4)
        return code if command != Command.DEVICE_INFO else code + bytes(_INFO.size - 4)

    def _answer(self, command: int, data: bytes, client: Client) -> bytes:
        if command == Command.DEVICE_INFO:
            return self._info
        if command == Command.STATE:
            return struct.pack("<IHH", 0, *self._state())
        if command == Command.WRITE_CONTROL:
            self._control(_CONTROL.unpack_from(data)[0])
            return _RESULT.pack(0)
        return self._values(command, data, client)

    @abstractmethod
    def _values(self, command: int, data: bytes, client: Client) -> bytes:
        """Answer a request about values."""


class SystemService(_Device):
    """TwinCAT's system service: its state, and the way to config mode and back."""

    def _values(self, command: int, data: bytes, client: Client) -> bytes:  # noqa: ARG002
        raise AdsError(Code.SERVICE_NOT_SUPPORTED)

    def __init__(self, state: Callable[[], tuple[int, int]], control: Callable[[int], None]) -> None:
        super().__init__("TwinCAT System", state, control)


class Runtime(_Device):
    """The PLC runtime.

    Parameters
    ----------
    services : Services
    """

    def __init__(
        self, services: Services, state: Callable[[], tuple[int, int]], control: Callable[[int], None]
    ) -> None:
        super().__init__("Plc30 App", state, control)
        self._services = services

    def _values(self, command: int, data: bytes, client: Client) -> bytes:
        services = self._services
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
