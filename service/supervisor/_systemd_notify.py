"""What the supervisor tells systemd: that the daemon is ready, how it is, that it is alive (sd_notify(3)).

systemd names a datagram socket in the environment, where nobody else is to find it.  Without one nothing is said.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping


class ServiceManager:
    """The service manager that has started this process, if one has.

    Parameters
    ----------
    environment : MutableMapping
        `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` are taken out of it, so that no other process speaks in this
        one's name.

    Attributes
    ----------
    watchdog_ns : int
        The manager kills a process that is silent for so long; 0: it does not.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_ns = int(period) * 1000 if address and meant and period.isdecimal() else 0
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""
        self._owed: list[str] = []  # what has to be said, whenever the manager takes it
        self._next_ns = 0

    def ready(self) -> None:
        """Say that the start is over."""
        self._owed.append("READY=1")
        self._pay()

    def status(self, text: str) -> None:
        """Say in a line how things are, if it is news."""
        self._pay()
        if text != self._status and self._send(f"STATUS={text}"):
            self._status = text

    def alive(self, now_ns: int) -> None:
        """Say that the loop still turns, three times while the manager waits for it; again if it was not taken."""
        if self.watchdog_ns and now_ns >= self._next_ns and self._send("WATCHDOG=1"):
            self._next_ns = now_ns + self.watchdog_ns // 3

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._owed.append("STOPPING=1")
        self._pay()

    def _pay(self) -> None:
        while self._owed and self._send(self._owed[0]):
            del self._owed[0]

    def _send(self, text: str) -> bool:
        """Tell whether the manager has taken `text`; a queue that is full is no reason to wait."""
        if not self._address:
            return True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.setblocking(False)  # a manager that does not listen must not stop the daemon
            one.sendto(text.encode(), self._address)
            return True
        return False
