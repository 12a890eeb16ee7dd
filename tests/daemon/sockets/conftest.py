"""What tests of a daemon's sockets share: the daemon, and what must hold after an attack on it."""

from collections.abc import Iterator

import psutil
import pytest

from service.client import Control, Subscriber
from tests.lab.daemon.daemons import await_message, processes
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import plain

MAX_GROWTH = 60_000_000


@pytest.fixture
def running(keeper: Keeper) -> Site:
    return keeper.get(plain)


@pytest.fixture
def control(running: Site) -> Iterator[Control]:
    with running.control() as control:
        yield control


@pytest.fixture
def attacked(running: Site) -> Site:
    """The daemon without keys; a module may attack another one."""
    return running


@pytest.fixture
def unharmed(attacked: Site) -> Iterator[None]:
    """Check that everything works after an attack, nothing was restarted, and no process has grown."""
    with attacked.control() as control:
        pids = {name: process["pid"] for name, process in processes(control).items()} | {"self": attacked.daemon.pid}
        before = {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        yield
        for port, kind in (("estimates", "estimate"), ("frames", "frame")):
            with Subscriber(attacked.endpoints[port], [f"axis/{kind}"], key=attacked.admin) as stream:
                await_message(stream)
        after = processes(control)
    assert {name: process["pid"] for name, process in after.items()} | {"self": attacked.daemon.pid} == pids
    assert all(process["state"] == "ready" for process in after.values())
    for name, pid in pids.items():
        assert psutil.Process(pid).memory_info().rss < before[name] + MAX_GROWTH, name
