"""`thetad ethercat`: inspect the slaves of a bus before anything moves."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, Exit, Run, add_json_flag, add_run, fail, print_json, printed_json, read_help
from service.cli.hardware import _shared
from service.cli.hardware._shared import configured_driver, table

if TYPE_CHECKING:
    from drivers.ethercat.bus.objects import ObjectEntry
    from drivers.ethercat.diagnostics.inspect import MappedPdo
    from drivers.ethercat.diagnostics.inspection import Inspection

HELP = read_help(__file__)

_MAX_VALUE = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=type(parser))
    scan = what.add_parser("scan", help="list interfaces, or the slaves on one", description=HELP["description"])
    scan.add_argument("interface", nargs="?", metavar="INTERFACE", help="network interface; none: list the candidates")
    scan.add_argument("-c", "--config", type=Path, metavar="FILE", help="compare with this configuration, on its "
                      "interface; exit code 1 if the bus differs")  # fmt: skip
    scan.add_argument("--arm", metavar="NAME", help="arm of the configuration (default: the only one on EtherCAT)")
    add_json_flag(scan)
    scan.add_argument("--toml", action="store_true", help="print tables for a configuration")
    scan.set_defaults(run=run_scan)
    _add_slave_parser(what, "info", run_info, "everything that one slave reports")
    sdo = _add_slave_parser(what, "sdo", run_sdo, "read or write one object of a slave", HELP["sdo"])
    sdo.add_argument("object", nargs="?", metavar="INDEX:SUB", help="hexadecimal, such as 6064:00")
    sdo.add_argument("--type", metavar="T", help="u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 str hex")
    action = sdo.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="VALUE", help="write it; integers also as 0x..")
    action.add_argument("--list", action="store_true", help="list all objects: names, types, access, values")
    _add_slave_parser(what, "pdo", run_pdo, "process data of one slave: assignment, mapping, offsets")


def _add_slave_parser(what: Any, name: str, run: Run, help_: str, description: str = HELP["description"]) -> Any:
    parser = what.add_parser(name, help=help_, description=description)
    parser.add_argument("interface", metavar="INTERFACE", help="network interface of the bus")
    parser.add_argument("position", type=int, metavar="POSITION", help="of the slave on the bus, from 0")
    add_run(parser, run)
    return parser


def run_scan(arguments: argparse.Namespace) -> int:
    """List interfaces or slaves."""
    if arguments.arm is not None and arguments.config is None:
        raise CliError("--arm chooses an arm of a configuration: give -c FILE")
    if arguments.json and arguments.toml:
        raise CliError("--json and --toml: choose one")
    if arguments.config is not None:
        if arguments.interface is not None:
            raise CliError("-c FILE brings the interface with it: leave INTERFACE out")
        if arguments.toml:
            raise CliError("--toml prints tables for a new configuration: give INTERFACE instead of -c FILE")
        return _compare(arguments)
    if arguments.interface is None:
        if arguments.toml:
            raise CliError("--toml needs an INTERFACE; thetad ethercat scan lists them")
        return _list_interfaces(arguments.json)
    from drivers.ethercat.diagnostics.config_template import config_template
    from drivers.ethercat.diagnostics.inspection import Inspection

    with Inspection(arguments.interface) as inspection:
        slaves = _slaves(inspection)
        tables = config_template(inspection) if arguments.toml else ""
    _warn(inspection)
    if arguments.toml:
        sys.stdout.write(tables)
    elif not printed_json(arguments, {"interface": arguments.interface, "slaves": slaves}):
        sys.stdout.write(_shared.slave_table(slaves))
    return Exit.OK


def _list_interfaces(as_json: bool) -> int:
    from drivers.ethercat.bus.interface import adapters

    found = adapters()
    if as_json:
        names = ("name", "state", "link", "mac", "address")
        print_json({"interfaces": [{name: getattr(adapter, name) for name in names} for adapter in found]})
    elif found:
        rows = [(a.name, a.state, a.mac, f"has address {a.address}: not a bus" if a.address else "") for a in found]
        sys.stdout.write(table(("interface", "state", "MAC", ""), rows))
    else:
        sys.stdout.write("no wired Ethernet interface\n")
    return Exit.OK if found else Exit.NO


def _compare(arguments: argparse.Namespace) -> int:
    from drivers.ethercat.bus.network import differences, expected_slaves
    from drivers.ethercat.config import EthercatConfig
    from drivers.ethercat.diagnostics.inspection import Inspection

    name, driver = configured_driver(arguments, EthercatConfig, "EtherCAT")
    with Inspection(driver.interface, driver.redundant_interface) as inspection:
        slaves = _slaves(inspection)
    _warn(inspection)
    lines = differences(expected_slaves(driver), inspection.slaves)
    document = {"interface": driver.interface, "arm": name, "slaves": slaves, "matches": not lines}
    if not printed_json(arguments, document | {"differences": lines}):
        sys.stdout.write(_shared.slave_table(slaves))
        verdict = f"not the network of arm {name!r}:" if lines else f"the network of arm {name!r}, as configured"
        sys.stdout.write("\n".join(["", verdict, *(f"  {line}" for line in lines)]) + "\n")
    return Exit.NO if lines else Exit.OK


def _slaves(inspection: Inspection) -> list[dict[str, Any]]:
    from drivers.ethercat.bus.master import status_text
    from drivers.ethercat.diagnostics.inspect import identity_differences

    names = ("position", "name", "vendor_id", "product_code", "revision", "serial", "alias")
    problems = {place: f"does not reach PRE-OP: {status_text(why)}" for place, why in inspection.refusing.items()}
    return [
        {name: getattr(slave, name) for name in names}
        | {"state": status_text(found), "problem": problems.get(slave.position)}
        | {"differences": identity_differences(inspection, slave.position)}
        for slave, found in zip(inspection.slaves, inspection.found, strict=True)
    ]


def _warn(inspection: Inspection) -> None:
    if inspection.unrestored:
        fail(f"the slaves at positions {', '.join(map(str, inspection.unrestored))} did not go back to INIT")


@contextlib.contextmanager
def _bus_of(arguments: argparse.Namespace) -> Iterator[Inspection]:
    """Open the bus of the slave at POSITION; raises `CliError` if there is none."""
    from drivers.ethercat.diagnostics.inspection import Inspection

    with Inspection(arguments.interface) as inspection:
        count = len(inspection.slaves)
        if not 0 <= arguments.position < count:
            place = f"position {arguments.position} on {inspection.interface}"
            raise CliError(f"no slave at {place}: there are {count}, counted from 0")
        yield inspection
    _warn(inspection)


def run_info(arguments: argparse.Namespace) -> int:
    """Show all facts about one slave."""
    from drivers.ethercat.diagnostics.inspect import information

    with _bus_of(arguments) as inspection:
        facts = information(inspection, arguments.position)
    if not printed_json(arguments, facts):
        sys.stdout.write(_shared.info_text(facts))
    return Exit.OK


def run_sdo(arguments: argparse.Namespace) -> int:
    """Read, write or list objects."""
    from drivers.ethercat.bus.objects import TYPES, parse_address

    if (arguments.object is None) != arguments.list:
        raise CliError("give either INDEX:SUB or --list")
    if arguments.type is not None and arguments.type not in TYPES:
        raise CliError(f"--type {arguments.type}: choose from {', '.join(TYPES)}")
    address = None if arguments.list else parse_address(arguments.object)
    with _bus_of(arguments) as inspection:
        if address is None:
            result, text = _list_objects(inspection, arguments.position)
        else:
            result, text = _transfer(inspection, arguments, *address)
    if not printed_json(arguments, result):
        sys.stdout.write(text)
    return Exit.OK


def _transfer(
    inspection: Inspection, arguments: argparse.Namespace, index: int, subindex: int
) -> tuple[dict[str, Any], str]:
    from drivers.ethercat.bus.objects import ObjectValueError, decode, encode

    place = f"{index:04X}:{subindex:02X}"
    entry = _entry(inspection, arguments.position, index, subindex)
    kind = arguments.type or (entry.type if entry else None)
    document: dict[str, Any] = {"object": place, "name": entry.name if entry else None}
    if arguments.write is not None:
        if kind is None:
            raise CliError(f"{place}: the drive does not tell the type of this object: give --type")
        raw = encode(kind, arguments.write)
        inspection.sdo_write(arguments.position, index, subindex, raw)
    else:
        raw = inspection.sdo_read(arguments.position, index, subindex)
        kind = kind or "hex"
    try:
        value = decode(kind, raw)
    except ObjectValueError as error:
        if arguments.type is not None:
            raise CliError(f"{place}: {error}") from error
        kind, value = "hex", raw.hex()  # the drive deviates from its own description
    document |= {"type": kind, "value": value, "raw": raw.hex(), "written": arguments.write is not None}
    name = f", {_shared.one_line(entry.name)}" if entry and entry.name else ""
    verb = " written" if arguments.write is not None else ""
    return document, f"{place} = {_shared.value_text(value, kind)}{verb} ({kind}{name})\n"


def _entry(inspection: Inspection, position: int, index: int, subindex: int) -> ObjectEntry | None:
    from drivers.ethercat.errors import SdoError, SdoTimeoutError

    try:
        return inspection.describe(position, index).entry(subindex)
    except SdoTimeoutError:
        raise
    except SdoError:  # no SDO information, or object not listed: the transfer itself decides
        return None


def _list_objects(inspection: Inspection, position: int) -> tuple[dict[str, Any], str]:
    from drivers.ethercat.diagnostics.inspect import read_value

    objects, rows = [], []
    for index in inspection.object_indices(position):
        info = inspection.describe(position, index)
        entries = []
        if info.kind != "variable":
            rows.append((f"{index:04X}", info.kind, "", info.name, ""))
        for entry in info.entries:
            value = read_value(inspection, position, index, entry.subindex, entry.type) if entry.readable else None
            place = f"{index:04X}:{entry.subindex:02X}"
            facts = {"object": place, "name": entry.name, "type": entry.type, "bits": entry.bits}
            entries.append(facts | {"access": entry.access_text, "value": value})
            shown = "" if value is None else _shared.value_text(value, entry.type)
            if len(shown) > _MAX_VALUE:
                shown = shown[:_MAX_VALUE] + "..."
            rows.append((place, entry.type, entry.access_text, entry.name, shown))
        objects.append({"index": f"{index:04X}", "name": info.name, "kind": info.kind, "entries": entries})
    text = table(("object", "type", "access", "name", "value"), rows)
    return {"position": position, "objects": objects}, text


def run_pdo(arguments: argparse.Namespace) -> int:
    """Show the process data of one slave."""
    from drivers.ethercat.bus.eeprom import read_sii
    from drivers.ethercat.diagnostics.inspect import read_mapping

    with _bus_of(arguments) as inspection:
        mapping = read_mapping(inspection, arguments.position, read_sii(inspection, arguments.position))
    directions = (("outputs", mapping.outputs), ("inputs", mapping.inputs))
    images = {
        way: {"bytes": _shared.image_bytes(pdos), "pdos": [_pdo_dict(pdo) for pdo in pdos]} for way, pdos in directions
    }
    if not printed_json(arguments, {"position": arguments.position, "source": mapping.source} | images):
        sys.stdout.write("\n".join(_shared.image_text(way, pdos) for way, pdos in directions))
    return Exit.OK


def _pdo_dict(pdo: MappedPdo) -> dict[str, Any]:
    entries = [
        {"entry": str(e), "offset_bits": e.offset_bits, "bits": e.bits, "type": e.type or None, "name": e.name}
        for e in pdo.entries
    ]
    return {"index": f"{pdo.index:04X}", "name": pdo.name, "entries": entries}
