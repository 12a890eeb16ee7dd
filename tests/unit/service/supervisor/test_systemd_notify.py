"""What the supervisor says to the socket that systemd names, and when."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from service.supervisor._systemd_notify import ServiceManager

PERIOD_US = 3_000_000
SECOND = 1_000_000_000


def heard(listener: socket.socket) -> list[str]:
    """All messages that have arrived."""
    found: list[str] = []
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


def test_a_sign_of_life_that_was_not_taken_is_given_again(tmp_path: Path) -> None:
    """Three times in the period; and one that is lost does not cost the third of a period in which it was due."""
    address = tmp_path / "notify"
    environment = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": str(PERIOD_US), "WATCHDOG_PID": str(os.getpid())}
    manager = ServiceManager(environment)
    assert environment == {}
    manager.alive(0)  # nobody listens yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        listener.bind(str(address))
        manager.alive(SECOND // 10)
        assert heard(listener) == ["WATCHDOG=1"]
        manager.alive(SECOND)
        assert heard(listener) == []
        manager.alive(SECOND // 10 + SECOND)
        assert heard(listener) == ["WATCHDOG=1"]
