"""Template of a configuration in TOML, from the slaves' own data; what only the user can know is marked."""

import json
import re
from dataclasses import dataclass

from drivers.ethercat.bus.eeprom import read_sii
from drivers.ethercat.bus.network import FoundSlave
from drivers.ethercat.diagnostics.inspect import MappedPdo, has_coe, rated_values, read_mapping, read_value, unit_of
from drivers.ethercat.diagnostics.inspection import Inspection
from drivers.ethercat.pdo import RX_MEANINGS, TX_MEANINGS

#: Meanings of CiA 402 objects, by (index, bits).
_RX = {
    (0x6040, 16): "controlword", (0x6060, 8): "mode", (0x607A, 32): "target_position", (0x60FF, 32): "target_velocity",
    (0x6071, 16): "target_torque", (0x60B1, 32): "velocity_offset", (0x60B2, 16): "torque_offset",
}  # fmt: skip
_TX = {
    (0x6041, 16): "statusword", (0x6061, 8): "mode_display", (0x6064, 32): "position", (0x606C, 32): "velocity",
    (0x6077, 16): "torque", (0x6078, 16): "current", (0x603F, 16): "error_code", (0x60FD, 32): "digital_inputs",
    (0x60F4, 32): "following_error",
}  # fmt: skip
assert {*_RX.values()} <= {*RX_MEANINGS}
assert {*_TX.values()} <= {*TX_MEANINGS}


@dataclass(frozen=True)
class _Device:
    """Table of a type of drive."""

    base: str  # of the name of the table
    body: str  # the table's lines
    gear: float | None  # by the drive's own object
    rated: str  # comment on this drive; empty if it states no ratings


def config_template(inspection: Inspection) -> str:
    """Return tables for all slaves: `[arm.driver.device.NAME]`, `[[arm.driver.drive]]`, and `other` for non-drives.

    Raises `DriverConnectionError` or `SdoError` if a slave stopped answering.
    """
    names: dict[str, str] = {}  # of the tables, by their content
    devices: list[str] = []
    drives: list[str] = []
    others: list[str] = []
    for slave in inspection.slaves:
        device = _device(inspection, slave)
        if device is None:
            others.append(_other(slave))
            continue
        if device.body not in names:
            names[device.body] = _unused(device.base, set(names.values()))
            devices.append(f"[arm.driver.device.{names[device.body]}]\n{device.body}")
        drives.append(_drive(slave, names[device.body], device, len(drives) + 1))
    head = (
        f"# From the slaves on {inspection.interface}.  The tables belong below [[arm]] and an [arm.driver] with\n"
        f'# kind = "ethercat" and interface = "{inspection.interface}".  '
        "Everything marked CHECK or FILL IN is yours to decide.\n"
    )
    return "\n".join([head, *devices, *drives, *others])


def _unused(base: str, taken: set[str]) -> str:
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _device(inspection: Inspection, slave: FoundSlave) -> _Device | None:
    """Describe a drive; None for a slave without controlword, statusword and position in its process data."""
    sii = read_sii(inspection, slave.position)
    mapping = read_mapping(inspection, slave.position, sii)
    rx, rx_meanings = _layout(mapping.outputs, _RX)
    tx, tx_meanings = _layout(mapping.inputs, _TX)
    if "controlword" not in rx_meanings or not {"statusword", "position"} <= tx_meanings:
        return None
    rated = rated_values(inspection, slave.position) if has_coe(inspection, slave.position, sii) else {}
    gear = _ratio(rated, "gear motor revolutions", "gear shaft revolutions")
    remap = "PDO configuration" in sii.coe
    listed = mapping.source == "objects"
    has_period = listed and read_value(inspection, slave.position, 0x60C2, 1, "u8") is not None
    lines = [
        f"vendor_id = 0x{slave.vendor_id:08X}",
        f"product_code = 0x{slave.product_code:08X}",
        f"revision = 0x{slave.revision:08X}",
        *_resolution(rated, gear),
        *(['velocity_unit = "counts/s" # CHECK: of 606C'] if "velocity" in tx_meanings else []),
        *_torque(rated, rx_meanings | tx_meanings),
        f"remap = {str(remap).lower()} # by its EEPROM it {'lets' if remap else 'does not let'} PDOs be composed",
        *([] if has_period else ["interpolation_period = false # it has no 60C2"]),
        "# rx and tx are what it maps now; give temperature and motor_position their meanings if they are wanted",
        *rx,
        *tx,
    ]
    base = re.sub(r"[^a-z0-9]+", "_", (sii.name or slave.name).lower()).strip("_")
    return _Device(base or f"product_{slave.product_code:x}", "\n".join(lines) + "\n", gear, _rated_text(rated))


