"""What is answered by HTTP: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import time

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from service.web.answers import HEADERS, answer, refusal
from service.web.guard import Guard
from service.web.health import arm_states, silent, unready
from service.web.latest import Latest
from service.web.metrics import make_registry

PATHS = ("/healthz", "/readyz", "/metrics")


def make_app(latest: Latest, token: str) -> ASGIApp:
    """Return the application that answers from `latest`; with a `token`, only to those who know it."""
    registry = make_registry(latest)

    async def healthz(_request: Request) -> Response:
        if latest.stopping:
            return answer({"status": "stopping"})
        why = silent(latest, time.monotonic_ns())
        return answer({"status": "failed", "reason": why}, 503) if why else answer({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        now_ns = time.monotonic_ns()
        why, states = unready(latest, now_ns), arm_states(latest, now_ns)
        ready = not why and all(state.ready for state in states)
        arms = [{"arm": s.arm, "ready": s.ready and not why, "problems": list(s.problems)} for s in states]
        status = "stopping" if latest.stopping else "ready" if ready else "not ready"
        content = {"status": status, **({"reason": why} if why else {}), "arms": arms}
        return answer(content, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # it asks for a version that is no number
            encode, content_type = choose_encoder("")
        return Response(encode(registry), headers=HEADERS | {"Content-Type": content_type})

    routes = [
        Route(path, endpoint, methods=["GET"]) for path, endpoint in zip(PATHS, (healthz, readyz, metrics), strict=True)
    ]
    handlers = {HTTPException: _on_refused, Exception: _on_failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, token)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refusal(404, f"nothing is here; there are {', '.join(PATHS)}")
    if error.status_code == 405:
        return refusal(405, f"{request.method:.20}: use GET or HEAD", {"Allow": "GET, HEAD"})
    return refusal(error.status_code, error.detail)


async def _on_failed(_request: Request, _error: Exception) -> Response:
    return refusal(500, "the answer could not be made; the daemon's log says why")
