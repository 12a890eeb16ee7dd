"""Shared by all commands: exit codes, the JSON flag, and errors as one line on stderr.

Exit codes: 0 done; 1 done, with a negative result (a model is not trusted, nothing was found); 2 the input or the usage
is wrong; 3 the daemon cannot be reached, or an internal error; 130 interrupted.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from service.protocol.json_values import json_values


class Exit(IntEnum):
    """Exit codes."""

    OK, NO, INPUT, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130


#: A command: takes the parsed arguments, and returns the exit code.
Run = Callable[[argparse.Namespace], int]


class CliError(Exception):
    """Wrong usage or input of a command: printed as one line, exit code 2 by default."""

    def __init__(self, message: str, exit_code: int = Exit.INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UnavailableError(CliError):
    """Something the command needs does not answer: exit code 3."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.UNAVAILABLE)


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps the layout of descriptions and examples, and suggests what may have been meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError:
            from difflib import get_close_matches

            if close := get_close_matches(str(value), map(str, action.choices or ()), 1):
                raise argparse.ArgumentError(action, f"{value!r}: did you mean {close[0]!r}?") from None
            raise


def number(low: float, high: float = math.inf, *, whole: bool = False) -> Callable[[str], Any]:
    """Return the type of an argument: a number, or a whole one, from `low` to `high`; infinity is none."""

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not text.isascii() or "_" in text or text != text.strip():  # which Python reads as numbers
            value = math.nan
        if not (low <= value <= high and value < math.inf):
            bounds = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if whole else ''}number {bounds}")
        return value

    return read


#: Type of an argument: a whole number of at least 0.
whole_number = number(0, whole=True)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--json`: print the result as one JSON object on stdout."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on stdout")


def add_run(parser: argparse.ArgumentParser, run: Run) -> None:
    """Add `--json`, and let `run` execute the command."""
    add_json_flag(parser)
    parser.set_defaults(run=run)


def print_json(value: Any) -> None:
    """Print `value` as one line of strict JSON on stdout."""
    sys.stdout.write(json.dumps(json_values(value), allow_nan=False) + "\n")
    sys.stdout.flush()


def printed_json(arguments: argparse.Namespace, value: Any) -> bool:
    """Print `value` as JSON if `--json` is given; return whether it is."""
    if arguments.json:
        print_json(value)
    return bool(arguments.json)


def json_text(value: Any) -> str:
    """Return `value` as strict JSON for a file."""
    return json.dumps(json_values(value), allow_nan=False, indent=1) + "\n"


def one_line(error: BaseException) -> str:
    """Return the message of `error` for stderr, without a traceback."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or type(error).__name__}"
    return str(error) or type(error).__name__


def fail(message: str) -> None:
    """Print `thetad: message` on stderr."""
    sys.stderr.write(f"thetad: {message}\n")


def write_accepted(args: argparse.Namespace, accepted: bool, write: Callable[[Path], object], why: str) -> str | None:
    """Write a result to --output, unless it is not `accepted` and --force is missing; return the path if written."""
    if args.output is None:
        return None
    if not (accepted or args.force):
        fail(f"{args.output} is not written: {why} (--force writes it anyway)")
        return None
    write(args.output)
    return str(args.output)


def print_verdict(verdict: str, text: str, reasons: Iterable[str], facts: Iterable[tuple[str, str]]) -> None:
    """Print a verdict with its reasons, then facts in two columns."""
    print(f"{verdict}: {text}")
    for reason in reasons:
        print(f"  - {reason}")
    for name, value in facts:
        print(f"{name:21s} {value}")


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return a table as text; columns named in `right` are aligned right."""
    table = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    lines = []
    for row in table:
        cells = (f"{cell:>{w}}" if h in right else f"{cell:<{w}}" for cell, w, h in zip(row, widths, head, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def breakaway_lines(joints: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Return one line for each joint whose starts from rest were observed."""
    lines = []
    for joint, estimate in (joints or {}).items():
        if estimate["value"] is not None:
            lines.append(
                f"{joint}: breakaway friction {estimate['value']:.4g} {estimate['unit']}, 95 % "
                f"{estimate['lower']:.4g} to {estimate['upper']:.4g}, {estimate['status']}, "
                f"from {estimate['starts']} starts"
            )
        elif estimate["seen"]:
            lines.append(f"{joint}: breakaway friction not known: {estimate['reason']}")
    return lines


def read_help(module_file: str) -> dict[str, str]:
    """Return the texts of a command's help, by name, from the file beside its module.

    It begins with the `description`; a line `== epilog ==` begins the text of that name.
    """
    text = Path(module_file).with_suffix(".txt").read_text(encoding="utf-8")
    parts = re.split(r"^== (\w+) ==\n", text, flags=re.MULTILINE)
    return {"description": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def add_action(
    actions: "argparse._SubParsersAction[Any]", name: str, help_text: str, texts: Mapping[str, str]
) -> argparse.ArgumentParser:
    """Add a command of a command; its description is NAME in `texts`, or `help_text`, and its epilog NAME_epilog."""
    description = texts.get(name, f"{help_text[0].upper()}{help_text[1:]}.")
    found: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=description, epilog=texts.get(f"{name}_epilog")
    )
    return found
