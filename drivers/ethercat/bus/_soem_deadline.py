"""Deadline for SOEM's long calls, such as a scan, which continue after the cable was unplugged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pysoem

from drivers.ethercat.bus._sockets import FrameSockets

_TIMEOUTS = ("ret", "safe", "eeprom", "tx_mailbox", "rx_mailbox", "state")
_NEXT_TO_NOTHING_US = 1


@contextmanager
def soem_deadline(sockets: FrameSockets, after_s: float) -> Iterator[threading.Event]:
    """Set every time-out inside SOEM to almost zero when the block takes longer than `after_s`.

    Otherwise a scan of drives that went away takes minutes and cannot be interrupted.  Yields an event, set once the
    time is over: the result of SOEM is then invalid, and `sockets` are non-blocking.
    """
    timeouts = pysoem.settings.timeouts
    before = {name: getattr(timeouts, name) for name in _TIMEOUTS}
    over = threading.Event()
    done = threading.Event()

    def watch() -> None:
        if done.wait(after_s):
            return
        over.set()
        for name in _TIMEOUTS:
            setattr(timeouts, name, _NEXT_TO_NOTHING_US)
        sockets.set_blocking(False)

    watcher = threading.Thread(target=watch, name="soem-deadline", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        done.set()
        watcher.join()
        for name, value in before.items():
            setattr(timeouts, name, value)
