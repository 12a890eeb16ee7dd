"""An end to SOEM's patience: its calls that ask slaves many things in a row go on asking after the cable was pulled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pysoem

from drivers.ethercat.bus._sockets import FrameSockets

_TIMEOUTS = ("ret", "safe", "eeprom", "tx_mailbox", "rx_mailbox", "state")
_NEXT_TO_NOTHING_US = 1


@contextmanager
def hurried(sockets: FrameSockets, after_s: float) -> Iterator[threading.Event]:
    """Let every time-out inside SOEM be over at once when the block takes longer than `after_s`.

    Each unanswered frame costs 2 ms there, and each byte of an EEPROM up to 60 ms, so that a scan of drives which went
    away takes minutes and cannot be interrupted.  Its time-outs can be changed while it runs without the interpreter's
    lock (`release_gil=True`).

    Parameters
    ----------
    sockets : FrameSockets
        Of the master; they no longer block afterwards if the event is set.
    after_s : float

    Yields
    ------
    threading.Event
        Set once the time is over: then what SOEM says is worth nothing.
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

    watcher = threading.Thread(target=watch, name="hurry", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        done.set()
        watcher.join()
        for name, value in before.items():
            setattr(timeouts, name, value)
