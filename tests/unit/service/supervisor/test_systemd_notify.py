"""What the supervisor says to systemd and when, and epochs that grow whatever becomes of clock and file."""

import os
import socket
from pathlib import Path

import pytest

from service.supervisor._systemd_notify import ServiceManager
from service.supervisor._worker_pool import BootCounter

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


NOON_NS = 1_790_000_000 * 10**9
HOUR_NS = 3600 * 10**9


def test_they_are_microseconds_since_1970_and_no_two_are_equal(tmp_path: Path) -> None:
    epochs = BootCounter(tmp_path / "epoch", lambda: NOON_NS)
    assert [epochs.next() for _ in range(3)] == [NOON_NS // 1000 + k for k in range(3)]


@pytest.mark.parametrize("step_ns", [-HOUR_NS, HOUR_NS, -NOON_NS])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_they_grow_over_a_step_of_the_clock(tmp_path: Path, step_ns: int, restarted: bool) -> None:
    now_ns = NOON_NS
    epochs = BootCounter(tmp_path / "epoch", lambda: now_ns)
    before = epochs.next()
    now_ns += step_ns
    if restarted:
        epochs = BootCounter(tmp_path / "epoch", lambda: now_ns)
    after = [epochs.next(), epochs.next()]
    assert before < after[0] < after[1]


@pytest.mark.parametrize("content", [b"", b"-5", b"9" * 30, b"\xff\x00"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "epoch").write_bytes(content)
    assert BootCounter(tmp_path / "epoch", lambda: NOON_NS).next() == NOON_NS // 1000


def test_without_a_file_they_grow_as_long_as_the_daemon_runs(tmp_path: Path) -> None:
    epochs = BootCounter(tmp_path / "absent" / "epoch", lambda: NOON_NS)
    assert epochs.next() < epochs.next()
