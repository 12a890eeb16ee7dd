"""What the log of a queue's file holds, beside what SQLite will replay of it (https://sqlite.org/fileformat2.html#walformat).

SQLite takes the first frame with a wrong checksum for the end of the log: one flipped bit undoes all later commits.
"""

import struct
from pathlib import Path

_HEAD, _FRAME = 32, 24  # bytes before the frames, and before the page of each


def lost_commits(log: Path, page: int) -> int:
    """Return how many commits stand in the log of pages of `page` bytes, and will not be replayed."""
    content = log.read_bytes() if log.exists() else b""
    if len(content) < _HEAD:  # SQLite begins it anew
        return 0
    order, salts, size, lost = "<>"[content[3] & 1], content[16:24], _FRAME + page, 0
    sums = _checksum(order, content[:24], (0, 0))
    head = whole = content[24:_HEAD] == struct.pack(">II", *sums)
    for at in range(_HEAD, len(content) - size + 1, size):
        frame = content[at : at + size]
        if whole:
            sums = _checksum(order, frame[:8] + frame[_FRAME:], sums)
            whole = frame[8:_FRAME] == salts + struct.pack(">II", *sums)
        # one half of the salts is new by chance in each round: frames that an earlier one has left have neither
        current = not head or frame[8:12] == salts[:4] or frame[12:16] == salts[4:]
        lost += current and not whole and any(frame[4:8])
    return lost


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    a, b = sums
    for x, y in struct.iter_unpack(f"{order}II", data):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return a, b
