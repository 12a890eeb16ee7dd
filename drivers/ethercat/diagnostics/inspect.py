"""Identity, controller, drive and process data of one slave in PRE-OP; nothing is written, what is absent left out."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivers.driver import DriverError
from drivers.ethercat.bus.eeprom import Sii, SiiPdo, read_sii
from drivers.ethercat.bus.master import status_text
from drivers.ethercat.bus.objects import ObjectEntry, Value, decode
from drivers.ethercat.diagnostics.inspection import Inspection
from drivers.ethercat.drive import cia402
from drivers.ethercat.errors import SdoError

_REG_BUILD, _REG_DL_STATUS, _REG_SYNC_MANAGER, _SYNC_MANAGER_BYTES = 0x0000, 0x0110, 0x0800, 8
_FEATURE_DC, _FEATURE_DC_64 = 0x04, 0x08
_MAX_SYNC_MANAGERS = 8
_OUTPUTS, _INPUTS = 0x1C12, 0x1C13

_MODES = {
    0: "pp (profile position)", 1: "vl (velocity, frequency converter)", 2: "pv (profile velocity)",
    3: "tq (profile torque)", 5: "hm (homing)", 6: "ip (interpolated position)", 7: "csp (cyclic synchronous position)",
    8: "csv (cyclic synchronous velocity)", 9: "cst (cyclic synchronous torque)",
    10: "cstca (cyclic synchronous torque with commutation angle)",
}  # fmt: skip
_STATUS_BITS = {
    cia402.VOLTAGE_BIT: "voltage enabled", cia402.WARNING_BIT: "warning", cia402.REMOTE_BIT: "remote",
    cia402.INTERNAL_LIMIT_BIT: "internal limit active", cia402.FOLLOWING_ERROR_BIT: "following error or mode specific",
}  # fmt: skip
#: First digits of error codes (CiA 301, IEC 61800-7-201).
_ERROR_CLASSES = {
    0x0: "no error", 0x1: "generic", 0x2: "current", 0x3: "voltage", 0x4: "temperature", 0x5: "hardware",
    0x6: "software", 0x7: "additional modules", 0x8: "monitoring, following error", 0x9: "external",
    0xF: "device specific",
}  # fmt: skip
#: Ratings by name: object, type, digits of one unit, unit.
_RATED = {
    "rated current": (0x6075, 0, "u32", 1000.0, "A"), "rated torque": (0x6076, 0, "u32", 1000.0, "N*m"),
    "max torque": (0x6072, 0, "u16", 10.0, "% of rated"), "max motor speed": (0x6080, 0, "u32", 1.0, "1/min"),
    "encoder increments": (0x608F, 1, "u32", 1.0, ""), "encoder motor revolutions": (0x608F, 2, "u32", 1.0, ""),
    "gear motor revolutions": (0x6091, 1, "u32", 1.0, ""), "gear shaft revolutions": (0x6091, 2, "u32", 1.0, ""),
    "feed": (0x6092, 1, "u32", 1.0, ""), "feed shaft revolutions": (0x6092, 2, "u32", 1.0, ""),
}  # fmt: skip


@dataclass(frozen=True)
class MappedEntry:
    """One entry of a slave's process image."""

    index: int
    subindex: int
    bits: int
    offset_bits: int  # in the slave's image of this direction
    name: str
    type: str  # as of `objects.TYPES`; empty if not known

    def __str__(self) -> str:
        return f"{self.index:04X}:{self.subindex:02X}:{self.bits}"


@dataclass(frozen=True)
class MappedPdo:
    """One assigned PDO."""

    index: int
    name: str
    entries: tuple[MappedEntry, ...]


@dataclass(frozen=True)
class Mapping:
    """Present process data of a slave."""

    outputs: tuple[MappedPdo, ...]
    inputs: tuple[MappedPdo, ...]
    source: str  # "objects", or "EEPROM" for a slave without CoE


def has_coe(inspection: Inspection, position: int, sii: Sii) -> bool:
    """Return whether the slave has objects that can be read now."""
    return "CoE" in sii.protocols and position not in inspection.refusing


def read_value(inspection: Inspection, position: int, index: int, subindex: int, kind: str) -> Value | None:
    """Read an object; None if the drive refuses it or it has another size.  Raises `SdoError` without an answer."""
    try:
        raw = inspection.sdo_read(position, index, subindex)
        return decode(kind, raw)
    except SdoError as error:
        if error.abort:
            return None
        raise
    except ValueError:
        return None


