"""Shared by commands on buses: the driver of a configuration, and text output."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from service.cli._common import CliError, columns

if TYPE_CHECKING:
    from drivers.ethercat.bus.objects import Value
    from drivers.ethercat.diagnostics.inspect import MappedPdo


T = TypeVar("T")


def configured_driver(arguments: argparse.Namespace, kind: type[T], bus: str) -> tuple[str, T]:
    """Return name and driver of the arm in `-c FILE` that `--arm` chooses, by default the only one on the bus."""
    from service.config.load import load_config

    config = load_config(arguments.config, needs_key=False)
    arms = {arm.name: arm.driver for arm in config.arm if isinstance(arm.driver, kind)}
    name = arguments.arm
    if name is not None:
        config.find(name)
        if name not in arms:
            raise CliError(f"{arguments.config}: arm {name!r} is not on {bus}")
        return name, arms[name]
    if len(arms) != 1:
        known = ", ".join(arms)
        raise CliError(f"{arguments.config}: " + (f"choose with --arm: {known}" if arms else f"no arm is on {bus}"))
    return next(iter(arms.items()))


def slave_table(slaves: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            str(s["position"]), s["name"], *(f"0x{s[key]:08X}" for key in ("vendor_id", "product_code", "revision")),
            str(s["serial"]), str(s["alias"]), "; ".join(filter(None, (s["state"], s["problem"], *s["differences"]))),
        )
        for s in slaves
    ]  # fmt: skip
    return table(("position", "name", "vendor", "product", "revision", "serial", "alias", "state"), rows)


def info_text(facts: dict[str, Any]) -> str:
    """Return one line per fact of `drivers.ethercat.diagnostics.inspect.information`."""
    from drivers.ethercat.diagnostics.inspect import unit_of

    esc, mailbox, eeprom = facts["controller"], facts["mailbox"], facts["eeprom"]
    rows = [
        ("name", facts["name"]),
        ("identity", f"vendor 0x{facts['vendor_id']:X}, product 0x{facts['product_code']:X}, revision "
                     f"0x{facts['revision']:X}, serial {facts['serial']}, alias {facts['alias']}"),
        *(("differs", text) for text in facts["identity_differences"]),
        ("state", facts["state_found"]),
        ("controller", f"type 0x{esc['type']:02X}, revision 0x{esc['revision']:02X}, {esc['fmmus']} FMMUs, "
                       f"{esc['sync_managers']} sync managers, {esc['ram_kib']} KiB, link at ports "
                       f"{', '.join(map(str, esc['ports_with_link'])) or 'none'}"),
        ("clock", f"distributed clock of {esc['dc_bits']} bits" if esc["dc"] else "no distributed clock"),
        ("EEPROM", f"{eeprom['bytes']} bytes, order number {eeprom['order'] or 'none'}, group "
                   f"{eeprom['group'] or 'none'}"),
        ("clock modes", ", ".join(eeprom["dc_modes"]) or "none"),
        ("mailbox", f"{', '.join(mailbox['protocols']) or 'none'}; to the slave {_area(mailbox['receive'])}, "
                    f"from it {_area(mailbox['send'])}"),
        ("CoE", ", ".join(eeprom["coe"]) or "none"),
    ]  # fmt: skip
    rows += [
        (f"SM{m['number']}", f"{m['kind']}, {m['direction']}, {_area(m)}{'' if m['enabled'] else ', off'}")
        for m in facts["sync_managers"]
    ]
    rows += [(key, value) for key, value in facts.get("device", {}).items() if key != "name"]
    drive = facts.get("drive", {})
    if "statusword" in drive:
        bits = "".join(f", {bit}" for bit in drive["status_bits"])
        rows.append(("statusword", f"0x{drive['statusword']:04X}: {drive['state']}{bits}"))
    if "error_code" in drive:
        rows.append(("error code", f"0x{drive['error_code']:04X}: {drive['error_class']}"))
    if "error_register" in drive:
        rows.append(("error register", f"0x{drive['error_register']:02X}"))
    rows += [("mode", mode) for mode in drive.get("supported_modes", ())]
    rows += [(name, f"{value:.12g} {unit_of(name)}".rstrip()) for name, value in drive.get("rated", {}).items()]
    rows += [("emergency", f"0x{e['code']:04X}, register 0x{e['register']:02X}, data {e['data']}")
             for e in facts.get("emergencies", ())]  # fmt: skip
    return table((), rows)


def _area(area: dict[str, Any]) -> str:
    return f"0x{area['start']:04X}, {area['bytes']} bytes"


def value_text(value: Value, kind: str) -> str:
    """Return a value of a type of `drivers.ethercat.bus.objects`, unsigned ones in hexadecimal too."""
    if isinstance(value, str):
        return f'"{one_line(value)}"' if kind == "str" else value
    if isinstance(value, int) and kind.startswith("u") and value > 9:
        return f"{value} (0x{value:X})"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def image_text(way: str, pdos: Sequence[MappedPdo]) -> str:
    """Return the PDOs of one direction and the positions of their entries in the process image."""
    lines = [f"{way}: {image_bytes(pdos)} bytes\n"]
    for pdo in pdos:
        lines.append(f"  {pdo.index:04X} {one_line(pdo.name)}".rstrip() + "\n")
        rows = [(f"{e.offset_bits // 8}.{e.offset_bits % 8}", str(e.bits), str(e), e.type, e.name) for e in pdo.entries]
        lines += [f"    {line}\n" for line in table(("byte.bit", "bits", "entry", "type", "name"), rows).splitlines()]
    return "".join(lines)


def image_bytes(pdos: Sequence[MappedPdo]) -> int:
    """Return the length of the process image of one direction."""
    return (sum(entry.bits for pdo in pdos for entry in pdo.entries) + 7) // 8


def one_line(text: str) -> str:
    """Replace unprintable characters in a slave's text, which could move the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return left-aligned columns of a slave's texts, whose unprintable characters are replaced."""
    shown = [tuple(map(one_line, row)) for row in rows]
    text = columns(head or shown[0], shown if head else shown[1:]) if head or shown else ""
    return f"{text}\n" if text else ""
