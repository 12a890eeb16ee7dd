"""What tests of moved arms share: a daemon with commanded arms."""

from collections.abc import Iterator

import pytest

from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.runs import Client, commanded
from tests.lab.daemon.shared import Keeper


@pytest.fixture
def daemon(keeper: Keeper) -> DaemonProcess:
    return keeper.get(commanded).daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.endpoints, "good") as one:
        yield one
        one.ask("disarm")
        one.until("disarmed")
