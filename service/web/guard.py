"""Who may ask by HTTP: programs of this computer, and, where the daemon has a token, those that know it.

A page from elsewhere that a browser of this computer shows can make it ask a loopback address by a name of its own
(DNS rebinding).  Its requests carry that name in `Host`, and are refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.security.files import SecretFileError, read_secret
from service.web.answers import refusal
from service.web.connection import MOST_HEADERS

LEAST_TOKEN = 16
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # what may stand after "Bearer"


class Guard:
    """Lets through requests for a loopback name with the right token; to be put around an application.

    Parameters
    ----------
    app : ASGIApp
    token : str
        That requests have to bring; empty: none.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on, a request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        app: ASGIApp = self._app
        if size_of(scope) > MOST_HEADERS:  # that came at once; what comes in pieces is refused before it is whole
            app = refusal(431, f"the request's line and headers have more than {MOST_HEADERS} bytes")
        elif not is_local(headers.get("host", "")):
            app = refusal(421, "Host: only names of this computer are answered: ask for 127.0.0.1 or localhost")
        elif self._expected and not hmac.compare_digest(headers.get("authorization", "").encode(), self._expected):
            why = "Authorization: expected Bearer and the token of this daemon"
            app = refusal(401, why, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)


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


def read_token(path: Path | None) -> str:
    """Return the token in a file that nobody else can read; empty without a file.

    Raises
    ------
    SecretFileError
        The file cannot be used; the message says why, and what to do.
    """
    if path is None:
        return ""
    try:
        token = read_secret(path).strip()
    except FileNotFoundError as error:
        raise SecretFileError(
            f"daemon.http_token_file: {path}: is not there: make one with (umask 077; openssl rand -hex 32 > '{path}')"
        ) from error
    except SecretFileError as error:
        raise SecretFileError(f"daemon.http_token_file: {error}") from error
    if len(token) < LEAST_TOKEN or not _TOKEN.fullmatch(token):
        raise SecretFileError(
            f"daemon.http_token_file: {path}: holds no token: one line of at least {LEAST_TOKEN} letters, digits or "
            "._~+/=- is expected"
        )
    return token
