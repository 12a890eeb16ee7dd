"""Object dictionary of a slave from its profile: communication area (0x1000-0x1FFF) and the profile's objects."""

from collections.abc import Sequence
from typing import TypeAlias

from sim_backend.canopen.data_types import DataType, Value, is_string, type_bits
from sim_backend.canopen.dictionary import Access, Entry, ObjectCode, ObjectDictionary, ObjectEntry
from sim_backend.ethercat._profile import DeviceProfile, EntryProfile, PdoProfile

DEVICE_TYPE = 0x0002_0192
"""CiA 402 servo drive."""

ASSIGN_OUTPUTS, ASSIGN_INPUTS = 0x1C12, 0x1C13
_MAX_PDOS = 8  # PDOs in one sync manager
_SYNC_OUTPUTS, _SYNC_INPUTS = 0x1C32, 0x1C33
_ACCESS = {
    "ro": Access.READ, "wo": Access.WRITE, "rw": Access.READ | Access.WRITE,
    "rw-preop": Access.READ | Access.WRITE_PREOP,
}  # fmt: skip
_PDO = {"none": Access(0), "rx": Access.RX_PDO, "tx": Access.TX_PDO, "both": Access.RX_PDO | Access.TX_PDO}
_LIST = Access.READ | Access.WRITE_PREOP | Access.SETTING  # of PDOs, where it can be changed
_CODES = {"array": ObjectCode.ARRAY, "record": ObjectCode.RECORD}
_Part: TypeAlias = tuple[str, DataType, Value, Access]


def build_dictionary(profile: DeviceProfile, serial: int = 0) -> ObjectDictionary:
    """Build the object dictionary of one slave; `serial` is subindex 4 of 0x1018.

    Raises `ValueError` if the profile has an object of the communication area.
    """
    dictionary = ObjectDictionary()
    _add_identity(dictionary, profile, serial)
    for pdo in profile.pdo:
        _add_pdo(dictionary, profile, pdo)
    _add_sync_managers(dictionary, profile)
    for item in profile.object:
        if item.variable is not None:
            entries = {0: _entry(item.index, 0, item.variable)}
            dictionary.add(ObjectEntry(item.index, item.name, ObjectCode.VAR, item.variable.type, entries))
            continue
        count = max(part.subindex for part in item.entries)
        entries = {0: _count(item.index, count)}
        entries |= {part.subindex: _entry(item.index, part.subindex, part) for part in item.entries}
        kind = item.entries[0].type if item.kind == "array" else DataType.RECORD
        dictionary.add(ObjectEntry(item.index, item.name, _CODES[item.kind], kind, entries))
    return dictionary


def _entry(index: int, subindex: int, profile: EntryProfile) -> Entry:
    bits = type_bits(profile.type) or 8 * profile.size
    value: Value = profile.value
    if is_string(profile.type):
        text = value if isinstance(value, str) else ""
        value = text if profile.type is DataType.VISIBLE_STRING else text.encode("latin-1")
    elif profile.type not in (DataType.REAL32, DataType.REAL64):
        value = int(value)
    access = _ACCESS[profile.access] | _PDO[profile.pdo]
    if access & Access.WRITE and not access & (Access.RX_PDO | Access.TX_PDO):
        access |= Access.BACKUP
    return Entry(index, subindex, profile.name, profile.type, bits, access, value, profile.minimum, profile.maximum)


def _count(index: int, value: int, access: Access = Access.READ) -> Entry:
    return Entry(index, 0, "Number of entries", DataType.UNSIGNED8, 8, access, value)


def _plain(index: int, sub: int, name: str, kind: DataType, value: Value, access: Access = Access.READ) -> Entry:
    bits = type_bits(kind) or 8 * max(1, len(str(value)))
    return Entry(index, sub, name, kind, bits, access, value)


def _variable(
    dictionary: ObjectDictionary, index: int, name: str, kind: DataType, value: Value, access: Access = Access.READ
) -> None:
    entry = _plain(index, 0, name, kind, value, access)
    dictionary.add(ObjectEntry(index, name, ObjectCode.VAR, kind, {0: entry}))


def _record(dictionary: ObjectDictionary, index: int, name: str, kind: DataType, parts: Sequence[_Part]) -> None:
    entries = {0: _count(index, len(parts))}
    for sub, (title, part, value, access) in enumerate(parts, start=1):
        entries[sub] = _plain(index, sub, title, part, value, access)
    dictionary.add(ObjectEntry(index, name, ObjectCode.RECORD, kind, entries))


