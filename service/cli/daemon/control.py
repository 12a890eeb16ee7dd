"""`thetad control`: make a request of a running daemon."""

import argparse
import json
from typing import Any

from service.cli._common import CliError, Exit, add_run, print_json
from service.cli._remote import add_control_flags, request
from service.protocol.control import VERBS
from service.protocol.endpoints import ANSWER_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("verb", help="what to ask for; see below")
    parser.add_argument(
        "arguments", nargs="*", metavar="NAME=VALUE", help="arguments of the verb; arm=NAME where there are several"
    )
    add_control_flags(parser)
    add_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Make the request and print its result."""
    values: dict[str, Any] = {}
    for text in arguments.arguments:
        name, equals, value = text.partition("=")
        if not equals or name in ("verb", "timeout_s"):
            raise CliError(f"argument {text!r}: expected NAME=VALUE")
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = value
    if arguments.verb == "activate" and "model" in values:
        from service.models.document import load_model

        model = load_model(str(values.pop("model")))
        values |= model.values | ({"elastic": model.springs} if model.springs else {})
    if arguments.timeout == ANSWER_S and arguments.verb in VERBS and VERBS[arguments.verb].within_s > ANSWER_S:
        request(arguments, "ping")  # first check that a daemon is there, because the request itself may take long
        arguments.timeout = VERBS[arguments.verb].within_s
    print_json(request(arguments, arguments.verb, **values))
    return Exit.OK
