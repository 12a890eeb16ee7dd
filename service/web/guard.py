"""Guard of the HTTP server: for programs of this computer, and, if there are tokens, with a token.

A foreign page in a browser of this computer can request a loopback address under a name of its own (DNS rebinding).
Such requests carry that name in `Host`, and are refused. Under our name, the browser states the page's origin in
`Origin` and `Sec-Fetch-Site`, and foreign ones are refused, too.
"""

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.protocol.roles import ROLES, Role, allows
from service.security.files import SecretFileError, read_secret
from service.web._answers import error_response
from service.web._connection import MAX_HEADERS

MIN_TOKEN = 16
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # allowed after "Bearer"
_OWN_SITE = ("same-origin", "none")  # none: typed by the user


class Guard:
    """Middleware that passes requests for a loopback name, from our own pages, with a valid token.

    `app` finds the client's role as `role` in the state of the scope: by `tokens`, or `role` for all clients if there
    are none and so none is required. The paths `open_to_all` need no token; `origins` of pages are accepted in addition
    to the requested address.
    """

    def __init__(
        self, app: ASGIApp, tokens: Mapping[str, Role], role: Role = "read", open_to_all: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._app, self._role, self._open, self._origins = app, role, frozenset(open_to_all), frozenset(origins)
        self._expected = {f"Bearer {token}".encode(): held for token, held in tokens.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        app: ASGIApp = self._app
        if size_of(scope) > MAX_HEADERS:  # if received at once; the server refuses longer ones in pieces
            app = error_response(431, f"the request's line and headers have more than {MAX_HEADERS} bytes")
        elif not is_local(host):
            app = error_response(421, "Host: only names of this computer are answered: ask for 127.0.0.1 or localhost")
        elif not self._own_page(headers, host):
            origin = headers.get("origin", "")[:100]
            app = error_response(
                403, f"Origin {origin}: a page from elsewhere gets no answer; daemon.http_origins names further ones"
            )
        elif scope["path"] not in self._open:
            role = self._role_of(headers.get("authorization", ""))
            if role is None:
                why = "Authorization: expected Bearer and the token of this daemon"
                app = error_response(401, why, {"WWW-Authenticate": "Bearer"})
            else:
                scope.setdefault("state", {})["role"] = role
        await app(scope, receive, send)

    def _own_page(self, headers: Headers, host: str) -> bool:
        """Return whether a request comes from a page that we served, or from no page."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin in self._origins:
            return True
        return (origin is None or origin == f"http://{host}") and (
            site is None or site in _OWN_SITE or headers.get("sec-fetch-mode") == "navigate"
        )

    def _role_of(self, authorization: str) -> Role | None:
        if not self._expected:
            return self._role
        found: Role | None = None
        for expected, role in self._expected.items():  # compare all, for constant time
            if hmac.compare_digest(authorization.encode(), expected):
                found = role
        return found


def size_of(scope: Scope) -> int:
    """Return the bytes of a request's path, query and headers, including separators."""
    lines: int = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + lines


def is_local(host: str) -> bool:
    """Return whether the value of a header `Host` is a loopback address or localhost."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_tokens(path: Path | None, most: Role) -> dict[str, Role]:
    """Read the tokens in a private file, and their roles; empty without a file.

    A line is a token with the role `most`, or a role of at most `most` and a token.

    Raises `SecretFileError`: the file cannot be used; the message says why, and what to do.
    """
    if path is None:
        return {}
    try:
        lines = read_secret(path).strip().split("\n")
    except FileNotFoundError as error:
        raise SecretFileError(
            f"daemon.http_token_file: {path}: is not there: make one with (umask 077; openssl rand -hex 32 > '{path}')"
        ) from error
    except SecretFileError as error:
        raise SecretFileError(f"daemon.http_token_file: {error}") from error
    found: dict[str, Role] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        role = next((role for role in ROLES if words[:1] == [role]), None)
        token = words[-1] if len(words) == (1 if role is None else 2) else ""
        if len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token) or token in found:
            raise SecretFileError(
                f"daemon.http_token_file: {path}: line {number} holds no token: one of at least {MIN_TOKEN} letters, "
                f"digits or ._~+/=- is expected, each once, with one of {', '.join(ROLES[:-1])} before it or nothing"
            )
        if role is not None and not allows(most, role):
            raise SecretFileError(
                f"daemon.http_token_file: {path}: line {number} has the role {role}, and daemon.http_role allows no "
                f"more than {most}: raise it, or take a lower role"
            )
        found[token] = role or most
    return found
