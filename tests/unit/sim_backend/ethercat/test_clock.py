"""Local clocks, receive times, drift compensation and the SYNC0 grid, by the steps that a master takes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_backend.ethercat import registers as r
from sim_backend.ethercat import wire
from sim_backend.ethercat._clock import ClockSettings, local_time, rebase
from sim_backend.ethercat._segment import Segment
from tests.lab.ethercat.frames import build_frame, parse_frame, physical
from tests.lab.ethercat.simple_device import Echo

HOP = 650
CLOCKS = [ClockSettings(35.0, 10**9), ClockSettings(-120.0), ClockSettings(80.0, 2**40), ClockSettings(-3.0, 77)]


def ask(bus: Segment, command: int, device: int, register: int, data: bytes, now: int) -> bytes:
    ((_, answer),) = bus.exchange(build_frame([physical(command, device, register, data)]), 0, now)
    return parse_frame(answer)[0].data


def number(bus: Segment, slave: int, register: int, count: int, now: int) -> int:
    return int.from_bytes(ask(bus, wire.APRD, slave, register, bytes(count), now), "little")


def set_number(bus: Segment, slave: int, register: int, count: int, value: int, now: int) -> None:
    ask(bus, wire.APWR, slave, register, (value % 2 ** (8 * count)).to_bytes(count, "little"), now)


def configured(clocks: list[ClockSettings], now: int) -> Segment:
    """Segment whose delays and offsets a master has measured and set; the system time is 12 s at `now`."""
    bus = Segment([Echo] * len(clocks), None, hop_ns=HOP, clocks=clocks, now_ns=now - 10**7)
    ask(bus, wire.BWR, 0, r.DC_RECEIVE_TIME_PORT[0], bytes(4), now)
    loops: list[int] = []
    delay = 0
    for slave in range(len(clocks)):
        first, second = (number(bus, slave, r.DC_RECEIVE_TIME_PORT[port], 4, now) for port in range(2))
        loops.append((second - first) % 2**32 if slave + 1 < len(clocks) else 0)
        unit = number(bus, slave, r.DC_RECEIVE_TIME_UNIT, 8, now)
        delay += (loops[slave - 1] - loops[slave]) // 2 if slave else 0
        set_number(bus, slave, r.DC_SYSTEM_TIME_DELAY, 4, delay, now)
        set_number(bus, slave, r.DC_SYSTEM_TIME_OFFSET, 8, 12 * 10**9 + delay - unit, now)
        set_number(bus, slave, 0x10, 2, 0x1001 + slave, now)
    return bus


def spread(bus: Segment, now: int) -> int:
    """Largest difference of the slaves' system times to the first one's, at one instant."""
    times = [bus.clocks.system_ns(slave, now) for slave in range(len(bus))]
    return max(abs(time - times[0]) for time in times)


def follow(bus: Segment, now: int, cycles: int) -> int:
    for _ in range(cycles):
        now += 1_000_000
        ask(bus, wire.FRMW, 0x1001, r.DC_SYSTEM_TIME, bytes(8), now)
    return now


@given(st.integers(-200, 200), st.lists(st.integers(1, 10**8), min_size=1, max_size=40))
def test_local_time_is_exact_however_often_it_is_rebased(ppm: int, gaps: list[int]) -> None:
    clocks, now = Segment([Echo], None, clocks=[ClockSettings(float(ppm), 5)], now_ns=1000).clocks, 1000
    for gap in gaps:
        now += gap
        rebase(clocks.times, clocks.rates, 0, now)
    exact = 5 + (now - 1000) * (1 + Fraction(ppm, 10**6))
    assert abs(local_time(clocks.times, clocks.rates, 0, now) - exact) <= 1 + Fraction(1, 1000)


def test_receive_times_tell_the_delays() -> None:
    bus = configured(CLOCKS, 10**12)
    delays = [number(bus, slave, r.DC_SYSTEM_TIME_DELAY, 4, 10**12) for slave in range(4)]
    assert delays == pytest.approx([0, HOP, 2 * HOP, 3 * HOP], abs=2)
    shown = [number(bus, slave, r.DC_SYSTEM_TIME, 8, 10**12) for slave in range(4)]
    assert shown == pytest.approx([12 * 10**9] * 4, abs=2)  # all answer what the first showed as the frame passed it


def test_clocks_run_apart_and_compensation_brings_them_together() -> None:
    now = 10**12
    bus = configured(CLOCKS, now)
    assert spread(bus, now) <= 3
    assert spread(bus, now + 10**9) > 150_000  # 155 ppm apart for a second
    now = follow(bus, now, 1500)
    assert spread(bus, now) <= 5
    for slave in range(1, 4):
        assert number(bus, slave, r.DC_SYSTEM_TIME_DIFFERENCE, 4, now) & 0x7FFFFFFF <= 5
    assert spread(bus, now + 10**8) < 1000  # the rates have been learnt: 0.01 ppm left


def test_compensation_recovers_from_a_step_without_a_jump() -> None:
    now = 10**12
    bus = configured(CLOCKS, now)
    now = follow(bus, now, 1500)
    bus.step_clock(2, 200_000)
    before = bus.clocks.system_ns(2, now)
    now = follow(bus, now, 1)
    passed = bus.clocks.system_ns(2, now) - before
    assert passed == pytest.approx(1_000_000, abs=1500)  # slewed by a thousandth at most, and its drift
    assert number(bus, 2, r.DC_SYSTEM_TIME_DIFFERENCE, 4, now) >> 31 == 0  # ahead of the received time
    now = follow(bus, now, 2000)
    assert spread(bus, now) <= 5


def test_a_reset_of_the_control_forgets_the_rate() -> None:
    now = follow(bus := configured(CLOCKS, 10**12), 10**12, 1500)
    bus.step_clock(1, 5000)
    now = follow(bus, now, 1)
    assert number(bus, 1, r.DC_SYSTEM_TIME_DIFFERENCE, 4, now) > 0
    set_number(bus, 1, r.DC_SPEED_COUNTER_START, 2, 0x1000, now)
    assert number(bus, 1, r.DC_SYSTEM_TIME_DIFFERENCE, 4, now) == 0
    passed = bus.clocks.system_ns(1, now + 10**9) - bus.clocks.system_ns(1, now)
    assert passed == pytest.approx(10**9 - 120_000, abs=2)


def test_a_slave_without_clock_ignores_the_unit() -> None:
    bus = Segment([Echo, Echo], None, hop_ns=HOP, now_ns=0)
    bus.memory[1, r.FEATURES] = 0
    ask(bus, wire.BWR, 0, r.DC_RECEIVE_TIME_PORT[0], bytes(4), 10**6)
    assert number(bus, 0, r.DC_RECEIVE_TIME_UNIT, 8, 10**6) == 10**6
    assert number(bus, 1, r.DC_RECEIVE_TIME_UNIT, 8, 10**6) == 0
    assert number(bus, 1, r.DC_SYSTEM_TIME, 8, 10**6) == 0


@given(st.integers(-300, 300), st.integers(50_000, 10_000_000), st.integers(10**9, 2**62), st.integers(0, 10**9))
def test_sync0_comes_on_its_grid(ppm: int, cycle: int, offset: int, lead: int) -> None:
    now = 10**12
    bus = Segment([Echo], None, clocks=[ClockSettings(float(ppm))], now_ns=now)
    set_number(bus, 0, r.DC_SYSTEM_TIME_OFFSET, 8, offset, now)
    start = bus.clocks.system_ns(0, now) + lead - 10**8
    set_number(bus, 0, r.DC_SYNC0_START, 8, start, now)
    set_number(bus, 0, r.DC_SYNC0_CYCLE, 4, cycle, now)
    set_number(bus, 0, r.DC_ACTIVATION, 1, 3, now)
    assert bus.grid.reference == 0
    last = now
    for _ in range(20):
        due = bus.grid.due_ns
        late = (bus.clocks.system_ns(0, due) - start + cycle // 2) % cycle - cycle // 2
        assert abs(late) <= 1
        assert last < due <= last + cycle / (1 - 3e-4) + 1
        last = due
        bus.grid.advance()


@pytest.mark.parametrize("start", [100_000_300, 2**62 + 300 - 2**62 % 250_000])
def test_the_grid_reaches_back_from_the_start_time(start: int) -> None:
    """So that the arm does not stand still until one slave's SYNC0 begins."""
    bus = Segment([Echo], None, now_ns=0)
    set_number(bus, 0, r.DC_SYNC0_START, 8, start, 10)
    set_number(bus, 0, r.DC_SYNC0_CYCLE, 4, 250_000, 10)
    assert bus.grid.reference is None
    set_number(bus, 0, r.DC_ACTIVATION, 1, 3, 10)
    assert (bus.grid.due_ns, bus.grid.period_ns) == (300, 250_000)
    set_number(bus, 0, r.DC_ACTIVATION, 1, 0, 20)
    assert (bus.grid.reference, bus.grid.due_ns, bus.grid.period_ns) == (None, 1_000_020, 1_000_000)
