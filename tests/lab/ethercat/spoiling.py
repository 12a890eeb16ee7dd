"""Damage to EtherCAT frames, drawn by a seed: what is sent in place of one."""

import random
from collections import deque

#: What is done to frames.  All but `flip` can be told from a frame alone, by its index, or, `short`, by the length that
#: its process data should have.
KINDS = ("cut", "length", "longer", "index", "type", "junk", "storm", "short", "flip")
_HEADERS, _DATAGRAM = 14, 16  # places of EtherCAT's header and the first datagram's
_LENGTH, _DATA = 22, 26  # places of the first datagram's length and data
_AROUND = 12  # bytes of a datagram beside its data
_NOP, _LRW = 0, 12
_MAX = 1514


class Spoiler:
    """Damages a `share` of the frames in the way of `kind`, one of `KINDS` or "any".

    `damaged` counts frames that were damaged, and frames that nobody has asked for.
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
        spoilt = self.one(kind, frame)
        self.damaged += spoilt != frame
        return [spoilt]

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
            return frame + draw.randbytes(draw.randrange(1, _MAX - len(frame)))
        if kind == "index":
            spoilt[_DATAGRAM + 1] ^= draw.randrange(1, 256)
        elif kind == "type":
            spoilt[12:14] = draw.choice([b"\x08\x00", b"\x86\xdd", b"\x88\xa5", draw.randbytes(2)])
        elif kind == "short":
            return self._short(frame)
        elif kind == "junk":
            return frame[:_HEADERS] + draw.randbytes(draw.randrange(0, 300))
        else:
            for _ in range(draw.randrange(1, 4)):
                bit = draw.randrange(8 * _HEADERS, 8 * len(frame))
                spoilt[bit // 8] ^= 1 << bit % 8
        return bytes(spoilt)

    def _short(self, frame: bytes) -> bytes:
        """Return process data (LRW) that ends early: a datagram that does nothing takes the place of what is left out.

        All lengths agree, and working counters and the datagrams behind are where they were.  A frame without enough
        process data stays as it is.
        """
        draw, size = self._random, int.from_bytes(frame[_LENGTH : _LENGTH + 2], "little") & 0x7FF
        if frame[_DATAGRAM] != _LRW or size <= _AROUND:
            return frame
        most = size - _AROUND - 1
        idle = min(draw.choice((0, 1, 2, draw.randrange(most + 1))), most)
        left, last = size - _AROUND - idle, frame[_LENGTH + 1] & 0x80
        counter = frame[_DATA + size : _DATA + size + 2]
        return b"".join((
            frame[:_LENGTH], (left | 0x8000).to_bytes(2, "little"), frame[_LENGTH + 2 : _DATA + left], counter,
            bytes((_NOP, frame[_DATAGRAM + 1], 0, 0, 0, 0)), (idle | last << 8).to_bytes(2, "little"), bytes(2),
            draw.randbytes(idle), frame[_DATA + size :],
        ))  # fmt: skip

    def _unasked(self) -> bytes:
        """Return an answer of before, as it was or with damage, or one to nobody."""
        draw = self._random
        old = draw.choice(self._old)
        return old if draw.random() < 0.3 else self.one(draw.choice(("cut", "index", "junk", "type")), old)
