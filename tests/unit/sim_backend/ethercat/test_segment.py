"""Topology, steps, faults: frames and times in, frames out; any bytes in them, and the segment works on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from sim_backend.ethercat import registers as r
from sim_backend.ethercat import wire
from sim_backend.ethercat._segment import MAX_CATCH_UP, Segment
from tests.lab.ethercat.frame_fuzzer import fuzz, fuzz_operational
from tests.lab.ethercat.frame_master import FrameMaster
from tests.lab.ethercat.frames import Datagram, build_frame, parse_frame, physical
from tests.lab.ethercat.segment_process import make_segment
from tests.lab.ethercat.simple_device import Echo

COUNT = build_frame([physical(wire.BRD, 0, 0, bytes(1))])
MS = 1_000_000


@dataclass
class Recorder:
    """A machine that notes its periods, and the drives without power."""

    periods: list[float] = field(default_factory=list)
    off: set[int] = field(default_factory=set)
    buses: list[Echo] = field(default_factory=list)

    def connect(self, buses: Sequence[Echo]) -> None:
        self.buses = list(buses)

    def power_off(self, slave: int) -> None:
        self.off.add(slave)

    def power_on(self, slave: int) -> None:
        self.off.remove(slave)

    def cycle(self, period_s: float) -> None:
        self.periods.append(period_s)


def make(count: int = 3, machine: Recorder | None = None, *, ring: bool = False) -> tuple[Segment, list[Echo]]:
    devices: list[Echo] = []

    def device(memory: r.UInt8Array) -> Echo:
        devices.append(Echo(memory))
        return devices[-1]

    return Segment([device] * count, machine, ring=ring), devices


def counters(bus: Segment, port: int = 0) -> list[tuple[int, int]]:
    """Where a broadcast sent into `port` comes out, and how many slaves answered it."""
    return [(out, parse_frame(frame)[0].working_counter) for out, frame in bus.exchange(COUNT, port, 0)]


def dl_status(bus: Segment) -> list[int]:
    return [int.from_bytes(row[r.DL_STATUS : r.DL_STATUS + 2].tobytes(), "little") for row in bus.memory]


def ask(bus: Segment, datagram: Datagram, port: int = 0, now: int = 0) -> Datagram:
    ((_, answer),) = bus.exchange(build_frame([datagram]), port, now)
    return parse_frame(answer)[0]


def test_line_answers_where_it_was_asked() -> None:
    bus, _ = make()
    assert counters(bus) == [(0, 3)]
    assert counters(bus, 1) == []
    assert dl_status(bus) == [0x5A31, 0x5A31, 0x5611]


@pytest.mark.parametrize("after", [0, 2, 3])
def test_cut_line_answers_up_to_the_cut(after: int) -> None:
    bus, _ = make()
    bus.cut(after)
    assert counters(bus) == ([(0, after)] if after else [])
    bus.mend()
    assert counters(bus) == [(0, 3)]


@pytest.mark.parametrize("after", [0, 2, 3])
def test_cut_ring_answers_at_both_ends(after: int) -> None:
    bus, _ = make(ring=True)
    assert (counters(bus), counters(bus, 1)) == ([(1, 3)], [(0, 0)])
    bus.cut(after)
    assert counters(bus) == ([(0, after)] if after else [])
    assert counters(bus, 1) == ([(1, 3 - after)] if after < 3 else [])
    bus.mend()
    assert (counters(bus), counters(bus, 1)) == ([(1, 3)], [(0, 0)])


def test_behind_a_cut_the_nearest_slave_comes_first() -> None:
    bus, _ = make(4, ring=True)
    bus.cut(1)
    for place, slave in enumerate((1, 2, 3)):
        answer = ask(bus, physical(wire.APWR, place, 0x1000, bytes([slave])), port=1)
        assert (answer.working_counter, answer.circulating) == (1, True)
    assert bus.memory[:, 0x1000].tolist() == [0, 1, 2, 3]
    assert not ask(bus, physical(wire.APRD, 0, 0x1000, bytes(1))).circulating


def test_links_show_cuts_and_count_them() -> None:
    bus, _ = make(ring=True)
    assert dl_status(bus) == [0x5A31] * 3
    bus.cut(2)
    assert dl_status(bus) == [0x5A31, 0x5611, 0x5921]
    assert bus.memory[:, r.LOST_LINK_COUNTER : r.LOST_LINK_COUNTER + 2].tolist() == [[0, 0], [0, 1], [1, 0]]


def test_slave_without_power_ends_the_line_and_forgets() -> None:
    machine = Recorder()
    bus, devices = make(machine=machine, ring=True)
    assert machine.buses == devices
    ask(bus, physical(wire.BWR, 0, r.STATION_ADDRESS, b"\x07\x10"))
    bus.power_off(1)
    assert machine.off == {1}
    assert (counters(bus), counters(bus, 1)) == ([(0, 1)], [(1, 1)])
    bus.power_on(1)
    assert not machine.off
    assert counters(bus) == [(1, 3)]
    assert bus.memory[:, r.STATION_ADDRESS].tolist() == [7, 0, 7]
    assert dl_status(bus) == [0x5A31] * 3


def test_in_a_ring_the_next_frame_from_the_far_end_tells_the_way_back() -> None:
    bus, _ = make(3, ring=True)
    bus.exchange(build_frame([physical(wire.BWR, 0, r.DC_RECEIVE_TIME_PORT[0], bytes(4))]), 0, MS)
    bus.exchange(COUNT, 1, MS + 50_000)
    bus.exchange(COUNT, 1, MS + 90_000)
    first, second = r.DC_RECEIVE_TIME_PORT[:2]
    there = [int.from_bytes(row[first : first + 4].tobytes(), "little") for row in bus.memory]
    back = [int.from_bytes(row[second : second + 4].tobytes(), "little") for row in bus.memory]
    assert there == [MS, MS + 600, MS + 1200]
    assert back == [MS + 51_200, MS + 50_600, MS + 50_000]


def test_outputs_act_from_the_next_step_on() -> None:
    bus, _ = make(1, Recorder())
    ask(bus, physical(wire.APWR, 0, 0x1100, b"\x05"), now=10)
    assert ask(bus, physical(wire.APRD, 0, 0x1400, bytes(1)), now=MS - 1).data == b"\x00"
    assert ask(bus, physical(wire.APRD, 0, 0x1400, bytes(1)), now=MS).data == b"\x05"  # what was due came first


def test_sync0_of_the_reference_steps_the_machine() -> None:
    machine = Recorder()
    bus, _ = make(2, machine)
    ask(bus, physical(wire.APWR, 1, r.DC_SYNC0_START, (400_000).to_bytes(8, "little")))
    ask(bus, physical(wire.APWR, 1, r.DC_SYNC0_CYCLE, (250_000).to_bytes(4, "little")))
    ask(bus, physical(wire.APWR, 1, r.DC_ACTIVATION, b"\x03"))
    assert bus.tick(149_999) == 150_000
    assert bus.tick(399_999) == 400_000  # the start time, on the grid of which the arm steps before it too
    assert bus.tick(1_400_000) == 1_650_000
    assert machine.periods == [0.00025] * 6


def test_a_late_process_makes_up_for_some_steps_and_counts_the_rest() -> None:
    machine = Recorder()
    bus, _ = make(1, machine)
    assert bus.tick(1000 * MS + 5) == 1001 * MS
    assert (len(machine.periods), bus.steps, bus.skipped) == (MAX_CATCH_UP, MAX_CATCH_UP, 950)


def test_delayed_replies_come_later() -> None:
    bus, _ = make()
    bus.delay_replies(300_000, 1)
    assert bus.exchange(COUNT, 0, 1000) == []
    assert bus.tick(1000) == 301_000
    assert bus.released(300_999) == []
    ((port, frame),) = bus.released(301_000)
    assert (port, parse_frame(frame)[0].working_counter) == (0, 3)
    assert bus.released(301_000) == []
    assert bus.tick(301_000) == MS
    assert counters(bus) == [(0, 3)]


@pytest.mark.parametrize("frame", [b"", bytes(60), COUNT + bytes(1500)])
def test_what_is_no_ethercat_frame_is_ignored(frame: bytes) -> None:
    bus, _ = make()
    assert bus.exchange(frame, 0, 0) == []


def test_other_ethercat_types_pass_unprocessed() -> None:
    bus, _ = make()
    frame = bytearray(COUNT)
    frame[15] = 0x40
    ((_, out),) = bus.exchange(bytes(frame), 0, 0)
    assert out[14:] == frame[14:]


def test_impossible_segments_and_cuts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one slave"):
        Segment([], None)
    bus, _ = make(2)
    with pytest.raises(ValueError, match="2 slaves, take 0 to 2"):
        bus.cut(3)


FRAMES = 10_000


@pytest.mark.parametrize(
    "make",
    [pytest.param(lambda: Segment([Echo] * 3, None, ring=True), id="echo"),
     pytest.param(lambda: make_segment(6, ring=True), id="drives")],
)  # fmt: skip
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
