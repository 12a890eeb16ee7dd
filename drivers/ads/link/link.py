"""Connection to one controller; the only module that uses pyads.

Pitfalls of pyads and of the library below it that are handled here:

- One connection serves one thread: a lock is held during each request.
- Methods of a closed `Connection` return None: an error here.
- Closing removes the route of the whole process: one link per Net ID.
- Connecting to an address that does not answer blocks for minutes: it is probed first, with a time-out.
- Arrays become lists, a hundred times slower than structures: all data is structures of bytes.
- Strings are read into 1024 bytes, and written with the length of their characters: they are bytes here.
- `del_device_notification`, and a repeated handle, free a callback while samples may be in flight: callbacks are kept
  until the process ends.
- Closing with an active notification crashes: all are deleted before.
- After a time-out every call fails while `is_open` stays true: the link is `broken` then, and has to be reopened.
"""

import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from queue import Full, Queue
from typing import Any, ClassVar, TypeVar

import pyads
import pyads.pyads_ex

from drivers.ads import _errors
from drivers.ads._errors import AdsConnectionError, AdsError, AdsReplyError, AdsSymbolError
from drivers.ads.config import Target
from drivers.ads.link.port_probe import TCP_PORT, no_answer_text, probe, resolve
from drivers.driver import DriverClosedError
from drivers.timing import now_ns

HANDLE_BY_NAME, VALUE_BY_HANDLE, RELEASE_HANDLE, SYMBOL_VERSION = 0xF003, 0xF005, 0xF006, 0xF008
_SUM_READ, _SUM_WRITE = 0xF080, 0xF081
#: Largest number of requests and bytes of one sum command, within the memory of a router.
_SUM_REQUESTS, _SUM_BYTES = 250, 128 * 1024
_SYSTEM_SERVICE = 10000
STATES = {
    0: "invalid", 1: "idle", 2: "reset", 3: "init", 4: "start", 5: "run", 6: "stop", 7: "save configuration",
    8: "load configuration", 9: "power failure", 10: "power good", 11: "error", 12: "shutdown", 13: "suspend",
    14: "resume", 15: "config", 16: "reconfig",
}  # fmt: skip
RUN, STOP, CONFIG = 5, 6, 15
Raw = Any  # a ctypes structure of bytes; bytes(), memoryview() and np.frombuffer() take it
_T = TypeVar("_T")
_I = TypeVar("_I")


# Otherwise the library also writes its errors to stderr.
with contextlib.suppress(ValueError):
    ctypes.c_size_t.in_dll(pyads.pyads_ex._adsDLL, "_ZN6Logger8logLevelE").value = 9


@cache
def _bytes_type(size: int) -> type[ctypes.Structure]:
    return type(f"Bytes{size}", (ctypes.Structure,), {"_fields_": [("data", ctypes.c_ubyte * size)]})


