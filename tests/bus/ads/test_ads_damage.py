"""A peer that damages what the PLC says: no frame is anything but what the PLC wrote, and it goes on by itself."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from drivers.ads._errors import AdsConnectionError, AdsReplyError
from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.driver import AdsDriver
from drivers.driver import DriverTimeoutError
from drivers.frame import JointFrame
from drivers.timing import now_ns
from sim_backend.plc._plc import SimulatedPlc
from tests.lab.ads.configs import config
from tests.lab.ads.damaging_proxy import KINDS, DamagingProxy
from tests.lab.ads.plcs import RunningPlc, new_address, running_plc
from tests.lab.ads.reading import more, read_until, seqs

DAMAGED = max(int(os.environ.get("THETAD_FUZZ", "10000")) // 500, 20)  # packets of each kind
#: Of the packets; most kinds end a connection, and a new one takes a hundred packets.
SHARES = {"value": 0.2, "repeated": 0.2, "notifications": 0.2}
SHARE = 0.04
MAX_S = 60.0 + DAMAGED
SETTINGS: dict[str, Any] = {"mode": "none", "timeout_ms": 400.0, "reconnect_max_s": 0.2}


class Witness:
    """A PLC whose samples are kept as they were written: torque, which is never the same twice, to the whole sample."""

    def __init__(self, plc: RunningPlc) -> None:
        self.plc = plc
        self._scaling = AxisScaling(config().axis)
        self._written: dict[tuple[float, ...], tuple[int, np.ndarray]] = {}
        plc.do(self._watch)

    def _watch(self, plc: SimulatedPlc) -> None:
        ring = plc.program._ring
        append = ring.append

        def watched(counter: int, time_100ns: int, dc_ns: int, measured: Any, setpoint: Any, status: Any) -> bool:
            torque = np.asarray(measured.torque, dtype=np.float32).astype(np.float64) * self._scaling.torque
            position = np.asarray(measured.position) * self._scaling.position - self._scaling.position_zero
            self._written[tuple(torque.round(9).tolist())] = counter, position.copy()
            return append(counter, time_100ns, dc_ns, measured, setpoint, status)

        ring.append = watched  # type: ignore[method-assign]

    def counter(self, frame: JointFrame) -> int:
        """The cycle that a frame is of; fails if the PLC wrote no such sample."""
        key = tuple(frame.tau.round(9).tolist())
        found = self.plc.do(lambda _: self._written.get(key))
        assert found is not None, (frame.seq, frame.tau)
        np.testing.assert_allclose(frame.q, found[1], rtol=1e-12, atol=1e-15)
        return int(found[0])


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with running_plc(heartbeat_ms=1000, torque_noise=0.01) as plc:
        yield Witness(plc)


def read_damaged(driver: AdsDriver, enough: Callable[[], bool], said: set[str]) -> list[JointFrame]:
    frames = []
    until = time.monotonic() + MAX_S
    while not enough():
        assert time.monotonic() < until, driver.report()
        try:
            frames.append(driver.read(0.1))
        except DriverTimeoutError as error:
            said.add(str(error))
    return frames


@pytest.mark.parametrize(
    ("kind", "transfer"),
    [*((kind, "poll") for kind in KINDS), *((kind, "notification") for kind in ("value", "notifications"))],
)
def test_no_value_of_a_damaged_packet_is_a_measurement(witness: Witness, kind: str, transfer: str) -> None:
    address = new_address()
    said: set[str] = set()
    with (
        DamagingProxy(address, witness.plc.address, seed=1) as proxy,
        AdsDriver(config(address, transfer=transfer, **SETTINGS)) as driver,
    ):
        frames = more(driver, 50)
        proxy.kind, proxy.share = kind, SHARES.get(kind, SHARE)
        wanted = DAMAGED if kind in SHARES else DAMAGED // 4
        frames += read_damaged(driver, lambda: proxy.damaged >= wanted, said)
        proxy.kind = ""
        frames += read_until(driver, lambda: driver.report()["state"] == "running")
        after = more(driver, 200)
        report = driver.report()
    assert np.all(np.diff([witness.counter(frame) for frame in (*frames, *after)]) > 0)
    assert np.all(seqs([*frames, *after]) > 0)
    assert report["state"] == "running"
    assert not [text for text in said if "\n" in text]
    if kind in ("torn", "ended"):
        assert report["reconnects"] > 0


def test_a_notified_block_of_the_far_future_holds_nobody_up(witness: Witness) -> None:
    with AdsDriver(config(witness.plc.address, transfer="notification", **SETTINGS)) as driver:
        more(driver, 50)
        stream = driver._stream
        block = bytearray(stream._decoder.block_bytes)
        block[:8] = block[-8:] = (1 << 40).to_bytes(8, "little")
        stream.notified.put((now_ns(), bytes(block)))
        before = driver.report()["blocks_notified"]
        read_until(driver, lambda: driver.report()["blocks_notified"] > before + 5)


@pytest.mark.parametrize(("samples", "blocks"), [(1000, 1 << 40), (1 << 60, 100), (1000, 0), (0, 100)])
def test_a_head_whose_counts_contradict_each_other_is_refused(witness: Witness, samples: int, blocks: int) -> None:
    with AdsDriver(config(witness.plc.address, **SETTINGS)) as driver:
        program = driver._attached.program
        head = program._head(nSamples=samples, nBlocks=blocks)
        with pytest.raises(AdsReplyError, match=rf"stHead is damaged: {samples} samples are not {blocks} blocks of 10"):
            program._parse_head(head)


def test_a_start_with_a_peer_that_talks_at_random_says_so(witness: Witness) -> None:
    address = new_address()
    with DamagingProxy(address, witness.plc.address, seed=1) as proxy:
        proxy.kind, proxy.share = "random", 1.0
        for _ in range(5):
            driver = AdsDriver(config(address, **SETTINGS))
            with pytest.raises(AdsConnectionError, match=r"^ADS [^\n]*$"):
                driver.open()
            driver.close()
        assert proxy.damaged >= 5
