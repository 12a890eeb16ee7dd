"""Memory that was free is given back to the system: a queue that has filled and emptied is not kept for good."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.worker import worker as process
from service.worker.worker import RELEASE_MEMORY_NS, Worker
from tests.lab.daemon.daemons import config, replayed

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps free memory")
#: Blocks of which every hundredth is kept, so that the heap cannot simply be cut off at its end.
SCRIPT = """
import psutil
from service.worker.resources import release_memory
rss = lambda: psutil.Process().memory_info().rss / 1e6
empty = rss()
blocks = [bytes(2000) for _ in range(40_000)]
kept = blocks[::100]
del blocks
full = rss()
release_memory()
assert full > empty + 60.0, (empty, full)
assert rss() < empty + 15.0, (empty, full, rss())
assert all(block == bytes(2000) for block in kept)
"""


@glibc
def test_free_memory_is_given_back() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("role", "times"), [("recorder", 2), ("gateway", 2), ("acquisition", 0)])
def test_a_process_gives_back_once_a_minute_but_not_the_one_that_must_not_miss_a_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, times: int
) -> None:
    given: list[None] = []
    monkeypatch.setattr(process, "release_memory", lambda: given.append(None))
    arm = replayed(tmp_path / "none.mcap")
    (tmp_path / "config.json").write_text(config(tmp_path, arm).model_dump_json(), encoding="utf-8")
    worker = Worker(role, None if role == "gateway" else "axis", tmp_path)
    worker.socket.linger = 0  # nobody listens
    try:
        began_ns = time.monotonic_ns()
        for second in range(125):
            worker.heartbeat(began_ns + second * 1_000_000_000, {"state": "running"})
    finally:
        worker.close()
    assert RELEASE_MEMORY_NS == 60_000_000_000
    assert len(given) == times
