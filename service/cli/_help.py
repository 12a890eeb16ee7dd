"""Texts of the help of commands, which are in files beside the modules."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
