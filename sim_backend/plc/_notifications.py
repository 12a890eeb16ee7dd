"""Device notifications: values that the PLC sends cyclically or on change.

Values are sampled between two cycles of the task.  Samples wait until the delay of one of them is over; then all of a
client's samples are sent in one packet, in the order of their time stamps.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from sim_backend.plc._codes import AdsError, Code, Mode

#: Index group, index offset, length, mode, longest delay and cycle [100 ns].
NOTIFICATION = struct.Struct("<IIIIII16x")
_STAMP, _SAMPLE = struct.Struct("<QI"), struct.Struct("<II")
_HEAD = struct.Struct("<II")
_CYCLIC = (Mode.CYCLIC, Mode.CYCLIC_IN_CONTEXT)
_MAX = 550  # notifications of a client


@dataclass(slots=True)
class Notification:
    """Notification of `value`, every so many cycles from `first_cycle` on; samples wait for `delay_100ns` at most."""

    value: Callable[[], bytes]
    cyclic: bool
    every: int
    delay_100ns: int
    first_cycle: int
    last: bytes | None = None


class Notifications:
    """Notifications of one client.

    `watched` returns the reader of a value at index group, offset and length, or raises `AdsError`; `next_cycle`
    returns the number of the task's next cycle, the first one of a new notification.  The next `lose` samples are lost.
    """

    def __init__(
        self, watched: Callable[[int, int, int], Callable[[], bytes]], cycle_ns: int, next_cycle: Callable[[], int]
    ) -> None:
        self._watched, self._next_cycle = watched, next_cycle
        self._cycle_100ns = cycle_ns // 100
        self._all: dict[int, Notification] = {}
        self._next = 1
        self._pending: list[tuple[int, list[tuple[int, bytes]]]] = []
        self._due_100ns: int | None = None
        self.lose = 0

    def __len__(self) -> int:
        return len(self._all)

    def add_notification(self, request: bytes) -> int:
        """Return the handle of a new notification; raises `AdsError`."""
        if len(request) != NOTIFICATION.size:
            raise AdsError(Code.INVALID_SIZE)
        group, offset, length, mode, delay, every = NOTIFICATION.unpack(request)
        if mode not in tuple(Mode):
            raise AdsError(Code.TRANSMISSION_MODE)
        if len(self._all) >= _MAX:
            raise AdsError(Code.NO_MORE_HANDLES)
        value = self._watched(group, offset, length)
        handle, self._next = self._next, self._next + 1
        cycles = max(1, -(-every // self._cycle_100ns))
        self._all[handle] = Notification(value, mode in _CYCLIC, cycles, delay, self._next_cycle())
        return handle

    def delete_notification(self, handle: int) -> None:
        """End a notification and drop its samples; raises `AdsError`."""
        if self._all.pop(handle, None) is None:
            raise AdsError(Code.NOTIFICATION_HANDLE)
        self._pending = [
            (stamp, left) for stamp, samples in self._pending if (left := [s for s in samples if s[0] != handle])
        ]

    def clear(self) -> None:
        self._all.clear()
        self._pending.clear()
        self._due_100ns = None

    def look(self, cycle: int, time_100ns: int) -> bytes | None:
        """Sample the values after a cycle; return the data of a notification packet when one is due."""
        samples = []
        for handle, each in self._all.items():
            if (cycle - each.first_cycle) % each.every:
                continue
            try:
                value = each.value()
            except AdsError:
                continue  # the value no longer exists
            if each.cyclic or value != each.last:
                each.last = value
                if self.lose:
                    self.lose -= 1
                    continue
                samples.append((handle, value))
                due = time_100ns + each.delay_100ns
                if self._due_100ns is None or due < self._due_100ns:
                    self._due_100ns = due
        if samples:
            self._pending.append((time_100ns, samples))
        if self._due_100ns is None or time_100ns < self._due_100ns:
            return None
        self._due_100ns = None
        pending, self._pending = self._pending, []
        return _packet(pending) if pending else None


def _packet(stamps: list[tuple[int, list[tuple[int, bytes]]]]) -> bytes:
    parts = []
    for stamp, samples in stamps:
        parts.append(_STAMP.pack(stamp, len(samples)))
        for handle, value in samples:
            parts += (_SAMPLE.pack(handle, len(value)), value)
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 4, len(stamps)) + body
