"""Epochs grow whatever becomes of the clock and of the file that remembers the last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.supervisor._boot_counter import BootCounter

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
