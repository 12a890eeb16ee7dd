"""Notifications to systemd (sd_notify(3)): ready, status, watchdog, stopping.

systemd names a datagram socket in the environment, which is removed there. Without one nothing is sent.
"""

import contextlib
import os
import socket
from collections.abc import MutableMapping


class ServiceManager:
    """The service manager that has started this process, if one has.

    It kills a process that is silent for `watchdog_ns`; 0: it does not. `NOTIFY_SOCKET`, `WATCHDOG_USEC` and
    `WATCHDOG_PID` are removed from `environment`, so that no other process uses them.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_ns = int(period) * 1000 if address and meant and period.isdecimal() else 0
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""
        self._owed: list[str] = []  # sent whenever the manager accepts it
        self._next_ns = 0

    def ready(self) -> None:
        """Report that the start is complete."""
        self._owed.append("READY=1")
        self._pay()

    def status(self, text: str) -> None:
        """Report the status in a line, if it has changed."""
        self._pay()
        if text != self._status and self._send(f"STATUS={text}"):
            self._status = text

    def alive(self, now_ns: int) -> None:
        """Report that the loop runs, three times per watchdog period; repeat what was not accepted."""
        if self.watchdog_ns and now_ns >= self._next_ns and self._send("WATCHDOG=1"):
            self._next_ns = now_ns + self.watchdog_ns // 3

    def stopping(self) -> None:
        """Report that the shutdown has begun."""
        self._owed.append("STOPPING=1")
        self._pay()

    def _pay(self) -> None:
        while self._owed and self._send(self._owed[0]):
            del self._owed[0]

    def _send(self, text: str) -> bool:
        """Return whether the manager has accepted `text`; a full queue is not waited for."""
        if not self._address:
            return True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.setblocking(False)  # a manager that does not listen must not stop the daemon
            one.sendto(text.encode(), self._address)
            return True
        return False
