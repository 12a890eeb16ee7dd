"""A folder of recordings on a disk that does not answer keeps nobody from stopping an arm."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from service.protocol.control import ControlError
from service.web import _actions as actions
from service.web import _dashboard as dashboard
from service.web._cache import Cache
from service.web._dashboard import api_routes
from service.web._live import Live
from service.web._request_proxy import RequestProxy
from tests.lab.asynchronous import asynchronous
from tests.lab.daemon.daemons import config, make_recording, replayed

LOOK = {"do": "identify", "arm": "axis", "recording": "file:axis-20260101T000000.mcap"}
ABORT = {"do": "abort", "arm": "axis"}
MANY = 40  # more than there are threads for what waits for a disk


class Asked:
    """Takes the place of the way to the supervisor: what would have been asked."""

    def __init__(self) -> None:
        self.verbs: list[str] = []

    async def ask(self, verb: str, args: Mapping[str, Any], role: str) -> dict[str, Any]:
        self.verbs.append(verb)
        return {"path": "/secret/axis.mcap", "directory": "/secret", "recording": True}


def request(action: Mapping[str, Any], role: str, *, complete: bool = True) -> Request:
    headers = [(b"x-thetad", b"1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/do", "headers": headers, "state": {"role": role}}
    parts = [{"type": "http.request", "body": json.dumps(action).encode(), "more_body": False}]
    if not complete:
        parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    return Request(scope, receive)


class Site:
    def __init__(self, path: Path) -> None:
        self.asked = Asked()
        settings = config(path, replayed(make_recording(path / "rec.mcap")), http_role="operate")
        cache = Cache(["axis"], time.monotonic_ns())
        routes = api_routes(settings, cache, Live(cache, 1), cast(RequestProxy, self.asked))
        (self._do,) = (route.endpoint for route in routes if route.path == "/api/do")

    async def do(self, action: Mapping[str, Any], role: str = "operate", *, complete: bool = True) -> Response:
        answer: Response = await self._do(request(action, role, complete=complete))
        return answer


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@asynchronous
async def test_an_abort_waits_for_no_disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    began, released = threading.Event(), threading.Event()

    def find(*_: object) -> Path:
        began.set()
        assert released.wait(60.0)
        return Path("/recordings/found.mcap")

    monkeypatch.setattr(actions, "find_recording", find)
    waiting = [asyncio.create_task(site.do(LOOK)) for _ in range(MANY)]
    await asyncio.to_thread(began.wait, 60.0)  # a thread is to be had at all: only one of them looks
    denied = await site.do(LOOK, "read")
    assert (denied.status_code, "needs the role operate" in bytes(denied.body).decode()) == (403, True)
    assert (await site.do(ABORT, "read")).status_code == 200
    assert site.asked.verbs == ["abort"]
    released.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
    assert site.asked.verbs == ["abort"] + ["submit"] * MANY


@asynchronous
async def test_who_waits_for_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_SLICE_S", 0.01)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(ControlError, match=r"the disk has not answered within 0\.05 s"):
        await dashboard.hold_connection(request({}, "read"), never, 0.05)
    assert not never.cancelled()  # the thread that looks is not to be had twice


def test_who_goes_away_in_the_middle_is_no_fault_of_ours(site: Site) -> None:
    assert asyncio.run(site.do({}, complete=False)).status_code == 400
    assert not site.asked.verbs


def test_where_files_lie_is_not_told(site: Site) -> None:
    answer = asyncio.run(site.do({"do": "record", "arm": "axis", "action": "start"}))
    assert json.loads(bytes(answer.body)) == {"path": "axis.mcap", "recording": True}
