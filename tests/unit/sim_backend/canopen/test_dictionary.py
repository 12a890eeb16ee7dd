"""Object dictionary: types, access, ranges, complete access; PDO mapping and assignment; images."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_backend.canopen.dictionary import Access, DataType, Entry, ObjectDictionary, SdoAbort
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._pdo import ImagePacker, ProcessImage
from sim_backend.ethercat._profile import DeviceProfile, load_profile

INIT, PREOP, SAFEOP, OP = 1, 2, 4, 8


def refused(code: int, call: object, *args: object) -> None:
    assert callable(call)
    with pytest.raises(SdoAbort) as caught:
        call(*args)
    assert f"{caught.value.code:08X}" == f"{code:08X}"


@pytest.fixture
def profile() -> DeviceProfile:
    return load_profile("generic_servo")


@pytest.fixture
def servo(profile: DeviceProfile) -> ObjectDictionary:
    return build_dictionary(profile, serial=77)


def outputs_of(servo: ObjectDictionary, max_bytes: int = 64) -> ProcessImage:
    return ProcessImage(servo, outputs=True, max_bytes=max_bytes)


def test_values_go_through_as_little_endian_numbers(servo: ObjectDictionary) -> None:
    servo.write(0x607A, 0, bytes.fromhex("feffffff"), OP)
    assert servo.entry(0x607A).value == -2
    servo.entry(0x6077).value = -3
    assert servo.read(0x6077, 0, OP) == bytes.fromhex("fdff")
    assert servo.read(0x1008, 0, PREOP) == b"generic_servo"
    assert struct.unpack("<I", servo.read(0x1018, 4, PREOP)) == (77,)


def test_what_is_not_there_or_not_allowed_is_refused_with_its_code(servo: ObjectDictionary) -> None:
    refused(0x06020000, servo.read, 0x5555, 0, PREOP)
    refused(0x06090011, servo.read, 0x1018, 9, PREOP)
    refused(0x06010002, servo.write, 0x6041, 0, b"\0\0", PREOP)
    refused(0x08000022, servo.read, 0x6041, 0, INIT)
    refused(0x06070012, servo.write, 0x6040, 0, b"\0\0\0", PREOP)
    refused(0x06070013, servo.write, 0x6040, 0, b"\0", PREOP)
    refused(0x06090031, servo.write, 0x605C, 0, b"\2\0", PREOP)
    refused(0x06090032, servo.write, 0x6085, 0, bytes(4), PREOP)
    refused(0x06070012, servo.write, 0x2000, 0, bytes(601), PREOP)
    assert servo.entry(0x605C).value == 1


def test_a_write_only_entry_and_one_for_preop_only() -> None:
    compact = build_dictionary(load_profile("compact_csp"))
    compact.write(0x3020, 0, bytes(4), OP)
    refused(0x06010001, compact.read, 0x3020, 0, OP)
    actuator = build_dictionary(load_profile("harmonic_actuator"))
    actuator.write(0x2270, 0, b"calibrated", PREOP)
    assert actuator.read(0x2270, 0, OP) == b"calibrated"
    refused(0x08000022, actuator.write, 0x2270, 0, b"again", SAFEOP)


def test_the_drive_may_refuse_what_a_master_writes(servo: ObjectDictionary) -> None:
    def only_csp(value: object) -> None:
        if value != 8:
            raise SdoAbort(0x06090030)

    servo.entry(0x6060).on_write = only_csp
    refused(0x06090030, servo.write, 0x6060, 0, b"\x0a", PREOP)
    servo.entry(0x6060).value = 0
    servo.write(0x6060, 0, b"\x08", PREOP)
    assert servo.entry(0x6060).value == 8


def test_complete_access_reads_subindex_0_as_16_bits_and_only_what_counts(servo: ObjectDictionary) -> None:
    assert servo.read_complete(0x1C12, 0, PREOP) == struct.pack("<HH", 1, 0x1600)
    assert servo.read_complete(0x1C12, 1, PREOP) == struct.pack("<H", 0x1600)
    assert servo.read_complete(0x60C2, 0, PREOP) == struct.pack("<HBb", 2, 1, -3)
    refused(0x06010004, servo.read_complete, 0x6040, 0, PREOP)
    refused(0x06010000, servo.read_complete, 0x60C2, 2, PREOP)
    refused(0x06020000, servo.read_complete, 0x5555, 0, PREOP)


def test_complete_access_packs_bits() -> None:
    actuator = build_dictionary(load_profile("harmonic_actuator"))
    assert actuator.read_complete(0x2260, 0, PREOP) == struct.pack("<HHB", 3, 100, 0b11)


def test_complete_access_writes_all_or_nothing(servo: ObjectDictionary) -> None:
    servo.write_complete(0x60C2, 0, struct.pack("<HBb", 2, 4, -4), PREOP)
    assert (servo.entry(0x60C2, 1).value, servo.entry(0x60C2, 2).value) == (4, -4)
    refused(0x06090031, servo.write_complete, 0x60C2, 1, struct.pack("<Bb", 9, 5), PREOP)
    assert servo.entry(0x60C2, 1).value == 4
    refused(0x06010002, servo.write_complete, 0x60C2, 0, struct.pack("<HBb", 1, 4, -4), PREOP)
    refused(0x06070013, servo.write_complete, 0x60C2, 0, b"\2\0\1", PREOP)
    refused(0x06070012, servo.write_complete, 0x60C2, 0, bytes((2, 0, 1, 0, 0)), PREOP)
    refused(0x06010002, servo.write_complete, 0x1018, 0, bytes(18), PREOP)


def test_a_mapping_is_written_as_masters_do(servo: ObjectDictionary) -> None:
    image = outputs_of(servo)
    refused(0x06010003, servo.write, 0x1600, 1, struct.pack("<I", 0x60400010), PREOP)
    servo.write(0x1600, 0, b"\0", PREOP)
    for subindex, word in ((1, 0x60400010), (2, 0x60710010), (3, 0x00000010)):
        servo.write(0x1600, subindex, struct.pack("<I", word), PREOP)
    servo.write(0x1600, 0, b"\3", PREOP)
    found = [(entry.index if entry else None, bits) for entry, bits in image.slots()]
    assert found == [(0x6040, 16), (0x6071, 16), (None, 16)]
    assert image.packer().size == 6


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (0x5A5A0010, 0x06020000),  # no such object
        (0x60C20908, 0x06090011),  # no such subindex
        (0x60410010, 0x06040041),  # an input
        (0x20000008, 0x06040041),  # a text
        (0x60400020, 0x06070010),  # another length
        (0x60400000, 0x06040041),  # no length
    ],
)
def test_what_cannot_be_mapped_is_refused(servo: ObjectDictionary, word: int, code: int) -> None:
    outputs_of(servo)
    servo.write(0x1600, 0, b"\0", PREOP)
    refused(code, servo.write, 0x1600, 1, struct.pack("<I", word), PREOP)
    assert servo.entry(0x1600, 1).value == 0x60400010


def test_an_image_longer_than_its_sync_manager_is_refused(servo: ObjectDictionary) -> None:
    image = outputs_of(servo, max_bytes=19)
    before = image.slots()
    servo.write(0x1C12, 0, b"\0", PREOP)
    servo.write(0x1C12, 2, struct.pack("<H", 0x1601), PREOP)
    refused(0x06040042, servo.write, 0x1C12, 0, b"\2", PREOP)
    servo.write(0x1C12, 0, b"\1", PREOP)
    assert image.slots() == before
    servo.write(0x1600, 0, b"\0", PREOP)
    servo.write(0x1600, 8, struct.pack("<I", 0x60B10020), PREOP)
    refused(0x06040042, servo.write, 0x1600, 0, b"\x08", PREOP)


def test_an_assignment_names_pdos_of_its_direction_once(servo: ObjectDictionary) -> None:
    outputs_of(servo)
    servo.write(0x1C12, 0, b"\0", PREOP)
    refused(0x06020000, servo.write, 0x1C12, 1, struct.pack("<H", 0x1A00), PREOP)
    refused(0x06020000, servo.write, 0x1C12, 1, struct.pack("<H", 0x1655), PREOP)
    servo.write(0x1C12, 2, struct.pack("<H", 0x1600), PREOP)
    refused(0x06040043, servo.write, 0x1C12, 0, b"\2", PREOP)
    refused(0x06040042, servo.write, 0x1C12, 0, b"\x09", PREOP)


def test_pdos_change_in_preop_only_and_where_the_device_lets_them(servo: ObjectDictionary) -> None:
    for state in (SAFEOP, OP):
        refused(0x08000022, servo.write, 0x1C12, 0, b"\0", state)
        refused(0x08000022, servo.write_complete, 0x1600, 0, b"\0\0", state)
    actuator = build_dictionary(load_profile("harmonic_actuator"))
    ProcessImage(actuator, outputs=False, max_bytes=64)
    actuator.write_complete(0x1C13, 0, struct.pack("<HH", 1, 0x1A03), PREOP)
    refused(0x06010002, actuator.write, 0x1A03, 0, b"\0", PREOP)
    refused(0x06010002, build_dictionary(load_profile("compact_csp")).write, 0x1C13, 0, b"\0", PREOP)


def entry(kind: DataType, bits: int) -> Entry:
    return Entry(0x2000, 0, "x", kind, bits, Access.TX_PDO, 0)


FIELDS = {
    DataType.BOOLEAN: (1, 0, 1), DataType.BIT4: (4, 0, 15), DataType.INTEGER8: (8, -128, 127),
    DataType.UNSIGNED16: (16, 0, 65535), DataType.INTEGER32: (32, -(2**31), 2**31 - 1),
}  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([*FIELDS, None]), st.integers(-(2**33), 2**33)), min_size=1, max_size=12))
def test_an_image_holds_each_value_at_its_bit(parts: list[tuple[DataType | None, int]]) -> None:
    """Compared with bits written out as text, the last field first."""
    slots: list[tuple[Entry | None, int]] = []
    text, wanted = "", []
    for kind, value in parts:
        if kind is None:
            slots.append((None, 8))
            text = "0" * 8 + text
            continue
        bits, low, high = FIELDS[kind]
        slots.append((entry(kind, bits), bits))
        held = min(max(value, low), high)
        wanted.append(held)
        text = format(held % 2**bits, f"0{bits}b") + text
        slots[-1][0].value = value
    packer = ImagePacker(slots)
    memory = memoryview(bytearray(b"\xee" * 80))
    packer.pack(memory, 3)
    assert int.from_bytes(memory[3 : 3 + packer.size], "little") == int(text, 2)
    assert bytes(memory[:3]) == b"\xee" * 3
    assert memory[3 + packer.size] == 0xEE
    entries = [item for item, _ in slots if item is not None]
    for item in entries:
        item.value = 0
    packer.unpack(memory, 3)
    assert [item.value for item in entries] == wanted
