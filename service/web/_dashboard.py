"""API of the dashboard: live sections, facts, lists, and actions."""

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

from rt_core.identification.methods import METHODS
from service.config.load import Config
from service.protocol.control import ControlError
from service.protocol.json_values import json_values
from service.security.http_policy import allowed_verbs, check_http
from service.web._actions import Action, read_action, reads_folder, to_request, verb_of
from service.web._answers import HEADERS, error_response
from service.web._cache import Arm, Cache
from service.web._connection import RENEW
from service.web._live import Live
from service.web._metrics import joint_of
from service.web._recordings import RecordingList
from service.web._request_proxy import RequestProxy

#: Header of requests that change something: a page from another origin cannot set it without permission.
CUSTOM_HEADER = "x-thetad"
MAX_BODY = 16_384
FOLDER_S = 10.0  # for reading a folder
_SLICE_S = 1.0  # of waiting for others, after which the connection's limit is renewed
_STATUS = {
    "bad_argument": 400, "bad_request": 400, "denied": 403, "failed": 409, "too_many": 429, "unavailable": 503,
    "timeout": 504,
}  # fmt: skip

_Found = TypeVar("_Found")
Handler = Callable[[Request], Awaitable[Any]]


def api_routes(config: Config, cache: Cache, live: Live, request_proxy: RequestProxy) -> list[Route]:
    """Return the routes below `/api`."""
    listing = RecordingList(config)
    folder_access = asyncio.Semaphore()  # one at a time, so that frequent requests cannot occupy all threads

    async def read(request: Request, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return await hold_connection(request, request_proxy.read(verb, args, role_of(request)))

    async def session(request: Request) -> dict[str, Any]:
        role = role_of(request)
        return {
            "role": role, "allowed": allowed_verbs(role, config.daemon), "arms": [arm.name for arm in config.arm],
            "methods": list(METHODS),
        }  # fmt: skip

    async def now(request: Request) -> Response:
        arm = request.query_params.get("arm", "")
        if arm:
            check_arm(arm, cache)
        epoch, since = (whole_number(name, request.query_params.get(name, "0")) for name in ("epoch", "since"))
        text = await live.answer(arm, epoch, since)
        return Response(text, headers=HEADERS, media_type="application/json")

    async def facts(request: Request) -> dict[str, Any]:
        return arm_facts(cache.arms[arm_of(request, cache)])

    async def history(request: Request) -> dict[str, Any]:
        names = request.query_params.get("of", "").split(",")
        return cache.arms[arm_of(request, cache)].history.columns(names, time.monotonic(), time.time())

    async def job(request: Request) -> dict[str, Any]:
        id = whole_number("id", str(request.path_params["id"]))
        return job_for_browser(await read(request, "job", {"id": id}))

    async def models(request: Request) -> dict[str, Any]:
        found = await read(request, "models", {})
        for arm in found["arms"].values():
            for model in arm["models"]:
                model.pop("path", None)
        return found

    async def recordings(request: Request) -> dict[str, Any]:
        found = await hold_connection(request, listing.newest(), FOLDER_S)
        return {"recordings": found, "recorders": [arm.name for arm in config.arm if arm.recorder is not None]}

    async def do(request: Request) -> dict[str, Any]:
        if request.headers.get(CUSTOM_HEADER) is None or request.headers.get("content-type") != "application/json":
            raise ControlError("bad_request", f"expected application/json and a header {CUSTOM_HEADER}")
        action = read_action(await body_of(request))
        check_http(verb_of(action), role_of(request), config.daemon)
        if reads_folder(action):
            verb, args = await hold_connection(request, resolved(action), FOLDER_S)
        else:  # a stop must not wait for a disk
            verb, args = to_request(action, config)
        return result_for_browser(verb, await hold_connection(request, request_proxy.ask(verb, args, role_of(request))))

    async def resolved(action: Action) -> tuple[str, dict[str, Any]]:
        async with folder_access:
            return await asyncio.to_thread(to_request, action, config)

    paths: Mapping[str, Handler] = {
        "/api/session": session, "/api/now": now, "/api/arms/{arm:str}": facts,
        "/api/arms/{arm:str}/prior": lambda request: read(request, "prior", {"arm": arm_of(request, cache)}),
        "/api/arms/{arm:str}/history": history, "/api/jobs": lambda request: read(request, "jobs", {"limit": 100}),
        "/api/jobs/{id:str}": job, "/api/models": models, "/api/recordings": recordings,
        "/api/events": lambda request: read(request, "events", {"limit": 300}),
    }  # fmt: skip
    routes = [Route(path, answering(handler), methods=["GET"]) for path, handler in paths.items()]
    return [*routes, Route("/api/do", answering(do), methods=["POST"])]


def answering(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that responds in JSON with a handler's result, or its refusal."""

    async def answer(request: Request) -> Response:
        try:
            found = await handler(request)
        except ControlError as error:
            return error_response(_STATUS.get(error.type, 500), error.message)
        except ClientDisconnect:  # in the middle of a request: nobody reads the response
            return error_response(400, "the request has no end")
        if isinstance(found, Response):
            return found
        text = json.dumps(json_values(found), separators=(",", ":"))
        return Response(text, headers=HEADERS, media_type="application/json")

    return answer


def role_of(request: Request) -> str:
    """Return the role determined by the guard."""
    return str(request.state.role)


def check_arm(name: str, cache: Cache) -> str:
    """Return the name of a known arm; raises `ControlError` for others."""
    if name not in cache.arms:
        raise ControlError("bad_argument", f"arm: there is no {name[:80]!r}; there are {', '.join(cache.arms)}")
    return name


def arm_of(request: Request, cache: Cache) -> str:
    """Return the arm in the path of a request."""
    return check_arm(str(request.path_params["arm"]), cache)


async def hold_connection(request: Request, others: Awaitable[_Found], within_s: float = math.inf) -> _Found:
    """Await a result of others, keeping the connection meanwhile; raises `ControlError` after `within_s`."""
    answer = asyncio.ensure_future(others)
    until = time.monotonic() + within_s
    while not (await asyncio.wait({answer}, timeout=_SLICE_S))[0]:
        if time.monotonic() > until:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody wants the result
            raise ControlError("timeout", f"the disk has not answered within {within_s:g} s")
        request.scope.get(RENEW, lambda: None)()
    return answer.result()


def whole_number(name: str, text: str) -> int:
    """Parse a whole number; raises `ControlError`."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ControlError("bad_argument", f"{name}: expected a whole number")
    return int(text)


async def body_of(request: Request) -> bytes:
    """Return the body of a request; raises `ControlError` if it is too long."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise ControlError("bad_request", f"the request's body has more than {MAX_BODY} bytes")
    return data


def arm_facts(arm: Arm) -> dict[str, Any]:
    """Return names, units and meanings of the live sections; raises `ControlError` before the first.

    `hash` is that of the estimates to which they apply.
    """
    meta, source = arm.meta.get("estimator"), arm.meta.get("acquisition", {})
    if meta is None:
        raise ControlError("unavailable", f"arm {arm.name}: its estimator has not said yet what it estimates")
    return {
        "arm": arm.name, "hash": meta["hash"], "robot": meta["robot"], "joints": meta["joints"],
        "torque_units": meta["torque_units"], "parameters": meta["parameters"], "units": meta["units"],
        "expressions": meta["expressions"], "of_joint": [joint_of(name) for name in meta["parameters"]],
        "rate_hz": meta["rate_hz"], "update_hz": meta["update_hz"], "memory_s": meta["settings"].get("memory_s"),
        "source": source.get("source"), "channels": source.get("channels"),
    }  # fmt: skip


def job_for_browser(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job for a browser: without paths on the daemon's computer and whole robots."""
    found = {key: value for key, value in job.items() if key not in ("inputs", "partial", "outcome", "parameters")}
    long = ("robot", "prior")
    found["parameters"] = {key: _file_name(value) for key, value in job["parameters"].items() if key not in long}
    outcome = job.get("outcome")
    if outcome is not None:
        found["outcome"] = {key: outcome[key] for key in ("verdict", "summary") if key in outcome}
        found["results"] = sorted(outcome.get("results") or {})
    return found


def result_for_browser(verb: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an action for a browser: without paths."""
    found = dict(answer)
    if verb == "record":
        found.pop("directory", None)
        found["path"] = _file_name(found.get("path"))
    return found


def _file_name(value: Any) -> Any:
    """Return the file name of an absolute path, and any other value unchanged."""
    return PurePath(value).name if isinstance(value, str) and value.startswith("/") else value
