"""Ten thousand bad frames, twice: no crash, no hang, answers as long as the questions, and the segment works on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim_backend.ethercat import registers as r
from sim_backend.ethercat import wire
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.wire import build_frame, parse_frame, physical
from tests.lab.ethercat.frame_fuzzer import fuzz, fuzz_operational
from tests.lab.ethercat.frame_master import FrameMaster
from tests.lab.ethercat.segment_process import make_segment
from tests.lab.ethercat.simple_device import Echo

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


def test_drives_in_operation_get_random_outputs_and_messages() -> None:
    bus = make_segment(6, ring=True)
    happened = fuzz_operational(bus, FRAMES, seed=1)
    assert happened["in OP"] > 2 * FRAMES  # of the six drives, in each frame
    assert happened["enabled"] > 2 * FRAMES
    assert happened["mailbox requests"] > FRAMES // 20
    assert happened["mailbox replies"] > FRAMES // 20
    assert happened["bring-ups"] > 1
    master = FrameMaster(bus)
    master.bring_up()
    assert master.exchange() == 18
