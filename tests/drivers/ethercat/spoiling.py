"""Damage to EtherCAT frames, drawn by a seed: what is sent in place of one."""

from __future__ import annotations

import random
from collections import deque

#: What is done to frames.  All but `flip` can be told from a frame alone, or by its index.
KINDS = ("cut", "length", "longer", "index", "type", "junk", "storm", "flip")
_HEADERS, _DATAGRAM = 14, 16  # places of EtherCAT's header and the first datagram's
_MOST = 1514


class Spoiler:
    """Damages frames.

    Parameters
    ----------
    kind : str
        One of `KINDS`, or "any".
    share : float
        Of the frames that are damaged.
    seed : int

    Attributes
    ----------
    damaged : int
        Frames that were damaged, and frames that nobody has asked for.
    """

    def __init__(self, kind: str, share: float, seed: int) -> None:
        self.damaged = 0
        self._kind, self._share, self._random = kind, share, random.Random(seed)
        self._old: deque[bytes] = deque(maxlen=40)

    def __call__(self, frame: bytes) -> list[bytes]:
        """Return what is sent in place of an answer, in order."""
        draw = self._random
        self._old.append(frame)
        if draw.random() >= self._share:
            return [frame]
        kind = draw.choice(KINDS) if self._kind == "any" else self._kind
        if kind == "storm":
            sent = [self._unasked() for _ in range(draw.randrange(1, 40))]
            self.damaged += len(sent)
            sent.insert(draw.randrange(len(sent) + 1), frame)
            return sent
        self.damaged += 1
        return [self.one(kind, frame)]

    def one(self, kind: str, frame: bytes) -> bytes:
        """Return a frame with damage of a kind other than "storm"."""
        draw, spoilt = self._random, bytearray(frame)
        if kind == "cut":
            return frame[: draw.randrange(_HEADERS, len(frame))]
        if kind == "length":  # of the datagram, or of EtherCAT's header, or of both as if they belonged together
            by = draw.choice([-8, -1, 1, 7, 16, draw.randrange(-200, 400)])
            for place in draw.choice([(_DATAGRAM + 6,), (_HEADERS,), (_HEADERS, _DATAGRAM + 6)]):
                word = int.from_bytes(spoilt[place : place + 2], "little")
                other = word & 0xF800 | (word + by) & 0x7FF
                spoilt[place : place + 2] = other.to_bytes(2, "little")
            return bytes(spoilt)
        if kind == "longer":
            return frame + draw.randbytes(draw.randrange(1, _MOST - len(frame)))
        if kind == "index":
            spoilt[_DATAGRAM + 1] ^= draw.randrange(1, 256)
        elif kind == "type":
            spoilt[12:14] = draw.choice([b"\x08\x00", b"\x86\xdd", b"\x88\xa5", draw.randbytes(2)])
        elif kind == "junk":
            return frame[:_HEADERS] + draw.randbytes(draw.randrange(0, 300))
        else:
            for _ in range(draw.randrange(1, 4)):
                bit = draw.randrange(8 * _HEADERS, 8 * len(frame))
                spoilt[bit // 8] ^= 1 << bit % 8
        return bytes(spoilt)

    def _unasked(self) -> bytes:
        """Return an answer of before, as it was or with damage, or one to nobody."""
        draw = self._random
        old = draw.choice(self._old)
        return old if draw.random() < 0.3 else self.one(draw.choice(("cut", "index", "junk", "type")), old)
