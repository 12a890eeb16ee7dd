"""Daemons that the tests of several modules share: one of a configuration, one at a time.

Tests leave a shared daemon at work; counts such as restarts and events go on over all of them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from service.client import ClientKey, Control
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import config, start
from tests.lab.kept import KEPT

GRACE_S = 10.0


@dataclass
class Site:
    """A running daemon, its folder, and a key of an administrator if it requires keys."""

    daemon: DaemonProcess
    path: Path
    admin: ClientKey | None = None

    @property
    def endpoints(self) -> Mapping[str, str]:
        return self.daemon.endpoints

    @property
    def url(self) -> str:
        return self.daemon.endpoints["http"]

    def control(self) -> Control:
        return Control(self.daemon.endpoints["control"], self.admin)

    def alive(self) -> bool:
        try:
            self.daemon.wait(0.0)
        except TimeoutError:
            return True
        return False


AnySite = TypeVar("AnySite", bound=Site)


@contextlib.contextmanager
def site(path: Path, *arms: dict[str, Any], **daemon: Any) -> Iterator[Site]:
    """A daemon with these arms."""
    running = start(config(path, *arms, **daemon), path)
    try:
        yield Site(running, path)
    finally:
        running.stop()


class Keeper:
    """Keeps the daemon that was last asked for, and ends it when another one is."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._checkpoints: tuple[Callable[[Path], Any], Any] | None = None
        self._stack = contextlib.ExitStack()

    def get(self, make: Callable[[Path], AbstractContextManager[AnySite]]) -> AnySite:
        """Return what `make` makes in a new folder, the same as long as its daemon runs and no other was asked for."""
        if self._checkpoints is None or self._checkpoints[0] is not make or not self._checkpoints[1].alive():
            self.end()
            found = self._stack.enter_context(make(self._folders.mktemp(make.__name__)))
            self._checkpoints = make, found
            KEPT.add(found.daemon.pid)
        kept: AnySite = self._checkpoints[1]
        return kept

    def end(self) -> None:
        """End the daemon; fails if one of its processes is left."""
        if self._checkpoints is None:
            return
        pid = self._checkpoints[1].daemon.pid
        children = psutil.Process(pid).children(recursive=True) if psutil.pid_exists(pid) else []
        self._checkpoints = None
        self._stack.close()
        KEPT.discard(pid)
        left = psutil.wait_procs(children, timeout=GRACE_S)[1]
        assert not left, f"left behind by a shared daemon: {left}"


_KEEPER = pytest.StashKey[Keeper]()


@pytest.fixture(scope="session")
def keeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    found = request.config.stash[_KEEPER] = Keeper(tmp_path_factory)
    yield found
    found.end()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a shared daemon where the next module uses none: it would take processor time."""
    kept = item.config.stash.get(_KEEPER, None)
    if kept is None or nextitem is None or nextitem.path == item.path:
        return
    following = (each for each in item.session.items if each.path == nextitem.path)
    if not any("keeper" in getattr(each, "fixturenames", ()) for each in following):
        kept.end()
