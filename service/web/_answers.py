"""JSON responses, with lists on several lines, so that they are readable with curl."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

#: No caching, and no guessing of content types.
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; each item of a list is on its own line."""
    parts = []
    for key, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    body = "{" + ", ".join(parts) + "}\n"
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def error_response(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response."""
    return answer({"error": why}, status, headers)