def _add_identity(dictionary: ObjectDictionary, profile: DeviceProfile, serial: int) -> None:
    identity = profile.identity
    text = DataType.VISIBLE_STRING
    _variable(dictionary, 0x1000, "Device type", DataType.UNSIGNED32, DEVICE_TYPE)
    _variable(dictionary, 0x1001, "Error register", DataType.UNSIGNED8, 0, Access.READ | Access.TX_PDO)
    _variable(dictionary, 0x1008, "Manufacturer device name", text, identity.device_name)
    _variable(dictionary, 0x1009, "Manufacturer hardware version", text, identity.hardware_version)
    _variable(dictionary, 0x100A, "Manufacturer software version", text, identity.software_version)
    number, read, writable = DataType.UNSIGNED32, Access.READ, Access.READ | Access.WRITE
    titles = ("Vendor ID", "Product code", "Revision number", "Serial number")
    values = (identity.vendor_id, identity.product_code, identity.revision, serial)
    parts: list[_Part] = [(title, number, value, read) for title, value in zip(titles, values, strict=True)]
    _record(dictionary, 0x1018, "Identity object", DataType.IDENTITY, parts)
    parts = [("Local error reaction", number, 1, writable)]
    parts += [("Sync error counter limit", DataType.UNSIGNED16, 4, writable)]
    _record(dictionary, 0x10F1, "Error settings", DataType.RECORD, parts)


def _add_pdo(dictionary: ObjectDictionary, profile: DeviceProfile, pdo: PdoProfile) -> None:
    free = profile.pdo_access == "remap"
    access = _LIST if free else Access.READ
    slots = max(profile.pdo_slots, len(pdo.entries)) if free else len(pdo.entries)
    words = [entry.word for entry in pdo.entries] + [0] * (slots - len(pdo.entries))
    entries = {0: _count(pdo.index, len(pdo.entries), access)}
    for sub, word in enumerate(words, start=1):
        entries[sub] = _plain(pdo.index, sub, f"Mapped object {sub}", DataType.UNSIGNED32, word, access)
    code = ObjectCode.RECORD
    dictionary.add(ObjectEntry(pdo.index, pdo.name, code, DataType.PDO_MAPPING, entries, counted=True))


def _add_sync_managers(dictionary: ObjectDictionary, profile: DeviceProfile) -> None:
    kinds = (1, 2, 3, 4)  # mailbox from the master, mailbox to it, outputs, inputs
    entries = {0: _count(0x1C00, len(kinds))}
    for sub, kind in enumerate(kinds, start=1):
        entries[sub] = _plain(0x1C00, sub, f"Sync manager {sub - 1}", DataType.UNSIGNED8, kind)
    name = "Sync manager communication type"
    dictionary.add(ObjectEntry(0x1C00, name, ObjectCode.ARRAY, DataType.UNSIGNED8, entries))
    access = Access.READ if profile.pdo_access == "fixed" else _LIST
    for index, image, title in (
        (ASSIGN_OUTPUTS, profile.outputs, "RxPDO assign"),
        (ASSIGN_INPUTS, profile.inputs, "TxPDO assign"),
    ):
        slots = len(image.assigned) if profile.pdo_access == "fixed" else _MAX_PDOS
        values = [*image.assigned, *([0] * (slots - len(image.assigned)))]
        entries = {0: _count(index, len(image.assigned), access)}
        for sub, value in enumerate(values, start=1):
            entries[sub] = _plain(index, sub, f"PDO {sub}", DataType.UNSIGNED16, value, access)
        dictionary.add(ObjectEntry(index, title, ObjectCode.ARRAY, DataType.UNSIGNED16, entries, counted=True))
    u16, u32, read = DataType.UNSIGNED16, DataType.UNSIGNED32, Access.READ
    for index, title in ((_SYNC_OUTPUTS, "SM output parameter"), (_SYNC_INPUTS, "SM input parameter")):
        parts: list[_Part] = [
            ("Synchronization type", u16, 1, read | Access.WRITE_PREOP),
            ("Cycle time", u32, 0, read | Access.WRITE_PREOP), ("Shift time", u32, 0, read),
            ("Synchronization types supported", u16, 0x0007, read),
            ("Minimum cycle time", u32, profile.dc.min_cycle_ns, read), ("Calc and copy time", u32, 0, read),
        ]  # fmt: skip
        _record(dictionary, index, title, DataType.SYNC_PARAMETER, parts)