def rated_values(inspection: Inspection, position: int) -> dict[str, float]:
    """Read ratings, encoder and gear of a drive, in SI units, by name."""
    found = {}
    for name, (index, subindex, kind, digits, _) in _RATED.items():
        value = read_value(inspection, position, index, subindex, kind)
        if isinstance(value, (int, float)):
            found[name] = value / digits
    return found


def identity_differences(inspection: Inspection, position: int) -> list[str]:
    """Return what a slave says in 1018 otherwise than in its EEPROM, as far as it answers."""
    slave = inspection.slaves[position]
    differences: list[str] = []
    eeprom = (
        ("vendor", slave.vendor_id), ("product", slave.product_code), ("revision", slave.revision),
        *([("serial", slave.serial)] if slave.serial else []),  # 0: not set
    )  # fmt: skip
    with contextlib.suppress(DriverError):
        if has_coe(inspection, position, read_sii(inspection, position)):
            for subindex, (name, stored) in enumerate(eeprom, 1):
                value = read_value(inspection, position, 0x1018, subindex, "u32")
                if value not in (None, stored):
                    differences.append(f"{name} 0x{value:X} in 1018:{subindex:02X}, 0x{stored:X} in its EEPROM")
    return differences


def unit_of(name: str) -> str:
    """Return the unit of one of `rated_values`."""
    return _RATED[name][4]


def information(inspection: Inspection, position: int) -> dict[str, Any]:
    """Return all that `thetad ethercat info` shows, as plain values.

    Raises `DriverConnectionError` or `SdoError` if the slave stopped answering.
    """
    slave = inspection.slaves[position]
    sii = read_sii(inspection, position)
    facts: dict[str, Any] = {
        "position": position,
        "name": sii.name or slave.name,
        "vendor_id": slave.vendor_id,
        "product_code": slave.product_code,
        "revision": slave.revision,
        "serial": slave.serial,
        "alias": slave.alias,
        "identity_differences": identity_differences(inspection, position),
        "state_found": status_text(inspection.found[position]),
        "state_now": status_text(inspection.al_status(position)),
        "controller": _controller(inspection, position),
        "eeprom": {
            "bytes": sii.size_bytes, "order": sii.order, "group": sii.group, "ebus_current_ma": sii.current_ma,
            "coe": sii.coe, "dc_modes": sii.dc_modes,
        },
        "mailbox": {
            "protocols": sii.protocols,
            "receive": {"start": sii.receive_mailbox[0], "bytes": sii.receive_mailbox[1]},
            "send": {"start": sii.send_mailbox[0], "bytes": sii.send_mailbox[1]},
        },
        "sync_managers": list(_sync_managers(inspection, position)),
    }  # fmt: skip
    if has_coe(inspection, position, sii):
        facts["device"] = _device(inspection, position)
        facts["drive"] = _drive(inspection, position)
        facts["emergencies"] = [
            {"code": e.code, "register": e.register, "data": e.data.hex()}
            for e in inspection.emergencies
            if e.position == position
        ]
    return facts


def _controller(inspection: Inspection, position: int) -> dict[str, Any]:
    raw = inspection.registers(position, _REG_BUILD, 10)
    links = int.from_bytes(inspection.registers(position, _REG_DL_STATUS, 2), "little")
    return {
        "type": raw[0], "revision": raw[1], "build": int.from_bytes(raw[2:4], "little"), "fmmus": raw[4],
        "sync_managers": raw[5], "ram_kib": raw[6],
        "ports_with_link": [port for port in range(4) if links & 0x10 << port], "dc": bool(raw[8] & _FEATURE_DC),
        "dc_bits": (64 if raw[8] & _FEATURE_DC_64 else 32) if raw[8] & _FEATURE_DC else 0,
    }  # fmt: skip