class Link:
    """One connection.

    `broken`: it has failed; `close` and `open` make a new one.  `sum_commands` is False once the server has refused
    one; requests are single then.  `requests` counts those sent.
    """

    _net_ids: ClassVar[set[str]] = set()
    _callbacks: ClassVar[dict[int, Any]] = {}

    def __init__(self, target: Target) -> None:
        self.target = target
        self.broken = False
        self.sum_commands = True
        self.requests = 0
        self._address = ""  # resolved once: a lookup may block for seconds
        self._connection: Any = None
        self._lock = threading.Lock()
        self._notifications: list[tuple[int, int | None]] = []

    # ------------------------------------------------------------ open and close

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, possibly a broken one."""
        return self._connection is not None

    def open(self) -> tuple[int, int]:
        """Connect, and return the state of the PLC and of the device (`STATES`).

        Raises `AdsConnectionError`: no answer, no route, a wrong Net ID or port; the message has the remedy;
        `AdsError`: it is open already, or this process has another link to the same controller.
        """
        if self._connection is not None:
            raise AdsError(f"ADS {self.target}: already open")
        target = self.target
        if target.net_id in self._net_ids:
            raise AdsError(f"ADS {target}: another connection of this process leads to the same controller")
        address = self._address = self._address or resolve(target)
        probe(target, address)
        self._net_ids.add(target.net_id)
        try:
            self._connect(address, target.port)
            return self.state()
        except AdsError as error:
            self.close()
            if error.code == _errors.PORT_NOT_FOUND:
                raise self._without_port(address, error) from error
            if error.code in _errors.BROKEN:
                raise AdsConnectionError(no_answer_text(target, address), error.code) from error
            raise
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str, port: int) -> None:
        target = self.target
        if target.local_net_id:
            pyads.set_local_address(target.local_net_id)
        connection = pyads.Connection(target.net_id, port, address)
        try:
            connection.open()
        except (pyads.ADSError, RuntimeError) as error:
            code = getattr(error, "err_code", None) or 0
            raise AdsConnectionError(f"ADS {target}: no connection to {address}:{TCP_PORT}: {error}", code) from error
        self._connection = connection
        self.broken, self.sum_commands = False, True
        connection.set_timeout(round(target.timeout_ms))

    def _without_port(self, address: str, error: AdsError) -> AdsConnectionError:
        """Return the error for a PLC port that does not exist, with TwinCAT's state from its system service."""
        state = None
        self._net_ids.add(self.target.net_id)
        with contextlib.suppress(AdsError):
            self._connect(address, _SYSTEM_SERVICE)
            state = self.state()[0]
        self.close()
        if state == CONFIG:
            return AdsConnectionError(
                f"ADS {self.target}: TwinCAT is in config mode, so no PLC runs: activate the configuration and "
                "restart TwinCAT in run mode",
                error.code,
            )
        return AdsConnectionError(str(error), error.code)

    def close(self) -> None:
        """Delete notifications and disconnect; may be called more than once."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                self._net_ids.discard(self.target.net_id)
                return
            try:
                self._delete_notifications(connection)
                with contextlib.suppress(pyads.ADSError):
                    connection.close()
            finally:
                self._net_ids.discard(self.target.net_id)

    def _delete_notifications(self, connection: Any) -> None:
        """Delete all notifications, also those that the server no longer has."""
        notifications, self._notifications = self._notifications, []
        for notification, user in notifications:
            with contextlib.suppress(pyads.ADSError):
                connection.del_device_notification(notification, user)

    # ------------------------------------------------------------ requests

    def state(self) -> tuple[int, int]:
        """Return the states of the PLC and of the device."""
        found: tuple[int, int] = self._call("its state", lambda c: c.read_state())
        return found

    def device_info(self) -> tuple[str, str]:
        """Return name and version of the server."""
        name, version = self._call("its name", lambda c: c.read_device_info())
        return str(name), f"{version.version}.{version.revision}.{version.build}"

    def local_net_id(self) -> str:
        """Return the Net ID of this computer."""
        return str(self._call("the local address", lambda c: c.get_local_address()).netid)

    def read(self, group: int, offset: int, size: int, what: str = "", exact: bool = True) -> Raw:
        """Read `size` bytes; unless `exact`, a shorter answer is filled with zeros."""
        kind = _bytes_type(size)
        return self._call(
            what or f"{group:#x}:{offset:#x}",
            lambda c: c.read(group, offset, kind, return_ctypes=True, check_length=exact),
        )

    def read_write(self, group: int, offset: int, size: int, data: bytes, what: str = "", exact: bool = True) -> Raw:
        """Write `data` and read `size` bytes in one request; `exact` as in `read`."""
        kind, given = _bytes_type(size), _bytes_type(len(data))
        value = given.from_buffer_copy(data)
        return self._call(
            what or f"{group:#x}:{offset:#x}",
            lambda c: c.read_write(group, offset, kind, value, given, return_ctypes=True, check_length=exact),
        )

    def write(self, group: int, offset: int, data: bytes | bytearray, what: str = "") -> None:
        """Write bytes."""
        kind = _bytes_type(len(data))
        value = kind.from_buffer_copy(data)
        self._call(what or f"{group:#x}:{offset:#x}", lambda c: c.write(group, offset, value, kind) or 0)

    def handle(self, name: str) -> int:
        """Return the handle of a symbol; raises `AdsSymbolError` if it does not exist."""
        raw = self.read_write(HANDLE_BY_NAME, 0, 4, encode_name(name), f"symbol {name}")
        return int.from_bytes(bytes(raw), "little")

    def release(self, *handles: int) -> None:
        """Release handles if the connection works; errors are ignored."""
        items = [(RELEASE_HANDLE, 0, handle.to_bytes(4, "little")) for handle in handles]
        for at in range(0, len(items), _SUM_REQUESTS):
            if self.is_open and not self.broken:
                with contextlib.suppress(AdsError):
                    self.sum_write(items[at : at + _SUM_REQUESTS], "handles")

    def sum_read(self, items: Sequence[tuple[int, int, int]], what: str) -> list[Any]:
        """Read several (group, offset, size); raises the first error of any.

        One request if the server has sum commands, otherwise one for each.
        """
        found: list[Any] = []
        for part in _parts(items):
            together = self._summed(self._sum_read, part, what)
            found += together or [self.read(group, offset, size, what) for group, offset, size in part]
        return found

    def _summed(self, request: Callable[[Sequence[_I], str], _T], items: Sequence[_I], what: str) -> _T | None:
        """Return the result of a sum command; None for a single item, or if the server has no sum commands."""
        if not self.sum_commands or len(items) < 2:
            return None
        try:
            return request(items, what)
        except AdsReplyError:
            self.sum_commands = False
        except AdsError as error:
            if error.code not in _errors.NOT_THERE or error.of_item:
                raise
            self.sum_commands = False
        return None

    def _sum_read(self, items: Sequence[tuple[int, int, int]], what: str) -> list[Any]:
        count = len(items)
        request = (pyads.structs.SAdsSumRequest * count)(*items)
        reply = self._call(
            what, lambda c: c.read_write(_SUM_READ, count, None, request, None, return_ctypes=True, check_length=True)
        )
        view = memoryview(reply).cast("B")
        codes = struct.unpack_from(f"<{count}I", view)
        for code in codes:
            if code:
                raise ads_error(code, self.target, what, of_item=True)
        found, at = [], 4 * count
        for _, _, size in items:
            found.append(view[at : at + size])
            at += size
        return found

    def sum_write(self, items: Sequence[tuple[int, int, bytes | bytearray]], what: str) -> None:
        """Write several (group, offset, bytes); raises the first error of any."""
        if not self._summed(self._sum_write, items, what):
            for group, offset, data in items:
                self.write(group, offset, data, what)

    def _sum_write(self, items: Sequence[tuple[int, int, bytes | bytearray]], what: str) -> bool:
        count = len(items)
        request = bytearray()
        for group, offset, data in items:
            request += struct.pack("<3I", group, offset, len(data))
        for _, _, data in items:
            request += data
        reply = self._call(
            what, lambda c: c.read_write(_SUM_WRITE, count, None, request, None, return_ctypes=True, check_length=True)
        )
        for code in struct.unpack(f"<{count}I", memoryview(reply).cast("B")):
            if code:
                raise ads_error(code, self.target, what, of_item=True)
        return True

    def notify(self, group: int, offset: int, size: int, into: Queue[tuple[int, bytes]], cycle_ms: float) -> None:
        """Put `(time of receipt, bytes)` into `into` at each change of a variable; drop it if the queue is full."""

        def received(notification: Any, _: Any) -> None:
            contents = notification.contents
            data = ctypes.addressof(contents) + pyads.structs.SAdsNotificationHeader.data.offset
            with contextlib.suppress(Full):
                into.put_nowait((now_ns(), ctypes.string_at(data, contents.cbSampleSize)))

        attributes = pyads.NotificationAttrib(size, pyads.ADSTRANS_SERVERONCHA, 0.0, cycle_ms)
        handles = self._call(
            "a notification", lambda c: c.add_device_notification((group, offset), attributes, received)
        )
        self._callbacks.update((id(callback), callback) for callback in pyads.pyads_ex.callback_store.values())
        self._notifications.append(handles)

    def end_notifications(self) -> None:
        """Delete all notifications of this link."""
        with self._lock:
            if self._connection is not None:
                self._delete_notifications(self._connection)

    def _call(self, what: str, request: Callable[[Any], _T]) -> _T:
        with self._lock:
            if self._connection is None:
                raise DriverClosedError(f"ADS {self.target}: not open")
            self.requests += 1
            try:
                found = request(self._connection)
            except pyads.ADSError as error:
                code = getattr(error, "err_code", 0)
                self.broken = self.broken or code in _errors.BROKEN or code < 0
                raise ads_error(code, self.target, what) from error
            except RuntimeError as error:  # pyads: "Insufficient data"
                raise AdsReplyError(f"ADS {self.target}: {what}: {error}") from error
            if found is None:
                raise DriverClosedError(f"ADS {self.target}: not open")
            return found


def encode_name(name: str) -> bytes:
    """Encode the name of a symbol as TwinCAT has strings: Windows-1252 with a final zero."""
    try:
        return name.encode("windows-1252") + b"\0"
    except UnicodeEncodeError as error:
        raise AdsSymbolError(f"symbol {name!r}: no name of a PLC variable has such a character") from error


def _parts(items: Sequence[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    parts: list[list[tuple[int, int, int]]] = [[]]
    total = 0
    for item in items:
        if parts[-1] and (total + item[2] > _SUM_BYTES or len(parts[-1]) >= _SUM_REQUESTS):
            parts.append([])
            total = 0
        parts[-1].append(item)
        total += item[2]
    return parts


def ads_error(code: int, target: Target, what: str, of_item: bool = False) -> AdsError:
    """Return the error for an ADS error code; `of_item`: of one part of a sum command."""
    text = _errors.TEXTS.get(code) or pyads.errorcodes.ERROR_CODES.get(code, "the connection has failed")
    message = f"ADS {target}: {what}: {str(text).rstrip('. ')} (ADS error {code})"
    if code == _errors.SYMBOL_NOT_FOUND:
        return AdsSymbolError(message, code, of_item)
    if code in _errors.BROKEN or code < 0 or code in (_errors.PORT_NOT_FOUND, _errors.MACHINE_NOT_FOUND):
        return AdsConnectionError(message, code, of_item)
    return AdsError(message, code, of_item)
