"""Ten thousand bad frames: no crash, no hang, answers as long as the questions, and the segment works on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim_backend.ethercat import registers as r
from sim_backend.ethercat import wire
from sim_backend.ethercat.segment import Segment
from sim_backend.ethercat.wire import build_frame, parse_frame, physical
from tests.ethercat.frame_fuzzer import fuzz
from tests.ethercat.plain_device import Echo
from tests.ethercat.segment_process import make_segment

FRAMES = 10_000


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Segment([Echo] * 3, None, ring=True), id="echo"),
        pytest.param(lambda: make_segment(6, ring=True), id="drives"),
    ],
)
def test_random_frames(make: Callable[[], Segment]) -> None:
    bus = make()
    answers, now = fuzz(bus, FRAMES, seed=1)
    assert answers > FRAMES // 4
    ((port, reply),) = bus.exchange(build_frame([physical(wire.BRD, 0, r.AL_STATUS, bytes(2))]), 0, now)
    (datagram,) = parse_frame(reply)
    assert (port, datagram.working_counter, datagram.data) == (1, len(bus), b"\x01\x00")
