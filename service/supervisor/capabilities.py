"""Capabilities that systemd gives to the daemon, kept for the acquisitions alone.

A unit's `AmbientCapabilities=` would pass to every process that the supervisor starts. The supervisor therefore removes
them from what is inherited before it starts anything, and restores them only while it starts an acquisition, so that
other processes never have them. Without ambient capabilities nothing is done: a program of root, started by hand, gets
all rights again in any case.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: What a bus and its cycle need, with their bits in linux/capability.h.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_NICE": 23}

_VERSION = 0x20080522
_PR_CAP_AMBIENT = 47
_IS_SET, _RAISE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def capability_names(bits: int) -> list[str]:
    """Return the names of the `CAPABILITIES` in a set."""
    return [name for name, bit in CAPABILITIES.items() if bits >> bit & 1]


class Capabilities:
    """Capabilities of this thread that are withheld from the programs it starts, unless they are lent.

    Make it before any other thread: those made later have what this one has. `withheld` is their set; 0: none was
    ambient.
    """

    def __init__(self) -> None:
        self.withheld = sum(1 << bit for bit in CAPABILITIES.values() if _prctl(_IS_SET, bit) == 1)
        if self.withheld:
            self._change(effective=False, inheritable=False)  # without the latter they are not ambient any more

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use them in this thread."""
        with self._granted(effective=True, inheritable=False):
            yield

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Pass them to a program that is started meanwhile."""
        with self._granted(effective=False, inheritable=True):
            for bit in CAPABILITIES.values():
                if self.withheld >> bit & 1 and _prctl(_RAISE, bit) != 0:
                    raise _error()
            yield

    @contextmanager
    def _granted(self, *, effective: bool, inheritable: bool) -> Iterator[None]:
        if not self.withheld:
            yield
            return
        try:
            self._change(effective=effective, inheritable=inheritable)
            yield
        finally:
            self._change(effective=False, inheritable=False)

    def _change(self, *, effective: bool, inheritable: bool) -> None:
        header = _Header(_VERSION, 0)
        sets = (_Set * 2)()
        if _libc.capget(ctypes.byref(header), sets) != 0:
            raise _error()
        first = sets[0]  # all of CAPABILITIES are among the first 32
        first.effective = first.effective | self.withheld if effective else first.effective & ~self.withheld
        first.inheritable = first.inheritable | self.withheld if inheritable else first.inheritable & ~self.withheld
        if _libc.capset(ctypes.byref(header), sets) != 0:
            raise _error()


def _prctl(action: int, bit: int) -> int:
    return int(_libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(action), ctypes.c_ulong(bit), 0, 0))


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"capabilities cannot be changed: {os.strerror(number)}")
