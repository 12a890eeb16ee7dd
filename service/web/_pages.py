"""Files of the dashboard, read once at the start, and looked up by name.

No path of a request reaches the file system. The content security policy restricts the page to these files, allows no
inline scripts, and forbids embedding in other pages.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time, with 304 if unchanged
}


def page_routes() -> list[Route]:
    """Return the routes of all files; `/` is the page itself."""
    files = [path for path in sorted(FOLDER.rglob("*")) if path.suffix in _TYPES]
    named = [_route(PREFIX + path.relative_to(FOLDER).as_posix(), path) for path in files]
    return [_route("/", FOLDER / "index.html"), *named]


def _route(name: str, path: Path) -> Route:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "Content-Type": _TYPES[path.suffix], "ETag": tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**HEADERS, "ETag": tag})
        return Response(content, headers=headers)

    return Route(name, answer, methods=["GET"])
