"""The connection: each trap of pyads is one that the link does not step into; servers may lack services."""

import ctypes
import gc
import time
from collections.abc import Iterator
from queue import Queue

import numpy as np
import pyads
import pyads.pyads_ex
import pytest

from drivers.ads._errors import AdsConnectionError, AdsError, AdsReplyError, AdsSymbolError
from drivers.ads.axes.setpoints import Buffer, encode
from drivers.ads.driver import AdsDriver
from drivers.ads.link.link import VALUE_BY_HANDLE, Link
from drivers.driver import DriverClosedError, DriverConfigError
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc
from tests.lab.ads.poor_server import SUMS, TYPES, VERSION, impoverish


@pytest.fixture
def link(own_plc: RunningPlc) -> Iterator[Link]:
    made = Link(config(own_plc.address, timeout_ms=100.0).target)
    made.open()
    yield made
    made.close()


def number(link: Link, name: str) -> tuple[int, int, int]:
    return VALUE_BY_HANDLE, link.handle(name), 4


def test_a_closed_link_is_an_error_not_none(link: Link) -> None:
    link.close()
    link.close()
    for call in (link.state, link.device_info, link.local_net_id, lambda: link.handle("MAIN.nDint")):
        with pytest.raises(DriverClosedError):
            call()


def test_values_are_bytes_and_their_length_is_checked(link: Link) -> None:
    group, handle, _ = number(link, "MAIN.nDint")
    assert int.from_bytes(bytes(link.read(group, handle, 4)), "little") == 100_000
    with pytest.raises(AdsReplyError, match="expected 9 bytes, 4 were read"):
        link.read(group, handle, 9)
    link.write(group, handle, (77).to_bytes(4, "little"))
    assert bytes(link.read(group, handle, 4)) == bytes([77, 0, 0, 0])


def test_long_and_strange_names(link: Link) -> None:
    for name in ("x" * 2000, "MAIN.Größe", ""):
        with pytest.raises(AdsSymbolError):
            link.handle(name)
    with pytest.raises(AdsSymbolError, match="no name of a PLC variable"):
        link.handle("MAIN.中")


def test_a_silent_server_breaks_the_link_and_a_new_one_works(own_plc: RunningPlc, link: Link) -> None:
    own_plc.do(lambda p: setattr(p.line, "silent_until_ns", time.monotonic_ns() + 10**12))
    with pytest.raises(AdsConnectionError, match="no answer in time"):
        link.state()
    assert link.broken
    own_plc.do(lambda p: setattr(p.line, "silent_until_ns", 0))
    link.close()
    assert link.open()[0] == 5
    assert not link.broken


@pytest.mark.parametrize("sums", [True, False])
def test_sum_reads_and_writes(own_plc: RunningPlc, link: Link, sums: bool) -> None:
    if not sums:
        own_plc.do(lambda p: impoverish(p, SUMS))
    places = [number(link, "MAIN.nDint"), number(link, "MAIN.nUdint")]
    link.sum_write([(*place[:2], bytes([k + 1, 0, 0, 0])) for k, place in enumerate(places)], "test")
    assert [bytes(part)[0] for part in link.sum_read(places, "test")] == [1, 2]
    assert len(link.sum_read(places * 500, "test")) == 1000, "long ones are split"
    assert link.sum_commands is sums
    with pytest.raises(AdsError, match="ADS error 18"):
        link.sum_read([*places, (VALUE_BY_HANDLE, 0xABCDEF, 4)], "test")
    assert link.sum_commands is sums, "one part that fails does not take the command away"


def test_callbacks_outlive_their_notifications(own_plc: RunningPlc) -> None:
    """Closing with samples in flight, many times: the library must find its callbacks."""
    queue: Queue[tuple[int, bytes]] = Queue()
    link = Link(config(own_plc.address).target)
    for _ in range(15):
        link.open()
        for _ in range(3):
            link.notify(*number(link, "MAIN.nCycles"), queue, 1.0)
        assert len(queue.get(timeout=5.0)[1]) == 4
        kept = [ctypes.addressof(callback) for callback in pyads.pyads_ex.callback_store.values()]
        link.close()
        gc.collect()
        assert {ctypes.addressof(callback) for callback in Link._callbacks.values()} >= set(kept)
    assert not link._notifications


def test_notifications_that_nobody_takes_are_dropped(link: Link) -> None:
    queue: Queue[tuple[int, bytes]] = Queue(3)
    link.notify(*number(link, "MAIN.nCycles"), queue, 1.0)
    first = [int.from_bytes(queue.get(timeout=5.0)[1], "little") for _ in range(3)]
    until = time.monotonic() + 10.0
    while not queue.full():
        assert time.monotonic() < until
    kept = list(queue.queue)
    before = link.requests
    for _ in range(50):
        link.state()
    assert link.requests == before + 50
    assert list(queue.queue) == kept
    assert first == sorted(first)
    link.end_notifications()
    assert not link._notifications


def test_handles_are_given_back_together(own_plc: RunningPlc, link: Link) -> None:
    handles = [link.handle("MAIN.nDint") for _ in range(300)]
    assert own_plc.do(lambda p: p.services.handles.count) == 300
    before = link.requests
    link.release(*handles)
    assert link.requests == before + 2
    assert own_plc.do(lambda p: p.services.handles.count) == 0
    link.release(*handles)  # they are gone: no error


@pytest.mark.parametrize(
    ("lacking", "elements", "compared"),
    [
        (SUMS, True, "data types"),
        (TYPES | {0xF009}, True, "members"),
        (TYPES, False, "members"),
        (SUMS | TYPES | VERSION | {0xF009, 0xF00B, 0xF00C, 0xF00F}, True, "members"),
    ],
)
def test_the_driver_does_with_what_a_server_has(
    own_plc: RunningPlc, lacking: frozenset[int], elements: bool, compared: str
) -> None:
    own_plc.do(lambda p: impoverish(p, lacking, elements))
    with AdsDriver(config(own_plc.address)) as driver:
        frames = [driver.read(5.0) for _ in range(300)]
        found = driver._attached.program
        assert found.by_address is not elements
        assert driver.report()["sum_commands"] is (0xF080 not in lacking)
    assert [frame.seq for frame in frames] == list(range(300))
    assert found.matched.compared == compared


def test_set_positions_do_not_go_to_an_address_that_nobody_watches(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: impoverish(p, TYPES | VERSION, elements=False))
    driver = AdsDriver(config(own_plc.address))
    with pytest.raises(DriverConfigError, match=r'neither symbols for elements .* set mode = "none"'):
        driver.open()
    with AdsDriver(config(own_plc.address, mode="none")) as driver:
        driver.read(5.0)


def test_set_positions_by_address_notice_an_online_change(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: impoverish(p, TYPES, elements=False))
    with AdsDriver(config(own_plc.address)) as driver:
        program = driver._attached.program
        assert program.by_address
        start = program.info.start
        setpoints = 1, encode(Buffer(1, 10**6, np.zeros((1, 6))), start, program.sizes)
        program.write(start, 1, False, setpoints)
        own_plc.do(lambda p: p.online_change([], keep_handles=True))
        before = own_plc.do(lambda p: int(p.services.memory.array("GVL_Theta.stCommand")["nHeartbeat"]))
        with pytest.raises(AdsError, match="an online change"):
            program.write(start, before + 1, False, setpoints)
        assert own_plc.do(lambda p: int(p.services.memory.array("GVL_Theta.stCommand")["nHeartbeat"])) == before
