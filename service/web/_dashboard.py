"""What the dashboard's page asks for: live sections, facts, lists, and actions."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from service.config.load import Config
from service.config.methods import METHODS
from service.protocol.control import ControlError
from service.protocol.json_values import plain
from service.security.http_policy import allowed_by_http, check_by_http
from service.web._actions import Action, looks_for_file, read_action, to_request, verb_of
from service.web._answers import HEADERS, refusal
from service.web._cache import Cache
from service.web._connection import RENEW
from service.web._facts import arm_facts
from service.web._live import Live
from service.web._recordings import Listing
from service.web._request_proxy import RequestProxy

#: A request that changes something brings this header: a page from elsewhere cannot, unless it is told that it may.
MARK = "x-thetad"
MAX_BODY = 16_384
LOOK_S = 10.0  # for what lies on a disk
_SLICE_S = 1.0  # of waiting for others, after which the limit of the connection is renewed
_STATUS = {
    "bad_argument": 400, "bad_request": 400, "denied": 403, "failed": 409, "too_many": 429, "unavailable": 503,
    "timeout": 504,
}  # fmt: skip

_Found = TypeVar("_Found")
Handler = Callable[[Request], Awaitable[Any]]


def api_routes(config: Config, latest: Cache, live: Live, asking: RequestProxy) -> list[Route]:
    """Return the routes below `/api`."""
    listing = Listing(config)
    looking = asyncio.Semaphore()  # one at a time: threads that wait for a disk are not to be had by asking often

    async def read(request: Request, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return await patiently(request, asking.read(verb, args, role_of(request)))

    async def session(request: Request) -> dict[str, Any]:
        role = role_of(request)
        return {
            "role": role,
            "allowed": allowed_by_http(role, config.daemon),
            "arms": [arm.name for arm in config.arm],
            "methods": list(METHODS),
        }

    async def now(request: Request) -> Response:
        arm = request.query_params.get("arm", "")
        if arm:
            check_arm(arm, latest)
        epoch, since = (whole(name, request.query_params.get(name, "0")) for name in ("epoch", "since"))
        text = await live.answer(arm, epoch, since)
        return Response(text, headers=HEADERS, media_type="application/json")

    async def facts(request: Request) -> dict[str, Any]:
        return arm_facts(latest.arms[named(request, latest)])

    async def prior(request: Request) -> dict[str, Any]:
        return await read(request, "prior", {"arm": named(request, latest)})

    async def jobs(request: Request) -> dict[str, Any]:
        return await read(request, "jobs", {"limit": 100})

    async def job(request: Request) -> dict[str, Any]:
        id = whole("id", str(request.path_params["id"]))
        return described(await read(request, "job", {"id": id}))

    async def models(request: Request) -> dict[str, Any]:
        found = await read(request, "models", {})
        for arm in found["arms"].values():
            for model in arm["models"]:
                model.pop("path", None)
        return found

    async def events(request: Request) -> dict[str, Any]:
        return await read(request, "events", {"limit": 300})

    async def recordings(request: Request) -> dict[str, Any]:
        found = await patiently(request, listing.newest(), LOOK_S)
        return {"recordings": found, "recorders": [arm.name for arm in config.arm if arm.recorder is not None]}

    async def do(request: Request) -> dict[str, Any]:
        if request.headers.get(MARK) is None or request.headers.get("content-type") != "application/json":
            raise ControlError("bad_request", f"expected application/json and a header {MARK}")
        action = read_action(await body_of(request))
        check_by_http(verb_of(action), role_of(request), config.daemon)
        if looks_for_file(action):
            verb, args = await patiently(request, looked_up(action), LOOK_S)
        else:  # a stop waits for no disk
            verb, args = to_request(action, config)
        return told(verb, await patiently(request, asking.ask(verb, args, role_of(request))))

    async def looked_up(action: Action) -> tuple[str, dict[str, Any]]:
        async with looking:
            return await asyncio.to_thread(to_request, action, config)

    paths: Mapping[str, Handler] = {
        "/api/session": session, "/api/now": now, "/api/arms/{arm:str}": facts, "/api/arms/{arm:str}/prior": prior,
        "/api/jobs": jobs, "/api/jobs/{id:str}": job, "/api/models": models, "/api/events": events,
        "/api/recordings": recordings,
    }  # fmt: skip
    routes = [Route(path, answering(handler), methods=["GET"]) for path, handler in paths.items()]
    return [*routes, Route("/api/do", answering(do), methods=["POST"])]


def answering(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers in JSON with what a handler returns, or why it refuses."""

    async def answer(request: Request) -> Response:
        try:
            found = await handler(request)
        except ControlError as error:
            return refusal(_STATUS.get(error.type, 500), error.message)
        except ClientDisconnect:  # in the middle of what it sent: nobody reads this, and nothing was wrong here
            return refusal(400, "the request has no end")
        if isinstance(found, Response):
            return found
        text = json.dumps(plain(found), separators=(",", ":"))
        return Response(text, headers=HEADERS, media_type="application/json")

    return answer


def role_of(request: Request) -> str:
    """Return the role that the guard has found."""
    return str(request.state.role)


def check_arm(name: str, latest: Cache) -> str:
    """Return the name of an arm that there is; raises `ControlError`."""
    if name not in latest.arms:
        raise ControlError("bad_argument", f"arm: there is no {name[:80]!r}; there are {', '.join(latest.arms)}")
    return name


def named(request: Request, latest: Cache) -> str:
    """Return the arm in the path of a request."""
    return check_arm(str(request.path_params["arm"]), latest)


async def patiently(request: Request, others: Awaitable[_Found], within_s: float = math.inf) -> _Found:
    """Return what others have to make first, and keep the connection meanwhile; raises `ControlError` if it lasts."""
    answer = asyncio.ensure_future(others)
    until = time.monotonic() + within_s
    while not (await asyncio.wait({answer}, timeout=_SLICE_S))[0]:
        if time.monotonic() > until:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody asks any more
            raise ControlError("timeout", f"the disk has not answered within {within_s:g} s")
        request.scope.get(RENEW, lambda: None)()
    return answer.result()


def whole(name: str, text: str) -> int:
    """Return the whole number that a text is; raises `ControlError`."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ControlError("bad_argument", f"{name}: expected a whole number")
    return int(text)


async def body_of(request: Request) -> bytes:
    """Return the body of a request, if it is no longer than it may be; raises `ControlError`."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise ControlError("bad_request", f"the request's body has more than {MAX_BODY} bytes")
    return data


def described(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a browser is told of a job: all but the files on the daemon's computer and whole robots."""
    found = {key: value for key, value in job.items() if key not in ("inputs", "partial", "outcome", "parameters")}
    long = ("robot", "prior")
    found["parameters"] = {key: _file_name(value) for key, value in job["parameters"].items() if key not in long}
    outcome = job.get("outcome")
    if outcome is not None:
        found["outcome"] = {key: outcome[key] for key in ("verdict", "summary") if key in outcome}
        found["results"] = sorted(outcome.get("results") or {})
    return found


def told(verb: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a browser is told of an action: all but where files lie."""
    found = dict(answer)
    if verb == "record":
        found.pop("directory", None)
        found["path"] = _file_name(found.get("path"))
    return found


def _file_name(value: Any) -> Any:
    """Return the name alone where a value is the path of a file, which it is only as a whole one."""
    return PurePath(value).name if isinstance(value, str) and value.startswith("/") else value
