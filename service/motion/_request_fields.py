"""Fields of requests that several verbs of an arm have."""

from typing import Any

from service.protocol.control import ControlError


def token_of(args: dict[str, Any], verb: str) -> str:
    """Return the permit of a request; raises `ControlError` if there is none."""
    token = args.get("permit")
    if type(token) is not str or not token:
        raise ControlError("bad_argument", f"{verb}: permit: expected the text that `arm` gave")
    return token
