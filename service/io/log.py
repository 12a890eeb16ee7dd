"""Logs: one JSON object per line on stderr, with process, arm and boot counter."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, TypeAlias

import structlog

Log: TypeAlias = structlog.typing.FilteringBoundLogger


def configure(level: str = "info") -> None:
    """Set up structlog for this process; each line is one write, so that lines of processes do not mix."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.BytesLoggerFactory(file=sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def get_log(process: str, **bound: Any) -> Log:
    """Return a logger that writes `process` and the other bound values into every line."""
    log: Log = structlog.get_logger().bind(process=process, **bound)
    return log


def _dumps(event: dict[str, Any], **options: Any) -> bytes:
    return json.dumps(event, **options).encode()
