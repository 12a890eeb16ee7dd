"""`thetad deploy`: install the daemon as a system service."""

import argparse
import os
from pathlib import Path
from typing import Any

from service.cli._common import CliError, Exit, Parser, UnavailableError, add_action, add_run, printed_json, read_help
from service.deployment.install import HOME, DeployError, Plan, make_plan

HELP = read_help(__file__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    install = add_action(actions, "install", "put everything in place", HELP)
    install.epilog = HELP["epilog"]
    add = install.add_argument
    add("--dry-run", "-n", action="store_true", help="show what would be done, and do nothing")
    add("--prefix", type=Path, metavar="DIR", help="folder with the .venv of the service (default: this clone)")
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="prepare the file system in DIR, not this host's")
    add("--interface", metavar="IF", help="network card of an EtherCAT bus")
    add("--force", action="store_true", help="replace files that differ, and keep them as NAME.old")
    add_run(install, run_install)


def run_install(arguments: argparse.Namespace) -> int:
    """Make the plan, and apply it unless this is a dry run."""
    root, prefix = arguments.root.resolve(), arguments.prefix or HOME
    if not prefix.is_absolute():
        raise CliError(f"--prefix: {prefix} is not absolute; the service needs the whole path")
    if not root.is_dir():
        raise CliError(f"--root: {root} is not a folder")
    _check_interface(arguments.interface, root)
    if not arguments.dry_run and os.geteuid() != 0:
        raise CliError("deploy install: needs root: sudo; with --dry-run it shows what it would do")
    try:
        plan = make_plan(root, prefix, arguments.interface, force=arguments.force)
        done = not arguments.dry_run and not plan.hindrances
        if done:
            plan.apply()
    except DeployError as error:
        raise UnavailableError(f"deploy install: {error}") from error
    if not printed_json(arguments, _document(plan, done)):
        _print(plan, done)
    wrong = set(plan.hindrances) - set(plan.first if arguments.dry_run else ())
    return Exit.NO if wrong else Exit.OK


def _check_interface(interface: str | None, root: Path) -> None:
    """Raise `CliError` unless the card's name is valid, and the card exists if this host is prepared."""
    if interface is None:
        return
    from drivers.ethercat.bus.interface import check_name
    from service.doctor.facts import card_names

    check_name(interface)
    if root == Path("/") and interface not in card_names():
        raise CliError(f"--interface: there is no {interface}; there is: {', '.join(card_names()) or 'none'}")


def _document(plan: Plan, done: bool) -> dict[str, Any]:
    return {
        "done": done, "root": plan.root, "prefix": plan.prefix,
        "files": [{"path": file.target, "source": file.source, "state": file.state} for file in plan.files],
        "commands": [list(command) for command in plan.commands], "hindrances": list(plan.hindrances),
    }  # fmt: skip


def _print(plan: Plan, done: bool) -> None:
    for file in plan.files:
        print(f"{file.state:8} {file.target}")
    for command in plan.commands:
        print(f"run      {' '.join(command)}")
    for hindrance in plan.hindrances:
        print(f"not done: {hindrance}")
    if done:
        print("done; edit /etc/thetad/thetad.toml, look at it with `thetad doctor -c`, then: systemctl start thetad")
    elif not plan.hindrances:
        print("nothing was done (--dry-run)")
