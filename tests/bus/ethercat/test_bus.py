"""The sharp edges of pysoem, one by one: what `Bus` makes of them.  pysoem and the network interfaces are real."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pysoem
import pytest

from drivers.driver import DriverClosedError, DriverConfigError, DriverConnectionError, DriverError
from drivers.ethercat.bus._sockets import FrameSockets
from drivers.ethercat.bus.al_status import OP, PREOP, SAFEOP
from drivers.ethercat.bus.bus import IO_MAP_BYTES, Bus
from drivers.ethercat.errors import SdoError, SdoTimeoutError, StreamingError
from tests.lab.ethercat.namespace import ROOT
from tests.lab.ethercat.network import SegmentProcess, Segments, await_link, ip


@pytest.fixture(scope="module")
def drives(segment: Segments) -> Iterator[SegmentProcess]:
    with segment("generic_servo", "generic_servo") as process:
        yield process


@pytest.fixture
def bus(drives: SegmentProcess) -> Iterator[Bus]:
    bus = Bus("m0")
    bus.open()
    try:
        for _ in range(3):  # on a busy machine SOEM may miss a reply
            bus.scan()
            if not bus.wait_state(PREOP, range(2), time.monotonic_ns() + 2_000_000_000):
                break
        yield bus
    finally:
        bus.close()


def start(bus: Bus) -> dict[int, tuple[int, int]]:
    """Map whatever the drives map, and run to OP; return the lengths."""
    lengths = {}
    bus.map_process_data({})
    assert not bus.wait_state(SAFEOP, range(2), time.monotonic_ns() + 2_000_000_000)
    for position in range(2):
        out, in_ = len(bus._slaves[position].output), len(bus.input(position))
        lengths[position] = (out, in_)
        bus.set_output(position, bytes(out))
    bus.streaming = True
    exchange(bus)
    bus.request_all(OP)
    for _ in range(200):
        exchange(bus)
        if all(status is not None and status.state == OP for status in bus.al_statuses()):
            return lengths
    pytest.fail(f"not in OP: {bus.al_statuses()}")


def exchange(bus: Bus, wait_ms: float = 20.0) -> int:
    bus.send()
    return bus.receive(time.monotonic_ns() + round(wait_ms * 1e6))


def open_files() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.mark.parametrize("name", ["", "a-name-of-16-byt", "ä" * 8, "a\0b", "a/b", "a b"])
def test_a_name_that_no_interface_can_have_does_not_reach_pysoem(name: str) -> None:
    with pytest.raises(DriverConfigError, match="not a network interface name"):
        Bus(name).open()


def test_a_missing_interface_is_said_and_nothing_stays_open(
    network: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()
    with pytest.raises(DriverConnectionError, match=r"no network interface 'm7'; there is: .*m0"):
        Bus("m7").open()
    with pytest.raises(DriverConnectionError, match="no network interface 'm7'"):
        Bus("m0", "m7").open()  # SOEM itself does not look whether the first of two opened
    monkeypatch.setattr("drivers.ethercat.bus.master.check_link", lambda name: None)  # so that pysoem itself fails
    with pytest.raises(DriverConnectionError):
        Bus("m7").open()
    assert open_files() == before


def test_an_interface_that_is_down_or_without_link_is_said(network: tuple[str, str]) -> None:
    ip("link", "set", "m1", "down")
    with pytest.raises(DriverConnectionError, match="ip link set m1 up"):
        Bus("m1").open()
    ip("link", "set", "m1", "up")
    ip("link", "set", "s1", "down")
    await_link("m1", False)
    with pytest.raises(DriverConnectionError, match="no link"):
        Bus("m1").open()
    ip("link", "set", "s1", "up")


@pytest.mark.parametrize("capabilities", ["-all", "-all,+net_raw"])
def test_no_permission_says_what_to_do(network: tuple[str, str], capabilities: str) -> None:
    # SOEM also sets flags of the interface: cap_net_raw alone does not do.
    code = "from drivers.ethercat.bus.bus import Bus; Bus('m0').open()"
    done = subprocess.run(
        ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}", sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "no permission for raw Ethernet on m0" in last
    assert "setcap cap_net_raw,cap_net_admin+ep" in last
    assert sys.executable in last


def test_closing_what_was_never_open_or_is_closed_touches_no_file(network: tuple[str, str]) -> None:
    # pysoem's own close would close file 0, or the number of its socket, whoever has it now.
    Bus("m0").close()
    assert os.fstat(0)
    bus = Bus("m0")
    bus.open()
    bus.close()
    reader, writer = socket.socketpair()
    bus.close()
    writer.send(b"x")
    assert reader.recv(1) == b"x"
    reader.close()
    writer.close()


def test_a_closed_bus_refuses_every_call(bus: Bus) -> None:
    start(bus)
    bus.close()
    calls: list[Callable[[], Any]] = [
        bus.scan, bus.send, bus.drain, bus.configure_dc, bus.al_statuses,
        lambda: bus.receive(0), lambda: bus.request_all(1), lambda: bus.expected_wkc, lambda: bus.dc_time_ns,
        lambda: bus.al_status(0), lambda: bus.read_register(0, 0, 1), lambda: bus.write_register(0, 0x10, b"\0\0"),
        lambda: bus.find_again(0), lambda: bus.sdo_read(0, 0x1000, 0), lambda: bus.sdo_write(0, 0x6060, 0, b"\x08"),
        lambda: bus.poll_mailbox(0), lambda: bus.set_sync0(0, 0, 0), lambda: bus.map_process_data({}),
        lambda: bus.set_output(0, b""), lambda: bus.input(0), lambda: bus.wkc_weight(0),
        lambda: bus.request_state(0, 1), lambda: bus.registers(0, 0, 1), lambda: bus.object_indices(0),
        lambda: bus.describe(0, 0x1000),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DriverClosedError):
            call()


def test_two_masters_on_one_interface_are_refused(network: tuple[str, str]) -> None:
    first = Bus("m0")
    first.open()
    with pytest.raises(DriverConnectionError, match="another EtherCAT master"):
        Bus("m0").open()
    first.close()
    second = Bus("m0")
    second.open()
    second.close()


def test_an_output_of_another_length_does_not_reach_the_next_slave(bus: Bus) -> None:
    lengths = start(bus)
    mark = bytes(range(1, lengths[1][0] + 1))
    bus.set_output(1, mark)
    for size in (0, lengths[0][0] - 1, lengths[0][0] + 1, 4000):
        with pytest.raises(DriverError, match=f"which has {lengths[0][0]}"):
            bus.set_output(0, bytes(size))
    assert bytes(bus._slaves[1].output) == mark


def test_other_lengths_than_configured_are_refused(bus: Bus) -> None:
    with pytest.raises(DriverConfigError, match=r"position 1 has .* bytes out"):
        bus.map_process_data({1: (1, 2)})


def test_more_than_soem_s_image_is_refused_before_the_mapping(bus: Bus) -> None:
    with pytest.raises(DriverConfigError, match="do not fit"):
        bus.map_process_data({0: (IO_MAP_BYTES, 1)})
    assert bus.al_status(0).state == PREOP  # type: ignore[union-attr]


def test_no_answer_is_minus_one_and_takes_the_time_that_was_asked(bus: Bus, drives: SegmentProcess) -> None:
    """pysoem's own time-outs round up to kernel ticks: one of 1 ms takes 5 to 8."""
    start(bus)
    for _ in range(20):
        drives.tell("drop_frames", 1)
        began = time.monotonic_ns()
        assert exchange(bus, 1.0) == -1
        assert time.monotonic_ns() - began >= 1_000_000
    assert exchange(bus) == 6


