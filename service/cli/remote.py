"""What the commands share that talk to a running daemon."""

from __future__ import annotations

import argparse
from typing import Any

from service.cli.common import CliError, UnavailableError


def add_control_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--control ENDPOINT` and `--timeout S`."""
    parser.add_argument(
        "--control",
        default="tcp://127.0.0.1:9873",
        metavar="ENDPOINT",
        help="control endpoint of the daemon (default: %(default)s)",
    )
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="longest wait (default: %(default)s)")


def request(endpoint: str, verb: str, timeout_s: float, **args: Any) -> dict[str, Any]:
    """Make one request; raises `UnavailableError` if no daemon answers, `CliError` if it refuses."""
    from service.client import Control, ControlError, UnreachableError

    try:
        with Control(endpoint) as control:
            return control.request(verb, timeout_s=timeout_s, **args)
    except UnreachableError as error:
        raise UnavailableError(str(error)) from error
    except ControlError as error:
        if error.type in ("unavailable", "timeout"):
            raise UnavailableError(error.message) from error
        raise CliError(error.message) from error
