"""Questions on behalf of who asks by HTTP: how often they are put, and what becomes of those without an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.config.daemon import DaemonConfig
from service.config.load import parse_config
from service.protocol.control import VERBS, ControlError
from service.web import _request_proxy as asking_module
from service.web._request_proxy import FRESH_S, MAX, PER_S, RequestProxy
from tests.lab.asynchronous import asynchronous


def settings(folder: Path, **daemon: Any) -> DaemonConfig:
    arm = {"name": "a", "robot": "emps", "driver": {"kind": "sim"}}
    table: dict[str, Any] = {"daemon": {"state_dir": str(folder), **daemon}, "arm": [arm]}
    return parse_config(table, "test", folder).daemon


class Answering:
    """Stands where the private socket is: keeps questions, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], Any, str]] = []

    def ask(self, verb: str, args: dict[str, Any], then: Any, role: str) -> None:
        self.asked.append((verb, args, then, role))


@asynchronous
async def test_the_same_question_is_put_once_for_all_and_answered_from_memory(tmp_path: Path) -> None:
    now = 100.0
    worker = Answering()
    request_proxy = RequestProxy(worker, settings(tmp_path), lambda: now)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(request_proxy.read("jobs", {"limit": 1}, "read")) for _ in range(20)]
    await asyncio.sleep(0)
    ((verb, _, then, role),) = worker.asked
    assert (verb, role) == ("jobs", "read")
    then({"jobs": []}, None)
    assert [await task for task in tasks] == [{"jobs": []}] * 20
    assert await request_proxy.read("jobs", {"limit": 1}, "read") == {"jobs": []}
    assert len(worker.asked) == 1
    now += 1.1 * FRESH_S
    later = asyncio.ensure_future(request_proxy.read("jobs", {"limit": 1}, "read"))
    await asyncio.sleep(0)
    worker.asked[1][2](None, ControlError("unavailable", "gone"))
    with pytest.raises(ControlError, match="gone"):
        await later


@asynchronous
async def test_many_questions_are_refused_but_a_stop_never(tmp_path: Path) -> None:
    now = 100.0
    worker = Answering()
    request_proxy = RequestProxy(worker, settings(tmp_path, http_role="operate"), lambda: now)  # type: ignore[arg-type]
    tasks = []
    refused = 0
    for k in range(200):
        task = asyncio.ensure_future(request_proxy.ask("cancel", {"id": k}, "operate"))
        await asyncio.sleep(0)
        if task.done():
            assert isinstance(task.exception(), ControlError)
            refused += 1
        else:
            tasks.append(task)
    assert len(tasks) == min(MAX, int(2 * PER_S))
    assert refused == 200 - len(tasks)
    stop = asyncio.ensure_future(request_proxy.ask("abort", {"arm": "a"}, "operate"))
    await asyncio.sleep(0)
    worker.asked[-1][2]({"state": "disarmed"}, None)
    assert await stop == {"state": "disarmed"}
    for task in tasks:
        task.cancel()
    await asyncio.sleep(0)
    for each in worker.asked[:-1]:
        each[2]({}, None)  # nobody waits for it any more
    now += 10.0
    again = asyncio.ensure_future(request_proxy.ask("cancel", {"id": 1}, "operate"))
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


@asynchronous
async def test_questions_answered_at_once_are_limited_by_their_rate(tmp_path: Path) -> None:
    now = 100.0
    worker = Answering()
    request_proxy = RequestProxy(worker, settings(tmp_path, http_role="operate"), lambda: now)  # type: ignore[arg-type]

    async def put(count: int) -> int:
        done = 0
        for k in range(count):
            task = asyncio.ensure_future(request_proxy.ask("cancel", {"id": k}, "operate"))
            await asyncio.sleep(0)
            if not task.done():
                worker.asked[-1][2]({}, None)
                done += 1
            await asyncio.wait({task})
            task.exception()
        return done

    assert await put(100) == 2 * PER_S
    now += 0.5
    assert await put(100) == 0.5 * PER_S


@asynchronous
async def test_a_question_that_is_never_answered_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_module, "GRACE_S", 0.02 - VERBS["jobs"].within_s)
    worker = Answering()
    request_proxy = RequestProxy(worker, settings(tmp_path))  # type: ignore[arg-type]
    for k in range(3):
        with pytest.raises(ControlError, match="jobs: the daemon has not answered"):
            await asyncio.wait_for(request_proxy.read("jobs", {"limit": k}, "read"), 10.0)
    assert request_proxy._waiting == 0
    worker.asked[0][2]({}, None)  # too late
    assert request_proxy._waiting == 0
