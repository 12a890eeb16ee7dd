"""PDO layouts: decoding, the SDOs that map them, what a drive maps; counts and SI units, against values by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.config import DeviceTable, DriveTable
from drivers.ethercat.drive.scaling import JointScaling, Ratings
from drivers.ethercat.pdo import LayoutError, mapping_difference, parse_layout, remap_writes
from tests.lab.ethercat.configs import SERVO
from tests.lab.ethercat.decoding_fuzzer import fuzz

TX = {
    "1A00": ["6041:00:16 statusword", "0000:00:4", "0000:00:4", "6064:00:32 position", "6077:00:16"],
    "1A01": ["2031:01:8 temperature u", "60FD:00:32 digital_inputs"],
}
MAPPED = [0x60410010, 4, 4, 0x60640020, 0x60770010]


@given(st.binary(min_size=14, max_size=14))
def test_values_are_where_the_entries_put_them(image: bytes) -> None:
    layout = parse_layout(TX)
    assert layout.meanings == ("statusword", "position", "temperature", "digital_inputs")
    assert layout.size == 14
    status, inputs = (int.from_bytes(image[begin:end], "little") for begin, end in ((0, 2), (10, 14)))
    assert layout.unpack(image) == (status, int.from_bytes(image[3:7], "little", signed=True), image[9], inputs)


def test_an_image_of_another_length_is_refused() -> None:
    for size in (0, 13, 15):
        with pytest.raises(LayoutError, match="14 are mapped"):
            parse_layout(TX).unpack(bytes(size))


@pytest.mark.parametrize(
    ("pdos", "says"),
    [
        ({"1A00": ["6041 statusword"]}, "is not like"),
        ({"1A00": ["6041:00:16 status"]}, "no meaning 'status'"),
        ({"1A00": ["6041:00:12 statusword"]}, "12 bits"),
        ({"1A00": ["0000:00:4", "6041:00:16 statusword"]}, "start on a byte"),
        ({"1A00": ["6041:00:16 statusword", "0000:00:4"]}, "0000:00:4"),
        ({"1A00": ["6041:00:16 statusword"], "1A01": ["6041:00:16 statusword"]}, "mapped twice"),
        ({"1A00": ["6040:00:16 controlword"]}, "not an input"),
        ({"1600": ["6041:00:16 statusword"]}, "not an output"),
        ({"1A00": []}, "no entries"),
    ],
)
def test_invalid_layouts(pdos: dict[str, list[str]], says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        parse_layout(pdos)


def test_remapping_empties_writes_and_sets_the_number() -> None:
    layout = parse_layout({"1600": ["6040:00:16 controlword", "607A:00:32 target_position"]})
    assert [(w.index, w.subindex, w.data.hex()) for w in remap_writes(layout)] == [
        (0x1C12, 0, "00"), (0x1600, 0, "00"), (0x1600, 1, "10004060"), (0x1600, 2, "20007a60"), (0x1600, 0, "02"),
        (0x1C12, 1, "0016"), (0x1C12, 0, "01"),
    ]  # fmt: skip
    assert [w.index for w in remap_writes(layout, mapping=False)] == [0x1C12, 0x1C12, 0x1C12]
    writes = remap_writes(parse_layout(TX))
    assert [w.data.hex() for w in writes if w.index == 0x1C13] == ["00", "001a", "011a", "02"]


@pytest.mark.parametrize(
    ("assigned", "mapped", "says"),
    [
        ([0x1A00], {}, "1C13 assigns 1A00, configured is 1A00, 1A01"),
        ([0x1A00, 0x1A01], {0x1A00: [0x60410010]}, "1A00 has 1 entries"),
        ([0x1A00, 0x1A01], {0x1A00: [0x60410010, 4, 4, 0x60640010, 0x60770010]}, "entry 4 of 1A00 is 6064:00:16"),
        ([0x1A00, 0x1A01], {0x1A00: MAPPED, 0x1A01: [0x20310108, 0x60FD0020]}, ""),
    ],
)
def test_difference_to_the_mapping_of_a_drive(assigned: list[int], mapped: dict[int, list[int]], says: str) -> None:
    difference = mapping_difference(parse_layout(TX), assigned, mapped)
    assert says in difference
    assert bool(says) == bool(difference)


def test_random_images_and_layouts() -> None:
    images = 3_000
    happened = fuzz(images, seed=1)
    assert happened["decoded"] >= images
    assert happened["layouts refused"] > 15
    assert happened["reals"] > 3  # their values may be infinite or no number


def scaling(drive: dict[str, Any] | None = None, device: dict[str, Any] | None = None) -> JointScaling:
    tables = {"joint": "a", "device": "servo", "gear_ratio": 100.0} | (drive or {})
    return JointScaling(
        [DriveTable.model_validate(tables)],
        [DeviceTable.model_validate(SERVO | {"counts_per_rev": 4096} | (device or {}))],
        [Ratings(torque_nm=2.0, current_a=5.0)],
    )


def test_motor_side_encoder() -> None:
    s = scaling()
    assert 409600 * s.position[0] - s.position_zero[0] == pytest.approx(2 * math.pi)  # 100 motor turns
    assert 409600 * s.velocity[0] == pytest.approx(2 * math.pi)
    assert 1000 * s.torque[0] == pytest.approx(200.0)  # rated torque times gear
    assert 500 * s.current[0] == pytest.approx(2.5)


def test_joint_side_encoder_and_torque_sensor_and_temperature() -> None:
    device = {"position_side": "joint", "torque_side": "joint"}
    s = scaling(device=device | {"temperature_scale": 0.5, "temperature_offset": -40.0})
    assert 4096 * s.position[0] == pytest.approx(2 * math.pi)
    assert 1000 * s.torque[0] == pytest.approx(2.0)
    assert 130 * s.temperature[0] - s.temperature_zero[0] == pytest.approx(25.0)


def test_sign_applies_to_all_and_offset_to_the_angle_of_the_drive() -> None:
    s = scaling(drive={"sign": -1, "offset_rad": 0.5})
    # The drive's angle is 0.5 rad where the joint has its zero.
    counts = 0.5 / (2 * math.pi) * 409600
    assert counts * s.position[0] - s.position_zero[0] == pytest.approx(0.0, abs=1e-12)
    assert 409600 * s.position[0] - s.position_zero[0] == pytest.approx(-(2 * math.pi - 0.5))
    assert s.velocity[0] < 0 > s.torque[0]
    assert s.current[0] < 0


def test_motor_position_is_zero_where_the_joint_is() -> None:
    s = scaling(
        drive={"offset_rad": 0.5},
        device={"tx": {**SERVO["tx"], "1A01": ["6063:00:32 motor_position"]}, "motor_counts_per_rev": 1024,
                "position_side": "joint"},
    )  # fmt: skip
    turns = 50.0 / (2 * math.pi)  # 0.5 rad at the joint, gear 100
    assert turns * 1024 * s.motor_position[0] - s.motor_zero[0] == pytest.approx(0.0, abs=1e-9)


def test_velocity_units() -> None:
    in_a_turn = {"counts/s": 4096, "0.1counts/s": 40960, "rpm": 60, "0.001rpm": 60000, "mrad/s": 2000 * math.pi}
    for unit, digits in in_a_turn.items():
        s = scaling(drive={"gear_ratio": 1.0}, device={"velocity_unit": unit})
        assert digits * s.velocity[0] == pytest.approx(2 * math.pi)


def test_torque_units() -> None:
    for unit, digits in (("permille", 1500), ("mNm", 3000), ("0.01Nm", 300)):
        s = scaling(drive={"gear_ratio": 1.0}, device={"torque_unit": unit})
        assert digits * s.torque[0] == pytest.approx(3.0)
        assert s.torque_digits(np.array([3.0])) == [digits]


@given(st.floats(-20.0, 20.0), st.sampled_from([-1, 1]), st.floats(-3.0, 3.0))
def test_position_there_and_back(q: float, sign: int, offset: float) -> None:
    s = scaling(drive={"sign": sign, "offset_rad": offset})
    (counts,) = s.position_counts(np.array([q]))
    assert counts * s.position[0] - s.position_zero[0] == pytest.approx(q, abs=0.5 * abs(s.position[0]) + 1e-12)


def test_targets_are_limited_to_their_types() -> None:
    s = scaling()
    assert s.position_counts(np.array([1e9])) == [2**31 - 1]
    assert s.position_counts(np.array([-1e9])) == [-(2**31)]
    assert s.torque_digits(np.array([1e9])) == [2**15 - 1]
    assert s.velocity_digits(np.array([-1e9])) == [-(2**31)]
