"""A network name space with veth pairs for the tests of a module, and segments in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import pytest

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus.interface import check_link
from tests.lab.ethercat.namespace import ToldProcess, new_network, wait_until


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
    wait_until(lambda: link(name) == up)


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[str, str]]:
    """Two veth pairs m0-s0 and m1-s1 in a name space of this thread's own; names of the master's ends."""
    with new_network():
        for k in range(2):
            ip("link", "add", f"m{k}", "type", "veth", "peer", "name", f"s{k}")
            for name in (f"m{k}", f"s{k}"):
                ip("link", "set", name, "up")
        for k in range(2):
            await_link(f"m{k}", True)
        yield "m0", "m1"


class SegmentProcess(ToldProcess):
    """Drives at the far end of the veth pair; `tell(name, ...)` calls a method of `segment_process.Process`."""

    def __init__(self, devices: list[str], **options: Any) -> None:
        n = len(devices)
        arguments = {
            "interfaces": ["s0"], "devices": devices, "aliases": [0] * n, "serials": [0] * n, "drifts_ppm": [0.0] * n,
            "mountings": [{}] * n,
        } | options  # fmt: skip
        program = [sys.executable, "-m", "tests.lab.ethercat.driver_segment_process", json.dumps(arguments)]
        # /sys shows the interfaces of the name space in which it was mounted.
        mounted = ["unshare", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh", *program]
        super().__init__(*mounted)


#: Runs drives of the given devices.
Segments: TypeAlias = Callable[..., AbstractContextManager[SegmentProcess]]


@pytest.fixture(scope="module")
def segment(network: tuple[str, str]) -> Segments:
    """Return a context manager that runs drives of the given devices at the far end."""

    def run(*devices: str, **options: Any) -> SegmentProcess:
        return SegmentProcess(list(devices), **options)

    return run
