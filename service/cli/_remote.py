"""Shared by commands that talk to a running daemon: options, keys, requests."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, UnavailableError
from service.protocol.endpoints import ANSWER_S, CONTROL
from service.security.keys import client_key

if TYPE_CHECKING:
    from service.client import ClientKey, Control, ControlError

#: Errors of requests that are wrong in themselves; any other request may succeed later.
_WRONG = ("bad_request", "unknown_verb", "bad_argument", "denied")


def add_control_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--control ENDPOINT` and `--timeout S`."""
    add_control_flag(parser)
    parser.add_argument(
        "--timeout", type=float, default=ANSWER_S, metavar="S", help="longest wait (default: %(default)s)"
    )


def add_control_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--control ENDPOINT` and the flags of the key."""
    parser.add_argument(
        "--control", default=CONTROL, metavar="ENDPOINT", help="control endpoint of the daemon (default: %(default)s)"
    )
    add_key_flags(parser)


def add_key_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--key FILE` and `--server-key KEY`."""
    parser.add_argument(
        "--key",
        type=Path,
        default=os.environ.get("THETAD_KEY") or None,  # an empty variable counts as unset
        metavar="FILE",
        help="your key, for a daemon that asks for one (default: $THETAD_KEY)",
    )
    parser.add_argument(
        "--server-key", metavar="KEY", help="the daemon's public key, or a file with it, if your key's file names none"
    )


def key_of(arguments: argparse.Namespace) -> ClientKey | None:
    """Return the key given by the options; raises `CliError`, `SecretFileError`."""
    if not arguments.key:
        if arguments.server_key is not None:
            raise CliError("--server-key: is of no use without --key")
        return None
    return client_key(Path(arguments.key), arguments.server_key)


def request(arguments: argparse.Namespace, verb: str, **args: Any) -> dict[str, Any]:
    """Make one request; raises `CliError` if it is refused, `UnavailableError` if it cannot be done now."""
    with connected_control(arguments) as control:
        return control.request(verb, timeout_s=arguments.timeout, **args)


@contextlib.contextmanager
def connected_control(arguments: argparse.Namespace, prefix: str = "") -> Iterator[Control]:
    """Connect to a daemon; raises `CliError` if a request is wrong, `UnavailableError` if it cannot be done now.

    `prefix` is left out of the daemon's messages.
    """
    from service.client import ClientTimeoutError, Control, ControlError, UnreachableError

    try:
        with Control(arguments.control, key_of(arguments)) as control:
            yield control
    except (UnreachableError, ClientTimeoutError) as error:
        raise UnavailableError(str(error)) from error
    except ControlError as error:
        message = error.message.removeprefix(prefix)
        raise (CliError if is_wrong(error) else UnavailableError)(message) from error


def is_wrong(error: ControlError) -> bool:
    """Return whether a request was refused for its content, whatever the daemon's state."""
    return error.type in _WRONG
