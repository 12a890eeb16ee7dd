"""What tests of a daemon's HTTP share: the daemon, its address, and a client of its control socket."""

from collections.abc import Iterator

import pytest

from service.client import Control
from tests.lab.daemon.shared import Keeper
from tests.lab.web.http_daemon import Running, two_arms


@pytest.fixture
def running(keeper: Keeper) -> Running:
    return keeper.get(two_arms)


@pytest.fixture
def url(running: Running) -> str:
    return running.url


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with running.control() as control:
        yield control
