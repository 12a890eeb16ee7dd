"""HTTP application: `/healthz`, `/readyz`, `/metrics`, the dashboard at `/`, and its API.

Files of the dashboard are read once at the start, and looked up by name: no path of a request reaches the file system.
The content security policy restricts the page to these files, allows no inline scripts, and forbids embedding.
"""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from service.config.load import Config
from service.protocol.roles import Role
from service.web._answers import HEADERS, answer, error_response
from service.web._cache import Cache
from service.web._dashboard import api_routes
from service.web._health import arm_states, daemon_problem, silence_text
from service.web._live import Live
from service.web._metrics import make_registry
from service.web._request_proxy import RequestProxy
from service.web.guard import Guard

PATHS = ("/healthz", "/readyz", "/metrics")
FOLDER = Path(__file__).resolve().parent / "static"
PREFIX = "/static/"
_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time, with 304 if unchanged
}


def make_app(
    config: Config, cache: Cache, live: Live, request_proxy: RequestProxy, tokens: Mapping[str, Role]
) -> ASGIApp:
    """Return the application that answers from `cache`; with `tokens`, all but the dashboard's files need one."""
    registry = make_registry(cache)

    async def healthz(_request: Request) -> Response:
        if cache.status.stopping:
            return answer({"status": "stopping"})
        why = silence_text(cache, time.monotonic_ns())
        return answer({"status": "failed", "reason": why}, 503) if why else answer({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        now_ns = time.monotonic_ns()
        why, states = daemon_problem(cache, now_ns), arm_states(cache, now_ns)
        ready = not why and all(state.ready for state in states)
        arms = [{"arm": s.arm, "ready": s.ready and not why, "problems": list(s.problems)} for s in states]
        status = "stopping" if cache.status.stopping else "ready" if ready else "not ready"
        content = {"status": status, **({"reason": why} if why else {}), "arms": arms}
        return answer(content, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # invalid version requested
            encode, content_type = choose_encoder("")
        return Response(encode(registry), headers=HEADERS | {"Content-Type": content_type})

    routes = [
        Route(path, endpoint, methods=["GET"]) for path, endpoint in zip(PATHS, (healthz, readyz, metrics), strict=True)
    ]
    pages = page_routes()
    routes += [*pages, *api_routes(config, cache, live, request_proxy)]
    handlers = {HTTPException: _on_refused, Exception: _on_failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    daemon = config.daemon
    return Guard(app, tokens, daemon.http_role, [page.path for page in pages], daemon.http_origins)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(404, f"nothing is here; there are /, {', '.join(PATHS)}")
    if error.status_code == 405:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "GET, HEAD").split(", ")))
        return error_response(405, f"{request.method:.20}: use {allow.replace(', ', ' or ')}", {"Allow": allow})
    return error_response(error.status_code, error.detail)


async def _on_failed(_request: Request, _error: Exception) -> Response:
    return error_response(500, "the answer could not be made; the daemon's log says why")


def page_routes() -> list[Route]:
    """Return the routes of all files; `/` is the page itself."""
    files = [path for path in sorted(FOLDER.rglob("*")) if path.suffix in _TYPES]
    named = [_route(PREFIX + path.relative_to(FOLDER).as_posix(), path) for path in files]
    return [_route("/", FOLDER / "index.html"), *named]


def _route(name: str, path: Path) -> Route:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_PAGE_HEADERS, "Content-Type": _TYPES[path.suffix], "ETag": tag}

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**_PAGE_HEADERS, "ETag": tag})
        return Response(content, headers=headers)

    return Route(name, page, methods=["GET"])
