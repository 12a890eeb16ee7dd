"""Requests to other processes on behalf of HTTP clients.

They go over the private socket to the supervisor, which checks them again (`service.security.http_policy`). However
many browsers watch, equal requests are sent at most twice a second, and the number of pending requests is limited, so
that HTTP cannot slow down other clients.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from service.config.daemon import DaemonConfig
from service.protocol.control import STOPPING, VERBS, ControlError
from service.security.http_policy import check_http
from service.worker.worker import Worker

FRESH_S = 0.5  # greatest age of a reply that is reused
PER_S = 20.0  # requests a second of all browsers together; bursts of twice as many
MAX = 32  # pending requests
GRACE_S = 5.0  # in addition to the supervisor's own limit
_KEPT = 256  # replies


class RequestProxy:
    """Requests with a cache of the latest replies; `clock` is monotonic time [s]."""

    def __init__(self, worker: Worker, daemon: DaemonConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker, self._daemon, self._clock = worker, daemon, clock
        self._left, self._since = 2.0 * PER_S, clock()
        self._waiting = 0
        self._answers: dict[str, tuple[float, dict[str, Any]]] = {}  # by request, with the time of the reply
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, verb: str, args: Mapping[str, Any], role: str) -> dict[str, Any]:
        """Make a request and return its result; raises `ControlError`."""
        return await self._begin(verb, args, role)

    async def read(self, verb: str, args: Mapping[str, Any], role: str) -> dict[str, Any]:
        """Return a result no older than `FRESH_S`, for verbs without side effects; raises `ControlError`."""
        check_http(verb, role, self._daemon)
        question = json.dumps([verb, dict(args)])
        came, found = self._answers.get(question, (0.0, {}))
        if found and self._clock() - came < FRESH_S:
            return found
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = self._begin(verb, args, role)
            asked.add_done_callback(lambda done: self._keep(question, done))
        return await asyncio.shield(asked)

    def _keep(self, question: str, done: asyncio.Future[dict[str, Any]]) -> None:
        self._asked.pop(question, None)
        if not done.cancelled() and done.exception() is None:
            self._answers.pop(question, None)
            self._answers[question] = (self._clock(), done.result())
            while len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]

    def _begin(self, verb: str, args: Mapping[str, Any], role: str) -> asyncio.Future[dict[str, Any]]:
        check_http(verb, role, self._daemon)
        if verb not in STOPPING:
            self._count()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        over = False

        def then(result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            nonlocal over
            if over:  # timed out
                return
            over = True
            self._waiting -= 1
            limit.cancel()
            if answer.done():  # the client has gone
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(dict(result or {}))

        late = ControlError("timeout", f"{verb}: the daemon has not answered")
        limit = loop.call_later(VERBS[verb].within_s + GRACE_S, then, None, late)
        self._waiting += 1
        self._worker.ask(verb, args, then, role)
        return answer

    def _count(self) -> None:
        now = self._clock()
        self._left = min(2.0 * PER_S, self._left + (now - self._since) * PER_S)
        self._since = now
        if self._left < 1.0 or self._waiting >= MAX:
            raise ControlError("too_many", "too many questions by HTTP at a time; ask again in a second")
        self._left -= 1.0
