"""Blocks decoded field by field to joint-side SI units, each of a ring once and in order, or counted as lost."""

import ctypes
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads._checksum import checksum as compiled_checksum
from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.config import AxisTable
from drivers.ads.layout import CHANNEL_BITS, Sizes, checksum, structure
from drivers.ads.ring._ring import BlockState, RingReader
from drivers.ads.ring.decode import Decoder
from drivers.ads.ring.stream import SampleStream

SIZES = Sizes(axes=3, block_samples=4)
ALL = sum(1 << bit for bit in CHANNEL_BITS.values())


def scaling(*tables: dict[str, Any]) -> AxisScaling:
    return AxisScaling([AxisTable.model_validate({"joint": f"j{k}"} | table) for k, table in enumerate(tables)])


def plain_decoder(channels: int = ALL) -> Decoder:
    return Decoder(SIZES, channels, [0, 1, 2], scaling({}, {}, {}))


def block(number: int = 5) -> Any:
    """A block with values from sample, axis and field."""
    kind = structure("ST_ThetaBlock", SIZES)
    raw: Any = kind(nBlock=number, nBlockEnd=number)
    for i, sample in enumerate(raw.aSample):
        sample.nCounter = 4 * number + i
        sample.nTime = 133_000_000_000_000_000 + 10_000 * i
        sample.nDcTime = 700_000_000_000_000_001 + 1_000_000 * i
        for k, axis in enumerate(sample.aAxis):
            base = 100.0 * i + 10.0 * k
            axis.fPosition, axis.fVelocity, axis.fMotorPosition, axis.fSetpoint = base, base + 1, base + 2, base + 3
            axis.fTorque, axis.fCurrent, axis.fTemperature = base + 4, base + 5, base + 6
            axis.nStatus = 0x1237_0003 + (k << 16)
        seal(sample)
    return raw


def seal(sample: Any) -> None:
    data = bytes(sample)
    a = b = 0
    for (word,) in struct.iter_unpack("<I", data[:-4]):
        a = (a + word) % 2**32
        b = (b + a) % 2**32
    sample.nChecksum = a ^ (b << 16 & 0xFFFFFFFF | b >> 16)


def test_values_by_hand() -> None:
    decoder = Decoder(
        SIZES,
        ALL,
        [2, 0],
        scaling(
            {"unit": "deg", "sign": -1, "offset_rad": 0.5, "gear_ratio": 10.0, "torque_unit": "mNm"},
            {"unit": "rev", "side": "motor", "gear_ratio": 50.0, "torque_unit": "permille", "rated_torque_nm": 2.0,
             "torque_side": "joint", "current_unit": "mA", "motor_unit": "rev"},
        ),
    )  # fmt: skip
    assert decoder.channels == ("q", "dq", "current", "tau", "q_motor", "temperature", "setpoint")
    found = decoder.decode(block())
    assert found.number == 5
    assert found.valid is None
    assert found.intact.all()
    np.testing.assert_array_equal(found.counter, [20, 21, 22, 23])
    i = 3  # sample 3, first joint from axis 2 (base 320), second from axis 0 (base 300)
    assert found.channels["q"][i] == pytest.approx([-(math.radians(320.0) - 0.5), 300.0 * 2 * math.pi / 50.0])
    assert found.channels["dq"][i] == pytest.approx([-math.radians(321.0), 301.0 * 2 * math.pi / 50.0])
    assert found.channels["setpoint"][i] == pytest.approx([-(math.radians(323.0) - 0.5), 303.0 * 2 * math.pi / 50.0])
    assert found.channels["q_motor"][i] == pytest.approx([-(322.0 - 5.0), 302.0 * 2 * math.pi])
    assert found.channels["tau"][i] == pytest.approx([-324.0e-3 * 10.0, 304.0e-3 * 2.0])
    assert found.channels["current"][i] == pytest.approx([-325.0, 0.305])
    assert found.channels["temperature"][i] == pytest.approx([326.0, 306.0])
    np.testing.assert_array_equal(found.status_word[i], [0x1239, 0x1237])
    assert found.plc_ns[1] - found.plc_ns[0] == 1_000_000
    assert found.dc_ns[0] == 700_000_000_000_000_001 + 946_684_800_000_000_000


