"""Simulated PLCs that answer on loopback, each at an address of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc.build import build_plc
from sim_backend.plc.server import Server
from tests.lab.ads.configs import plc

_numbers = itertools.count(1)


def new_address() -> str:
    """Return an address of loopback that no other test uses."""
    number = next(_numbers)
    return f"127.{os.getpid() % 200 + 20}.{number // 200}.{number % 200 + 1}"


class RunningPlc:
    """A PLC in a thread, and its address."""

    def __init__(self, **changes: Any) -> None:
        self.address = new_address()
        self.server = Server(build_plc(plc(**changes), time.monotonic_ns()), self.address)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.server.run, args=(self._ready.set,), name="plc")

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60.0)

    def stop(self) -> None:
        self.server.stop()
        self._thread.join()
        self.server.close()

    def do(self, task: Callable[[SimulatedPlc], Any]) -> Any:
        return self.server.do(task)


Plcs = Callable[..., AbstractContextManager[RunningPlc]]


@contextmanager
def running_plc(**changes: Any) -> Iterator[RunningPlc]:
    running = RunningPlc(**changes)
    running.start()
    try:
        yield running
    finally:
        running.stop()


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
