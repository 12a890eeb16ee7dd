"""Answers in JSON, one line unless they list something, so that a person with curl can read them too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

#: Nothing here may be kept, or taken for something else than it says it is.
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer; a list in it has a line for each of its items."""
    parts = []
    for key, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    body = "{" + ", ".join(parts) + "}\n"
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def refusal(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that says why there is no other."""
    return answer({"error": why}, status, headers)