def test_torn_samples_are_detected_at_every_byte() -> None:
    decoder = plain_decoder()
    old, new = bytes(block(5)), bytes(block(13))  # one ring of eight blocks later
    size = ctypes.sizeof(structure("ST_ThetaSample", SIZES))
    assert old[8 : 8 + size] != new[8 : 8 + size]
    differ = [at for at in range(8, 8 + size) if old[at] != new[at]]
    for cut in range(differ[0] + 1, differ[-1] + 1):
        for front, back in ((old, new), (new, old)):
            assert decoder.decode(front[:cut] + back[cut:]).intact.tolist() == [False, True, True, True]


@given(st.binary(min_size=8, max_size=400))
def test_compiled_checksum_is_that_of_the_layout(data: bytes) -> None:
    data = data[: len(data) // 4 * 4]
    assert compiled_checksum(np.frombuffer(bytearray(data), dtype=np.uint32)[:-1]) == checksum(data)


def test_invalid_axes_and_values_that_are_not_finite() -> None:
    raw = block()
    raw.aSample[1].aAxis[2].nStatus = 0x1218_0004
    raw.aSample[2].aAxis[0].fTorque = math.nan
    raw.aSample[3].aAxis[1].fTemperature = math.nan
    for sample in raw.aSample:
        seal(sample)
    found = plain_decoder().decode(raw)
    np.testing.assert_array_equal(found.valid, [[True] * 3, [True, True, False], [False, True, True], [True] * 3])


def test_samples_of_another_block_are_left_out() -> None:
    raw = block()
    raw.aSample[2].nCounter += 4 * 8  # of one ring later, and whole
    seal(raw.aSample[2])
    found = plain_decoder().decode(raw)
    assert found.intact.all()
    assert SampleStream(1_000_000, dc=False)._usable(found) == [0, 1, 3]


@given(st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=2), st.sampled_from([-1, 1]), st.floats(-2.0, 2.0))
def test_commands_are_the_inverse_of_positions(q: list[float], sign: int, offset: float) -> None:
    s = scaling(
        {"unit": "deg", "sign": sign, "offset_rad": offset}, {"unit": "rev", "side": "motor", "gear_ratio": 7.0}
    )
    positions = s.axis_position(np.array(q))
    np.testing.assert_allclose(positions * s.position - s.position_zero, q, atol=1e-12)


BLOCKS = 8


class Writer:
    """The PLC: numbers of the blocks in each place."""

    def __init__(self) -> None:
        self.first = [0] * BLOCKS
        self.last = [0] * BLOCKS
        self.complete = 0

    def begin(self) -> None:
        self.first[self.complete % BLOCKS] = self.complete

    def end(self) -> None:
        self.last[self.complete % BLOCKS] = self.complete
        self.complete += 1


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(1, 20)), min_size=1, max_size=60))
def test_no_block_twice_none_out_of_order_all_accounted_for(steps: list[tuple[int, bool, int]]) -> None:
    writer, reader = Writer(), RingReader(BLOCKS)
    taken = []
    for written, halfway, most in steps:
        for _ in range(written):
            writer.begin()
            writer.end()
        if halfway:
            writer.begin()
        for number in reader.due(writer.complete, most):
            place = reader.place(number)
            verdict = reader.classify(number, writer.first[place], writer.last[place])
            if verdict is not BlockState.COMPLETE:
                break
            reader.take(number)
            taken.append(number)
    assert taken == sorted(set(taken))
    assert len(taken) + reader.skipped == reader.next
    assert reader.next <= writer.complete
    if all(written + 2 < BLOCKS - 3 and most >= BLOCKS for written, _, most in steps):
        assert reader.skipped == 0


def test_classification_of_blocks() -> None:
    reader = RingReader(BLOCKS)
    reader.start(10)
    assert reader.classify(9, 9, 9) is BlockState.KNOWN
    assert reader.classify(10, 10, 10) is BlockState.COMPLETE
    assert reader.classify(10, 2, 2) is BlockState.NOT_YET
    assert reader.classify(10, 18, 10) is BlockState.GONE
    assert reader.classify(10, 10, 2) is BlockState.TORN
    assert reader.torn == 1


def test_overrun_is_counted_once_and_leaves_a_margin() -> None:
    reader = RingReader(BLOCKS)
    assert reader.due(0, 5) == []
    assert reader.due(100, 50) == list(range(95, 100))  # oldest is 93, two more may be written meanwhile
    assert (reader.overruns, reader.skipped) == (1, 95)
    assert reader.due(103, 50)[0] == 98
    assert (reader.overruns, reader.skipped) == (1, 98)
    reader.take(98)
    assert reader.due(200, 50)[0] == 195
    assert (reader.overruns, reader.skipped) == (2, 98 + 96)
