"""Questions on behalf of who asks by HTTP: how often they are put, what becomes of those without an answer."""

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

from service.config.load import parse_config
from service.protocol.control import VERBS, ControlError
from service.web import _actions as actions
from service.web import _request_proxy as asking_module
from service.web._cache import Cache
from service.web._dashboard import api_routes
from service.web._live import Live
from service.web._request_proxy import FRESH_S, MAX, PER_S, RequestProxy
from tests.lab.asynchronous import asynchronous
from tests.lab.daemon.daemons import config, make_recording, replayed


class Answering:
    """Stands where the private socket is: keeps questions, and answers when it is told to."""

    def __init__(self, folder: Path, **daemon: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any], Any, str]] = []
        self.now = 100.0
        arm = {"name": "a", "robot": "emps", "driver": {"kind": "sim"}}
        found = parse_config({"daemon": {"state_dir": str(folder), **daemon}, "arm": [arm]}, "test", folder)
        self.proxy = RequestProxy(self, found.daemon, lambda: self.now)  # type: ignore[arg-type]

    def ask(self, verb: str, args: dict[str, Any], then: Any, role: str) -> None:
        self.asked.append((verb, args, then, role))

    async def put(self, verb: str, **args: Any) -> asyncio.Task[dict[str, Any]]:
        """Ask for something, as far as the private socket."""
        task = asyncio.ensure_future(self.proxy.ask(verb, args, "operate"))
        await asyncio.sleep(0)
        return task


@asynchronous
async def test_the_same_question_is_put_once_for_all_and_answered_from_memory(tmp_path: Path) -> None:
    worker = Answering(tmp_path)
    tasks = [asyncio.ensure_future(worker.proxy.read("jobs", {"limit": 1}, "read")) for _ in range(20)]
    await asyncio.sleep(0)
    ((verb, _, then, role),) = worker.asked
    assert (verb, role) == ("jobs", "read")
    then({"jobs": []}, None)
    assert [await task for task in tasks] == [{"jobs": []}] * 20
    assert await worker.proxy.read("jobs", {"limit": 1}, "read") == {"jobs": []}
    assert len(worker.asked) == 1
    worker.now += 1.1 * FRESH_S
    later = asyncio.ensure_future(worker.proxy.read("jobs", {"limit": 1}, "read"))
    await asyncio.sleep(0)
    worker.asked[1][2](None, ControlError("unavailable", "gone"))
    with pytest.raises(ControlError, match="gone"):
        await later


@asynchronous
async def test_many_questions_are_refused_but_a_stop_never(tmp_path: Path) -> None:
    worker = Answering(tmp_path, http_role="operate")
    tasks = [await worker.put("cancel", id=k) for k in range(200)]
    waiting = [task for task in tasks if not task.done()]
    assert len(waiting) == min(MAX, int(2 * PER_S))
    assert all(isinstance(task.exception(), ControlError) for task in tasks if task.done())
    stop = await worker.put("abort", arm="a")
    worker.asked[-1][2]({"state": "disarmed"}, None)
    assert await stop == {"state": "disarmed"}
    for task in waiting:
        task.cancel()
    await asyncio.sleep(0)
    for each in worker.asked[:-1]:
        each[2]({}, None)  # nobody waits for it any more
    worker.now += 10.0
    again = await worker.put("cancel", id=1)
    assert not again.done()
    again.cancel()


@asynchronous
async def test_questions_answered_at_once_are_limited_by_their_rate(tmp_path: Path) -> None:
    worker = Answering(tmp_path, http_role="operate")

    async def answered() -> int:
        """How many of a hundred are."""
        done = 0
        for k in range(100):
            task = await worker.put("cancel", id=k)
            if not task.done():
                worker.asked[-1][2]({}, None)
                done += 1
            await asyncio.wait({task})
            task.exception()
        return done

    assert await answered() == 2 * PER_S
    worker.now += 0.5
    assert await answered() == 0.5 * PER_S


@asynchronous
async def test_a_question_that_is_never_answered_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_module, "GRACE_S", 0.02 - VERBS["jobs"].within_s)
    worker = Answering(tmp_path)
    for k in range(3):
        with pytest.raises(ControlError, match="jobs: the daemon has not answered"):
            await asyncio.wait_for(worker.proxy.read("jobs", {"limit": k}, "read"), 10.0)
    assert worker.proxy._waiting == 0
    worker.asked[0][2]({}, None)  # too late
    assert worker.proxy._waiting == 0


# ---------------------------------------------------------------- a folder on a disk that does not answer

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


def request(action: Mapping[str, Any], role: str) -> Request:
    headers = [(b"x-thetad", b"1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/do", "headers": headers, "state": {"role": role}}
    parts = [{"type": "http.request", "body": json.dumps(action).encode(), "more_body": False}]

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

    async def do(self, action: Mapping[str, Any], role: str = "operate") -> Response:
        answer: Response = await self._do(request(action, role))
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


def test_where_files_lie_is_not_told(site: Site) -> None:
    answer = asyncio.run(site.do({"do": "record", "arm": "axis", "action": "start"}))
    assert json.loads(bytes(answer.body)) == {"path": "axis.mcap", "recording": True}
