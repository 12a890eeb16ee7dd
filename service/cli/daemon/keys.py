"""`thetad keys`: the keys of a daemon and of its clients."""

import argparse
import re
from pathlib import Path
from typing import Any

from service.cli._common import CliError, Exit, Parser, add_action, add_json_flag, fail, printed_json, read_help
from service.protocol.roles import ROLES, Role

HELP = read_help(__file__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    new = actions.add_parser("new", help="make keys", description=HELP["new"])
    new.add_argument("name", nargs="?", metavar="NAME", help="of the client: letters, digits, '.', '_', '-', '@'")
    new.add_argument("--server", action="store_true", help="make the daemon's keys instead")
    new.add_argument("--role", choices=ROLES, help="what the client may do (default: read)")
    new.add_argument("-o", "--output", type=Path, metavar="FILE", help="the client's file (default: NAME.key)")
    new.add_argument(
        "--public", metavar="KEY", help="public key, or a file with it, of a client that has made its keys itself"
    )
    new.set_defaults(run=run_new)
    listing = actions.add_parser("list", help="the clients and their roles", description="Print the clients.")
    listing.set_defaults(run=run_list)
    revoke = add_action(actions, "revoke", "shut a client out", HELP)
    revoke.add_argument("name", metavar="NAME")
    revoke.set_defaults(run=run_revoke)
    for action in (new, listing, revoke):
        place = action.add_mutually_exclusive_group()
        place.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration of the daemon")
        place.add_argument("--keys", type=Path, metavar="DIR", help="its directory of keys (daemon.keys_dir)")
        add_json_flag(action)


def _directory(arguments: argparse.Namespace) -> Path:
    """Return the directory of keys for the command, and warn if another user could replace it."""
    from service.config.load import load_config
    from service.security.files import replacement_risk

    if arguments.keys is not None:
        directory = Path(arguments.keys).absolute()
    elif arguments.config is None:
        raise CliError("whose keys? Give the daemon's configuration (-c FILE) or its directory of keys (--keys DIR)")
    else:
        directory = load_config(arguments.config, needs_key=False).keys_dir
    if warning := replacement_risk(directory):
        fail(warning)
    return directory


def run_new(arguments: argparse.Namespace) -> int:
    """Make keys, and print their public part."""
    directory = _directory(arguments)
    if arguments.server:
        if arguments.name or arguments.role or arguments.output or arguments.public:
            raise CliError("--server: the daemon's keys have no name, role or file of their own")
        result = _new_server(directory)
    elif arguments.name is None:
        raise CliError("whose? Name the client, or say --server")
    else:
        result = _new_client(directory, arguments)
    if not printed_json(arguments, result):
        for name, value in result.items():
            print(f"{name:12} {'' if value is None else value}".rstrip())
    return Exit.OK


def _new_server(directory: Path) -> dict[str, Any]:
    from service.security.files import make_directory
    from service.security.keys import SERVER_KEY, SERVER_PUBLIC, new_pair, write_pair, write_public

    make_directory(directory)
    pair = new_pair()
    write_pair(directory / SERVER_KEY, pair, "Secret key of a thetad daemon: for it alone.")
    (directory / SERVER_PUBLIC).unlink(missing_ok=True)  # belongs to a key that has been removed
    write_public(directory / SERVER_PUBLIC, pair.public, "Public key of a thetad daemon, for its clients.")
    return {"server": True, "public_key": pair.public, "file": str(directory / SERVER_KEY)}


def _new_client(directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    from service.security.keys import is_key, new_pair, read_public, server_public, write_pair
    from service.security.registry import NAME, Registry

    server = server_public(directory)
    if not re.fullmatch(NAME, arguments.name):
        raise CliError(f"{arguments.name!r:.80}: a name has up to 64 letters, digits, '.', '_', '-' and '@'")
    role: Role = arguments.role or "read"
    name, registry = arguments.name, Registry(directory)
    if arguments.public is not None:
        if arguments.output is not None:
            raise CliError("--output: there is nothing to write: with --public the client has its secret key already")
        public = arguments.public if is_key(arguments.public) else read_public(Path(arguments.public))
        client, path = registry.add(name, role, public), None
    else:
        path = (arguments.output or Path(f"{name}.key")).absolute()
        pair = new_pair()
        write_pair(path, pair, f"Secret key of {name}, a client of a thetad daemon: for {name} alone.", server)
        try:
            client = registry.add(name, role, pair.public)
        except BaseException:
            path.unlink()
            raise
    return {
        "name": client.name, "role": client.role, "public_key": client.public_key, "server_key": server,
        "file": None if path is None else str(path),
    }  # fmt: skip


def run_list(arguments: argparse.Namespace) -> int:
    """Print the clients."""
    from service.security.registry import Registry

    directory = _directory(arguments)
    clients = [client.model_dump() for client in Registry(directory).clients()]
    if printed_json(arguments, {"directory": str(directory), "clients": clients}):
        return Exit.OK
    for client in clients:
        revoked = "" if client["revoked"] is None else f"  revoked {client['revoked']}"
        print(f"{client['name']:16} {client['role']:8} {client['public_key']}  since {client['created']}{revoked}")
    if not clients:
        fail("there are no clients yet; `thetad keys new NAME` makes one")
    return Exit.OK


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a client's key."""
    from service.security.registry import Registry

    client = Registry(_directory(arguments)).revoke(arguments.name)
    if not printed_json(arguments, client.model_dump()):
        print(f"{client.name} ({client.role}) is revoked")
    return Exit.OK
