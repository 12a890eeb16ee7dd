"""Who may ask by HTTP: programs of this computer, and, where the daemon has tokens, those that know one.

A page from elsewhere that a browser of this computer shows can make it ask a loopback address by a name of its own
(DNS rebinding).  Its requests carry that name in `Host`, and are refused.  If it asks by our name, the browser says
where the page is from, in `Origin` and `Sec-Fetch-Site`, and that is refused, too.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.protocol.roles import ROLES, Role, allows
from service.security.files import SecretFileError, read_secret
from service.web._answers import refusal
from service.web._connection import MAX_HEADERS

MIN_TOKEN = 16
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # what may stand after "Bearer"
_OWN_SITE = ("same-origin", "none")  # none: typed by a person


class Guard:
    """Lets through requests for a loopback name, of our own pages, with a right token; to be put around an application.

    Parameters
    ----------
    app : ASGIApp
        It finds the role of who asks as `role` in the state of the scope.
    tokens : mapping of str to Role
        That requests may bring, and what each is good for; empty: none is asked for.
    role : Role
        Of everybody where no token is asked for.
    open_to_all : collection of str
        Paths that need no token.
    origins : collection of str
        Where pages may be from, beside the address that is asked.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, Role],
        role: Role = "read",
        open_to_all: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._app, self._role, self._open, self._origins = app, role, frozenset(open_to_all), frozenset(origins)
        self._expected = {f"Bearer {token}".encode(): held for token, held in tokens.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on, a request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        app: ASGIApp = self._app
        if size_of(scope) > MAX_HEADERS:  # that came at once; what comes in pieces is refused before it is whole
            app = refusal(431, f"the request's line and headers have more than {MAX_HEADERS} bytes")
        elif not is_local(host):
            app = refusal(421, "Host: only names of this computer are answered: ask for 127.0.0.1 or localhost")
        elif not self._own_page(headers, host):
            origin = headers.get("origin", "")[:100]
            app = refusal(
                403, f"Origin {origin}: a page from elsewhere gets no answer; daemon.http_origins names further ones"
            )
        elif scope["path"] not in self._open:
            role = self._role_of(headers.get("authorization", ""))
            if role is None:
                why = "Authorization: expected Bearer and the token of this daemon"
                app = refusal(401, why, {"WWW-Authenticate": "Bearer"})
            else:
                scope.setdefault("state", {})["role"] = role
        await app(scope, receive, send)

    def _own_page(self, headers: Headers, host: str) -> bool:
        """Tell whether a request is of a page that we have served, or of no page at all."""
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
        for expected, role in self._expected.items():  # all of them, whichever it is
            if hmac.compare_digest(authorization.encode(), expected):
                found = role
        return found


def size_of(scope: Scope) -> int:
    """Return the bytes of a request's path, query and headers, with what separates the headers."""
    lines: int = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + lines


def is_local(host: str) -> bool:
    """Tell whether the value of a header `Host` names this computer by a loopback address or as localhost."""
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
    """Return the tokens in a file that nobody else can read, and their roles; empty without a file.

    A line is a token, which has the role `most`, or a role and a token; the role is `most` at the most.

    Raises
    ------
    SecretFileError
        The file cannot be used; the message says why, and what to do.
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