def _layout(pdos: tuple[MappedPdo, ...], known: dict[tuple[int, int], str]) -> tuple[list[str], set[str]]:
    direction = "rx" if known is _RX else "tx"
    lines: list[str] = []
    meanings: set[str] = set()
    for pdo in pdos:
        lines.append(f"{direction}.{pdo.index:04X} = [")
        for entry in pdo.entries:
            meaning = known.get((entry.index, entry.bits), "")
            if meaning in meanings or entry.offset_bits % 8 or entry.subindex:
                meaning = ""
            meanings |= {meaning} - {""}
            comment = f" # {entry.name}" if entry.name and not meaning else ""
            lines.append(f"  {json.dumps(f'{entry} {meaning}'.strip())},{_one_line(comment)}")
        lines.append("]")
    return lines, meanings


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _ratio(rated: dict[str, float], above: str, below: str) -> float | None:
    if rated.get(above, 0.0) > 0.0 and rated.get(below, 0.0) > 0.0:
        return rated[above] / rated[below]
    return None


def _resolution(rated: dict[str, float], gear: float | None) -> list[str]:
    encoder = _ratio(rated, "encoder increments", "encoder motor revolutions")
    feed = _ratio(rated, "feed", "feed shaft revolutions")
    if feed is not None:
        side = "motor" if gear in (None, 1.0) else "joint"
        return [
            f"counts_per_rev = {feed:.12g} # CHECK: position units a turn of the shaft (6092)",
            f'position_side = "{side}" # CHECK: the shaft is the {side}\'s by gear ratio 6091',
        ]
    side_line = 'position_side = "motor" # CHECK: "joint" if 6064 counts behind the gear'
    if encoder is not None:
        return [f"counts_per_rev = {encoder:.12g} # of the encoder (608F)", side_line]
    return ["counts_per_rev = 1 # FILL IN: counts of 6064 a turn; the drive has no 608F", side_line]


def _torque(rated: dict[str, float], meanings: set[str]) -> list[str]:
    lines = []
    if meanings & {"torque", "target_torque"}:
        if rated.get("rated torque", 0.0) > 0.0:
            lines.append('torque_unit = "permille" # CHECK: of rated_torque_nm')
            lines.append("# rated_torque_nm is left out, so that each drive's own 6076 counts")
        else:
            lines.append("rated_torque_nm = 1.0 # FILL IN: what the per mille of 6077 are of; the drive has no 6076")
        lines.append('torque_side = "motor" # CHECK: "joint" if torques are stated behind the gear')
    if "current" in meanings:
        if rated.get("rated current", 0.0) > 0.0:
            lines.append("# rated_current_a is left out, so that each drive's own 6075 counts")
        else:
            lines.append("rated_current_a = 1.0 # FILL IN: what the per mille of 6078 are of; the drive has no 6075")
    return lines


def _rated_text(rated: dict[str, float]) -> str:
    texts = [f"{name} {rated[name]:.6g} {unit_of(name)}" for name in ("rated torque", "rated current") if name in rated]
    return f"# by the drive: {', '.join(texts)}" if texts else ""


def _drive(slave: FoundSlave, table: str, device: _Device, number: int) -> str:
    gear = device.gear
    known = gear is not None and gear != 1.0
    ratio = f"{gear:.12g} # CHECK: the drive's own gear (6091)" if known else "1.0 # FILL IN: motor turns a joint turn"
    lines = [
        "[[arm.driver.drive]]",
        f'joint = "joint_{number}" # FILL IN: the name in the robot file',
        f'device = "{table}"',
        f"position = {slave.position}",
        *([f"alias = {slave.alias}"] if slave.alias else []),
        *([f"serial = {slave.serial} # leave it out if drives may be exchanged"] if slave.serial else []),
        f"gear_ratio = {ratio}",
        *([device.rated] if device.rated else []),
        "sign = 1 # FILL IN: -1 if the drive counts against the joint",
        "offset_rad = 0.0 # FILL IN: the drive's angle, joint side, where the joint is at zero",
    ]
    return "\n".join(lines) + "\n"


def _other(slave: FoundSlave) -> str:
    lines = [
        f"[[arm.driver.other]] # {_one_line(slave.name) or 'no drive'}",
        f"position = {slave.position}",
        f"vendor_id = 0x{slave.vendor_id:08X}",
        f"product_code = 0x{slave.product_code:08X}",
        f"revision = 0x{slave.revision:08X}",
    ]
    return "\n".join(lines) + "\n"
