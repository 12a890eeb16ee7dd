"""A network name space with veth pairs for the tests of a module, and segments in processes of their own."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus.interface import check_link

ROOT = Path(__file__).resolve().parents[3]
_CLONE_NEWNET = 0x40000000


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def link(name: str) -> bool:
    """Whether an interface has a link."""
    try:
        check_link(name)
    except DriverConnectionError:
        return False
    return True


def await_link(name: str, up: bool) -> None:
    """Wait until an interface has a link, or none: the kernel takes a moment."""
    deadline = time.monotonic() + 10.0
    while link(name) != up:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[str, str]]:
    """Two veth pairs m0-s0 and m1-s1 in a name space of this thread's own; names of the master's ends."""
    if os.geteuid() != 0:
        pytest.skip("network name spaces need root")
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            pytest.skip(f"no network name space: {os.strerror(ctypes.get_errno())}")
        for k in range(2):
            ip("link", "add", f"m{k}", "type", "veth", "peer", "name", f"s{k}")
            for name in (f"m{k}", f"s{k}"):
                ip("link", "set", name, "up")
        for k in range(2):
            await_link(f"m{k}", True)
        yield "m0", "m1"
    finally:
        libc.setns(home, _CLONE_NEWNET)
        os.close(home)


class SegmentProcess:
    """Drives at the far end of the veth pair; `tell(name, ...)` calls a method of `segment_process.Process`."""

    def __init__(self, devices: list[str], **options: Any) -> None:
        n = len(devices)
        arguments = {
            "interfaces": ["s0"],
            "devices": devices,
            "aliases": [0] * n,
            "serials": [0] * n,
            "drifts_ppm": [0.0] * n,
            "mountings": [{}] * n,
        } | options
        program = [sys.executable, "-m", "tests.lab.ethercat.driver_segment_process", json.dumps(arguments)]
        # /sys shows the interfaces of the name space in which it was mounted.
        mounted = ["unshare", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh", *program]
        self._process = subprocess.Popen(
            mounted, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the segment's process ended with {self._process.wait(10)}")
        return line.strip()

    def tell(self, name: str, *arguments: Any) -> Any:
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()


#: Runs drives of the given devices.
Segments: TypeAlias = Callable[..., AbstractContextManager[SegmentProcess]]


@pytest.fixture(scope="module")
def segment(network: tuple[str, str]) -> Segments:
    """Return a context manager that runs drives of the given devices at the far end."""

    @contextmanager
    def run(*devices: str, **options: Any) -> Iterator[SegmentProcess]:
        process = SegmentProcess(list(devices), **options)
        try:
            yield process
        finally:
            process.close()

    return run
