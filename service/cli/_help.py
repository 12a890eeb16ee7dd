"""Texts of the help of commands, which are in files beside the modules."""

from __future__ import annotations

import re
from pathlib import Path


def read_help(module_file: str) -> dict[str, str]:
    """Return the texts of a command's help, by name, from the file beside its module.

    It begins with the `description`; a line `== epilog ==` begins the text of that name.
    """
    text = Path(module_file).with_suffix(".txt").read_text(encoding="utf-8")
    parts = re.split(r"^== (\w+) ==\n", text, flags=re.MULTILINE)
    return {"description": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