def test_an_answer_that_comes_late_is_not_taken_for_the_next(bus: Bus, drives: SegmentProcess) -> None:
    start(bus)
    drives.tell("delay_replies", 5_000_000, 1)
    assert exchange(bus, 1.0) == -1
    time.sleep(0.01)  # now it waits in the socket
    assert exchange(bus) == 6
    assert exchange(bus) == 6


def test_frames_from_before_the_filter_are_thrown_away(
    network: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter keeps from the socket what comes later alone."""
    longer_than_it_is = bytes.fromhex("ffffffffffff 000000000001 88a4 ff17").ljust(60, b"\0")
    real = FrameSockets.admit

    def admit(self: FrameSockets, image_bytes: int | None = None) -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as other:
            other.bind(("s0", 0))
            other.send(longer_than_it_is)
            assert self.wait(time.monotonic_ns() + 5_000_000_000)
            real(self, image_bytes)
            other.send(longer_than_it_is)

    monkeypatch.setattr(FrameSockets, "admit", admit)
    bus = Bus(network[0])
    bus.open()
    try:
        assert bus._sockets is not None
        assert bus.frames_filtered
        assert not bus._sockets.wait(time.monotonic_ns() + 50_000_000)
        assert bus.stale_frames == 1
    finally:
        bus.close()


def leave_errors(bus: Bus) -> None:
    """A file read from a drive without files: pysoem raises one error and leaves more in its list."""
    with pytest.raises(pysoem.MailboxError):
        bus._slaves[0].foe_read("file", 0, 100, 50_000)


def test_answers_held_up_for_long_do_not_become_those_of_later_frames(bus: Bus, drives: SegmentProcess) -> None:
    """SOEM tells 16 frames apart: without care every answer after a long stall is an old one, for good."""
    bus.configure_dc()
    start(bus)
    drives.tell("delay_replies", 100_000_000, 16)
    for _ in range(16):
        assert exchange(bus, 1.0) == -1
    time.sleep(0.2)
    first = drives.tell("dc_time_ns")
    for _ in range(5):
        assert exchange(bus) == 6
        assert bus.dc_time_ns >= first
    assert bus.stale_frames >= 16


def test_an_error_of_one_slave_does_not_surface_at_another(bus: Bus) -> None:
    """pysoem has one list of errors for all slaves."""
    leave_errors(bus)
    with pytest.raises(AssertionError):  # pysoem itself, at a slave that did nothing wrong
        bus._slaves[1].sdo_read(0x1000, 0)
    bus.poll_mailbox(0)  # the drive's last answer
    leave_errors(bus)
    assert len(bus.sdo_read(1, 0x1000, 0)) == 4
    assert bus.mailbox_errors > 0


def test_an_abort_has_code_and_text(bus: Bus) -> None:
    with pytest.raises(
        SdoError, match=r"4711:00 of the slave at position 1: refused with 0x06020000: .*not exist"
    ) as e:
        bus.sdo_read(1, 0x4711, 0)
    assert e.value.abort == 0x06020000
    with pytest.raises(SdoError, match="writing 1000:00"):
        bus.sdo_write(0, 0x1000, 0, bytes(4))
    with pytest.raises(DriverError, match="no slave at position"):
        bus.al_status(2)


def test_an_sdo_without_answer_ends_in_time(bus: Bus, drives: SegmentProcess) -> None:
    drives.tell("power_off", 1)
    with pytest.raises(SdoTimeoutError):
        bus.sdo_read(1, 0x1000, 0, timeout_ms=50.0)
    drives.tell("power_on", 1)


def test_sdos_are_refused_while_process_data_runs(bus: Bus) -> None:
    start(bus)
    with pytest.raises(StreamingError, match="while process data"):
        bus.sdo_read(0, 0x1000, 0)
    with pytest.raises(StreamingError):
        bus.sdo_write(0, 0x6060, 0, b"\x08")
    with pytest.raises(StreamingError):
        bus.object_indices(0)
    bus.sdo_write(0, 0x6060, 0, b"\x08", forced=True)


def test_a_forced_sdo_leaves_soem_s_time_outs_as_they_were(bus: Bus, drives: SegmentProcess) -> None:
    start(bus)
    before = pysoem.settings.timeouts.tx_mailbox
    drives.tell("mute", 1, True)
    with pytest.raises(SdoTimeoutError):
        bus.sdo_write(1, 0x6060, 0, b"\x08", 5.0, forced=True)
    drives.tell("mute", 1, False)
    assert pysoem.settings.timeouts.tx_mailbox == before


def test_a_scan_that_fails_leaves_no_slaves_of_the_one_before(bus: Bus, drives: SegmentProcess) -> None:
    drives.tell("cut", 0)
    with pytest.raises(DriverConnectionError, match="no slave answers"):
        bus.scan()
    assert not bus.scanned
    with pytest.raises(DriverError, match="no slave at position 0"):
        bus.al_status(0)
    drives.tell("mend")


def test_some_lost_answers_do_not_fail_a_scan(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    read, lost = bus.read_register, [0, 0]

    def lossy(*arguments: int) -> bytes | None:
        if lost:
            lost.pop()
            return None
        return read(*arguments)

    monkeypatch.setattr(bus, "read_register", lossy)
    assert bus._identity(0, bus._slaves[0]).product_code == 0x1001
    assert not lost


def test_emergencies_of_every_slave_arrive_by_polling(bus: Bus, drives: SegmentProcess) -> None:
    for position in (1, 0):
        drives.tell("emergency", position, 0x8611 + position)
    for _ in range(3):
        for position in range(2):
            bus.poll_mailbox(position)
    assert {(message.position, message.code) for message in bus.emergencies} == {(0, 0x8611), (1, 0x8612)}


def test_others_may_run_while_it_waits(bus: Bus, drives: SegmentProcess) -> None:
    """The interpreter's lock is free during an exchange: a thread counts on while there is no answer."""
    start(bus)
    ticks: list[float] = []
    running = threading.Event()
    running.set()

    def count() -> None:
        while running.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        drives.tell("drop_frames", 1)
        began = time.monotonic()
        assert exchange(bus, 100.0) == -1
        ended = time.monotonic()
    finally:
        running.clear()
        thread.join()
    assert sum(began < tick < ended for tick in ticks) > 10
