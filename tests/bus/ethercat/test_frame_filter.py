"""Ten thousand damaged frames at a socket with the filter: what comes through is what is said to come through."""

import os
import random
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from drivers.ethercat.bus import _frame_filter as frame_filter
from drivers.ethercat.bus._frame_filter import MAX_DATAGRAMS, attach
from drivers.ethercat.bus._sockets import FrameSockets, open_sockets
from sim_backend.ethercat.wire import BRD, FPRD, LRW
from tests.lab.ethercat.frames import Datagram, build_frame
from tests.lab.ethercat.spoiling import KINDS, Spoiler

FRAMES = int(os.environ.get("THETAD_FUZZ", "10000"))
IMAGE = 72
MAX_INSTRUCTIONS = 4096  # of a filter: BPF_MAXINSNS of the kernel


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket to send to, and the one that receives: the kernel filters there as on an interface."""
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    with sender, receiver:
        yield sender, receiver


def comes_through(ends: tuple[socket.socket, socket.socket], frame: bytes) -> bool:
    sender, receiver = ends
    sender.send(frame)
    try:
        assert receiver.recv(2048) == frame
    except BlockingIOError:
        return False
    return True


def is_what_it_says(frame: bytes, image_bytes: int | None) -> bool:
    """The filter by hand."""
    if len(frame) < 16:
        return False
    word = int.from_bytes(frame[14:16], "little")
    end = 16 + (word & 0x7FF)
    if word & 0xF800 != 0x1000 or end > len(frame):
        return False
    at = 16
    for count in range(MAX_DATAGRAMS):
        if at + 8 > len(frame):
            return False
        word = int.from_bytes(frame[at + 6 : at + 8], "little")
        if count == 0 and image_bytes is not None and frame[at] == LRW and word & 0x7FF != image_bytes:
            return False
        at += 12 + (word & 0x7FF)
        if not word & 0x8000:
            return at == end
    return True


def frames(rng: random.Random) -> bytes:
    """A frame as SOEM sends them: process data, the states of all slaves, a register, or process data of others."""
    clock = Datagram(14, 0x0910_03E9, rng.randbytes(8))
    kind = rng.randrange(5)
    if kind == 0:
        return build_frame([Datagram(BRD, 0x0130_0000, rng.randbytes(2))])
    if kind == 1:
        count = rng.randrange(1, MAX_DATAGRAMS + 3)
        return build_frame([Datagram(FPRD, 0x0130_0000 + k, rng.randbytes(6)) for k in range(count)])
    image = IMAGE if kind < 4 else rng.randrange(1, 200)
    return build_frame([Datagram(LRW, 0, rng.randbytes(image)), *([clock] if rng.random() < 0.7 else [])])


def test_what_comes_through(ends: tuple[socket.socket, socket.socket]) -> None:
    rng = random.Random(1)
    damage = Spoiler("any", 0.8, 2)
    seen: Counter[bool] = Counter()
    for image in (IMAGE, None):
        assert attach(ends[1], image)
        for _ in range(FRAMES // 2):
            frame = frames(rng)
            if rng.random() < 0.8:
                frame = damage.one(rng.choice([kind for kind in KINDS if kind != "storm"]), frame)
            wanted = is_what_it_says(frame, image)
            assert comes_through(ends, frame) is wanted, frame.hex()
            seen[wanted] += 1
    assert min(seen[True], seen[False]) > FRAMES // 10, seen


@pytest.fixture
def too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter with the length of the process data is longer than the kernel takes any."""

    def program(image_bytes: int | None = None) -> list[frame_filter.Instruction]:
        found = real(image_bytes)
        return found if image_bytes is None else found + found[-1:] * MAX_INSTRUCTIONS

    real = frame_filter.program
    monkeypatch.setattr(frame_filter, "program", program)


@pytest.mark.usefixtures("too_long")
def test_without_room_for_the_length_of_the_process_data_the_form_is_looked_at(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sockets = FrameSockets(open_sockets())
    sockets._sockets.append(ends[1])
    sockets.admit()
    assert sockets.filtered
    sockets.admit(IMAGE)
    assert not sockets.filtered
    good = build_frame([Datagram(LRW, 0, bytes(IMAGE))])
    assert comes_through(ends, good)
    assert not comes_through(ends, good[:-1])
    assert comes_through(ends, build_frame([Datagram(LRW, 0, bytes(IMAGE + 1))]))