def _sync_managers(inspection: Inspection, position: int) -> Iterator[dict[str, Any]]:
    count = min(inspection.registers(position, _REG_BUILD, 6)[5], _MAX_SYNC_MANAGERS)
    for k in range(count):
        raw = inspection.registers(position, _REG_SYNC_MANAGER + k * _SYNC_MANAGER_BYTES, _SYNC_MANAGER_BYTES)
        start, length = int.from_bytes(raw[:2], "little"), int.from_bytes(raw[2:4], "little")
        if not start and not length:
            continue
        yield {
            "number": k, "start": start, "bytes": length, "kind": "mailbox" if raw[4] & 0x03 == 0x02 else "buffered",
            "direction": "from master" if raw[4] & 0x0C == 0x04 else "to master", "enabled": bool(raw[6] & 0x01),
        }  # fmt: skip


def _device(inspection: Inspection, position: int) -> dict[str, str]:
    names = {"name": 0x1008, "hardware": 0x1009, "software": 0x100A}
    texts = {key: read_value(inspection, position, index, 0, "str") for key, index in names.items()}
    return {key: str(text) for key, text in texts.items() if text is not None}


def _drive(inspection: Inspection, position: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    status = read_value(inspection, position, 0x6041, 0, "u16")
    if isinstance(status, int):
        facts["statusword"] = status
        facts["state"] = cia402.state_of(status).value
        facts["status_bits"] = [name for bit, name in _STATUS_BITS.items() if status & bit]
    error = read_value(inspection, position, 0x603F, 0, "u16")
    if isinstance(error, int):
        facts["error_code"] = error
        facts["error_class"] = _ERROR_CLASSES.get(error >> 12, "reserved")
    register = read_value(inspection, position, 0x1001, 0, "u8")
    if isinstance(register, int):
        facts["error_register"] = register
    modes = read_value(inspection, position, 0x6502, 0, "u32")
    if isinstance(modes, int):
        facts["supported_modes"] = [name for bit, name in _MODES.items() if modes >> bit & 1]
    mode = read_value(inspection, position, 0x6061, 0, "i8")
    if isinstance(mode, int):
        facts["mode"] = mode
    rated = rated_values(inspection, position)
    return facts | ({"rated": rated} if rated else {})


def read_mapping(inspection: Inspection, position: int, sii: Sii) -> Mapping:
    """Read the assigned PDOs and their entries, from the EEPROM for a slave without CoE.

    Raises `SdoError` if the drive does not return its mapping.
    """
    if not has_coe(inspection, position, sii):
        return Mapping(_from_sii(sii.rx), _from_sii(sii.tx), "EEPROM")
    described: dict[int, dict[int, ObjectEntry] | None] = {}

    def entry(index: int, subindex: int, bits: int, offset: int) -> MappedEntry:
        if not index:
            return MappedEntry(index, subindex, bits, offset, "padding", "")
        if index not in described:
            try:
                described[index] = {each.subindex: each for each in inspection.describe(position, index).entries}
            except SdoError:  # no SDO information, or the object is not listed
                described[index] = None
        found = (described.get(index) or {}).get(subindex)
        return MappedEntry(index, subindex, bits, offset, found.name if found else "", found.type if found else "")

    def image(assignment: int, pdo_names: dict[int, str]) -> tuple[MappedPdo, ...]:
        pdos, offset = [], 0
        for k in range(_read(inspection, position, assignment, 0)):
            index = _read(inspection, position, assignment, k + 1)
            entries = []
            for n in range(_read(inspection, position, index, 0)):
                value = _read(inspection, position, index, n + 1)
                entries.append(entry(value >> 16, value >> 8 & 0xFF, value & 0xFF, offset))
                offset += value & 0xFF
            pdos.append(MappedPdo(index, pdo_names.get(index, ""), tuple(entries)))
        return tuple(pdos)

    pdo_names = {pdo.index: pdo.name for pdo in (*sii.rx, *sii.tx)}
    return Mapping(image(_OUTPUTS, pdo_names), image(_INPUTS, pdo_names), "objects")


def _read(inspection: Inspection, position: int, index: int, subindex: int) -> int:
    return int.from_bytes(inspection.sdo_read(position, index, subindex), "little")


def _from_sii(pdos: list[SiiPdo]) -> tuple[MappedPdo, ...]:
    found, offset = [], 0
    for pdo in pdos:
        if pdo.sync_manager is None:
            continue
        entries = []
        for index, subindex, bits, name in pdo.entries:
            entries.append(MappedEntry(index, subindex, bits, offset, name if index else "padding", ""))
            offset += bits
        found.append(MappedPdo(pdo.index, pdo.name, tuple(entries)))
    return tuple(found)
