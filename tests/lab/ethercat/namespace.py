"""Programs in a network namespace of their own, and processes that are told what to do."""

import ctypes
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.closing import Closing

ROOT = Path(__file__).resolve().parents[3]
_CLONE_NEWNET = 0x40000000


@contextmanager
def new_network() -> Iterator[None]:
    """Enter a new network namespace; processes started meanwhile are in it, too."""
    if os.geteuid() != 0:
        pytest.skip("network name spaces and raw sockets need root")
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            pytest.skip(f"no network name space: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        libc.setns(home, _CLONE_NEWNET)
        os.close(home)


def wait_until(done: Callable[[], Any], within_s: float = 30.0) -> None:
    """Wait until `done` returns something true."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class ToldProcess(Closing):
    """A process that is "ready"; `tell(name, ...)` has it call a method and print the result."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._line(120.0) == b"ready\n"  # the first start compiles

    def _line(self, timeout_s: float = 20.0) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(timeout_s), "the drives do not answer"
        return self._process.stdout.readline()

    def tell(self, name: str, *arguments: Any) -> Any:
        """Call a method and return its result."""
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        return json.loads(self._line())

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(10.0)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


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
