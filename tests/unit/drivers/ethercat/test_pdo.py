"""PDO layouts: decoding, the SDOs that map them, and comparison with what a drive maps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.pdo import LayoutError, mapping_difference, parse_layout, remap_writes
from tests.lab.ethercat.decoding_fuzzer import fuzz

TX = {
    "1A00": ["6041:00:16 statusword", "0000:00:4", "0000:00:4", "6064:00:32 position", "6077:00:16"],
    "1A01": ["2031:01:8 temperature u", "60FD:00:32 digital_inputs"],
}
MAPPED = [0x60410010, 4, 4, 0x60640020, 0x60770010]


def by_hand(image: bytes) -> tuple[int, ...]:
    return (
        int.from_bytes(image[0:2], "little"),
        int.from_bytes(image[3:7], "little", signed=True),
        image[9],
        int.from_bytes(image[10:14], "little"),
    )


@given(st.binary(min_size=14, max_size=14))
def test_values_are_where_the_entries_put_them(image: bytes) -> None:
    layout = parse_layout(TX)
    assert layout.meanings == ("statusword", "position", "temperature", "digital_inputs")
    assert layout.size == 14
    assert layout.unpack(image) == by_hand(image)


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
