"""Rows of the queue's file: text with a checksum, so that each can be recovered alone from a damaged file.

    {"table":"jobs","crc":"0a1b2c3d","rev":7,"id":12,...}

The checksum is of what follows it; of several copies of a row the one with the highest revision is the latest.
"""

import contextlib
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.protocol.json_values import json_values

TABLES = ("jobs", "models", "promotions", "events")
_HEAD = re.compile(r'\{"table":"(\w+)","crc":"([0-9a-f]{8})",')
_START = re.compile(rb'\{"table":"\w+","crc":"[0-9a-f]{8}",')
_MAX = 1 << 22  # characters of a row
_DECODER = json.JSONDecoder()


class RowError(ValueError):
    """Text that is not a row, or is damaged."""


@dataclass(frozen=True)
class Row:
    table: str
    revision: int
    content: dict[str, Any]


def pack(table: str, content: object, revision: int = 0) -> str:
    """Write a row of a dataclass or map; numbers that are not finite become null."""
    plain: Mapping[str, Any] = json_values(content)
    rest = json.dumps({"rev": revision, **plain}, separators=(",", ":"), allow_nan=False)[1:]
    return f'{{"table":"{table}","crc":"{zlib.crc32(rest.encode()):08x}",{rest}'


def unpack(text: str) -> Row:
    """Read the row at the beginning of `text`; raises `RowError`."""
    head = _HEAD.match(text) if type(text) is str else None  # a damaged column may hold bytes
    if head is None or head[1] not in TABLES:
        raise RowError("it is not a row of the queue")
    try:
        content, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise RowError(str(error)) from error
    if f"{zlib.crc32(text[head.end() : end].encode()):08x}" != head[2]:
        raise RowError("its checksum is wrong")
    del content["table"], content["crc"]
    return Row(head[1], int(content.pop("rev")), content)


def find(data: bytes) -> Iterator[Row]:
    """Yield the rows in any bytes."""
    # The mark is never inside a row: quotes in its texts are escaped.
    starts = [match.start() for match in _START.finditer(data)]
    for start, following in itertools.pairwise([*starts, len(data)]):
        with contextlib.suppress(RowError):
            yield unpack(data[start : min(following, start + _MAX)].decode("ascii", "replace"))
