"""Simulated PLCs that answer on loopback, each at an address of its own."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc.server import Server
from tests.lab.ads.configs import plc
from tests.lab.ads.plc_thread import serving

_numbers = itertools.count(1)


def new_address() -> str:
    """Return an address of loopback that no other test uses."""
    number = next(_numbers)
    return f"127.{os.getpid() % 200 + 20}.{number // 200}.{number % 200 + 1}"


@dataclass
class RunningPlc:
    """A PLC in a thread, and its address."""

    address: str
    server: Server

    def do(self, task: Callable[[SimulatedPlc], Any]) -> Any:
        return self.server.do(task)


@contextmanager
def running_plc(**changes: Any) -> Iterator[RunningPlc]:
    address = new_address()
    with serving(plc(**changes), address) as server:
        yield RunningPlc(address, server)


@contextmanager
def plc_process(address: str = "", **changes: Any) -> Iterator[str]:
    """A PLC in a process of its own, killed at the end; yields its address."""
    address = address or new_address()
    command = [sys.executable, "-m", "tests.lab.ads.plc_process", address, json.dumps(changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield address
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shared_plc() -> Iterator[RunningPlc]:
    """One that the tests of a module share, and leave as it is."""
    with running_plc() as running:
        yield running


@pytest.fixture
def own_plc() -> Iterator[RunningPlc]:
    """One for a single test, which may do with it what it likes; patient, for on a busy machine tests stall."""
    with running_plc(heartbeat_ms=1000) as running:
        yield running
