"""`thetad ads`: inspect an ADS server, and check whether an arm can be read from it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, Exit, Run, add_run, number, printed_json, read_help
from service.cli.hardware._shared import configured_driver, table

if TYPE_CHECKING:
    from drivers.ads.config import AdsConfig, Target

HELP = read_help(__file__)

_MAX_VALUE = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=type(parser))
    _add_parser(what, "info", run_info, "name, version and state of the server")
    symbols = _add_parser(what, "symbols", run_symbols, "list the variables")
    symbols.add_argument("--match", default="", metavar="PATTERN", help="part of a name, or a pattern with *")
    read = _add_parser(what, "read", run_read, "read one variable of any type")
    read.add_argument("symbol", metavar="SYMBOL", help="such as MAIN.fSetpoint")
    write = _add_parser(what, "write", run_write, "write one variable of any type", HELP["write"])
    write.add_argument("symbol", metavar="SYMBOL", help="such as MAIN.fSetpoint")
    write.add_argument("value", metavar="VALUE", help="as JSON; of an enumeration also a name")
    write.add_argument("--non-finite", action="store_true", help="write NaN and infinity, too")
    check = what.add_parser(
        "check", help="could an arm be read: route, state, variables, clock", description=HELP["description"]
    )
    _add_configuration(check, required=True)
    seconds = number(0.5, 600.0)
    check.add_argument("--seconds", type=seconds, default=2.0, metavar="S", help="how long to look (default: 2 s)")
    add_run(check, run_check)


def _add_parser(what: Any, name: str, run: Run, help_: str, description: str = HELP["description"]) -> Any:
    parser = what.add_parser(name, help=help_, description=description)
    add = parser.add_argument
    add("target", metavar="TARGET", help="AMS Net ID[:port], or - with -c FILE")
    add("--host", metavar="ADDRESS", help="name or address of the controller")
    add("--local-net-id", metavar="ID", help="AMS Net ID of this computer (default: its address and .1.1)")
    add("--timeout-ms", type=float, default=500.0, metavar="MS", help="of one request (default: %(default)s)")
    _add_configuration(parser)
    add_run(parser, run)
    return parser


def _add_configuration(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", required=required, help="configuration of an arm")
    parser.add_argument("--arm", metavar="NAME", help="arm of the configuration (default: the only one on ADS)")


def _configured(arguments: argparse.Namespace) -> AdsConfig:
    from drivers.ads.config import AdsConfig

    return configured_driver(arguments, AdsConfig, "ADS")[1]


def _target(arguments: argparse.Namespace) -> Target:
    from pydantic import ValidationError

    from drivers.ads.config import AdsConfig

    if (arguments.target == "-") != (arguments.config is not None):
        raise CliError("give either TARGET, or - and -c FILE")
    if arguments.config is not None:
        return _configured(arguments).target
    if arguments.arm is not None:
        raise CliError("--arm chooses an arm of a configuration: give -c FILE")
    net_id, _, port = arguments.target.partition(":")
    given: dict[str, Any] = {"net_id": net_id, "host": arguments.host, "local_net_id": arguments.local_net_id}
    given |= {"timeout_ms": arguments.timeout_ms, "axis": [{"joint": "any"}]}
    if port:
        if not port.isdecimal():
            raise CliError(f"TARGET {arguments.target}: the port {port!r} is not a number")
        given["port"] = int(port)
    try:
        return AdsConfig.model_validate(given).target
    except ValidationError as error:
        wrong = error.errors()[0]
        name = str(wrong["loc"][0])
        shown = "an AMS Net ID is six numbers with dots, such as 5.80.201.232.1.1" if "net_id" in name else wrong["msg"]
        raise CliError(f"{name} {wrong['input']!r}: {shown}") from error


def run_info(arguments: argparse.Namespace) -> int:
    """Show name, version and state."""
    from drivers.ads.diagnostics.inspect import device_info

    _print_facts(arguments, device_info(_target(arguments)))
    return Exit.OK


def run_symbols(arguments: argparse.Namespace) -> int:
    """List variables."""
    from drivers.ads.diagnostics.inspect import symbols

    found = symbols(_target(arguments), arguments.match)
    if not printed_json(arguments, {"symbols": found}):
        rows = [(s["name"], s["type"], str(s["size"]), s["comment"]) for s in found]
        sys.stdout.write(table(("name", "type", "bytes", "comment"), rows) if rows else "no such variable\n")
    return Exit.OK


def run_read(arguments: argparse.Namespace) -> int:
    """Read a variable."""
    from drivers.ads.diagnostics.inspect import read_symbol

    _print_variable(arguments, read_symbol(_target(arguments), arguments.symbol))
    return Exit.OK


def run_write(arguments: argparse.Namespace) -> int:
    """Write a variable."""
    from drivers.ads.diagnostics.inspect import write_symbol

    try:
        value = json.loads(arguments.value)
    except json.JSONDecodeError:
        value = arguments.value
    facts = write_symbol(_target(arguments), arguments.symbol, value, finite=not arguments.non_finite)
    _print_variable(arguments, facts)
    if facts["kept"]:
        return Exit.OK
    sys.stderr.write(f"thetad: {facts['name']} reads back otherwise than it was written: the program writes it, too\n")
    return Exit.NO


def _print_variable(arguments: argparse.Namespace, facts: dict[str, Any]) -> None:
    if printed_json(arguments, facts):
        return
    note = "" if facts["known"] else ", of a type that the server does not describe: hexadecimal"
    sys.stdout.write(f"{facts['name']} = {_text(facts['value'])} ({facts['type']}{note})\n")


def _text(value: Any) -> str:
    """Return a value as JSON, on several lines if it is long."""
    line = json.dumps(value, ensure_ascii=False, default=str)
    return line if len(line) <= _MAX_VALUE else json.dumps(value, ensure_ascii=False, default=str, indent=2)


def run_check(arguments: argparse.Namespace) -> int:
    """Check whether an arm can be read."""
    from drivers.ads.diagnostics.inspect import check

    _print_facts(arguments, check(_configured(arguments), arguments.seconds))
    return Exit.OK


def _print_facts(arguments: argparse.Namespace, facts: dict[str, Any]) -> None:
    if printed_json(arguments, facts):
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {item:.0f}" for key, item in value.items())
        elif isinstance(value, list):
            shown = ", ".join(map(str, value))
        else:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name.replace('_', ' '):18s}{shown}\n")
