"""Programs in a network namespace of their own, which ends with their processes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def in_namespace(*arguments: str, timeout_s: float = 280.0, tries: int = 1) -> str:
    """Run Python in a new network namespace and return what it prints; skips where that is not permitted.

    One that fails is run again, `tries` times at most: a master that waits 2 ms for a reply does not wait for a
    machine that is elsewhere for longer.
    """
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("virtual interfaces need root and network namespaces")
    for _ in range(tries):
        done = subprocess.run(
            ["unshare", "--net", sys.executable, *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s,
        )  # fmt: skip
        if not done.returncode:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def die_with_parent() -> None:
    """End this process when the test that started it ends."""
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
