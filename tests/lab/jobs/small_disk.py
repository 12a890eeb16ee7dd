"""A file system of a few megabytes, mounted for a test; needs root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of that size at `path`, which is made; skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount(path: Path, how: str) -> None:
    """Make it read-only ("ro") or writable ("rw")."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True)


def fill(path: Path, leave: int = 0) -> Path:
    """Write a file that takes all room but `leave` bytes; returns it."""
    filler = path / "filler"
    block = b"\0" * 4096
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            found = os.statvfs(path)
            if found.f_bavail * found.f_frsize <= leave:
                break
            stream.write(block)
    return filler
