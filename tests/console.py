"""Commands that a page of the docs shows, and what they print: run, compared, or written anew.

A block marked `console` holds lines that begin with `$ `, commands of a shell, each with what it prints below it.  A
line `...` stands for any number of lines, `...` within a line for any text.  Numbers need not agree to the last digit:
0.0646 stands for what rounds to it within 2 %.  With THETAD_UPDATE_DOCS=1 in the environment the page is written anew
with what the commands print now, where they are shown whole.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TOLERANCE = 0.02
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)", re.ASCII)


@dataclass(frozen=True)
class Step:
    """A command and the lines that it is said to print."""

    command: str
    shown: tuple[str, ...]


def steps(page: str) -> list[Step]:
    """Return the commands of a page, in order; one that ends in a backslash goes on in the next line."""
    found: list[tuple[str, list[str]]] = []
    for block in _BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found[-1][0].endswith("\\") and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            else:
                found[-1][1].append(line)
    return [Step(command, tuple(shown)) for command, shown in found]


def printed(step: Step, folder: Path, environment: Mapping[str, str], timeout_s: float = 600.0) -> list[str]:
    """Run a command in `folder`; returns the lines of its stdout and stderr; fails on an exit code other than 0."""
    done = subprocess.run(
        ["bash", "-c", step.command], cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"$ {step.command}\nexit code {done.returncode}\n{done.stdout}"
    return [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")] if done.stdout.strip() else []


def differs(shown: tuple[str, ...] | list[str], lines: list[str]) -> str:
    """Say where `lines` are not what is shown; empty if they are."""
    if not shown:
        return "" if not lines else f"nothing is shown, printed was {lines[0]!r}"
    at, free = 0, False
    for line in shown:
        if line.strip() == "...":
            free = True
            continue
        while at < len(lines) and free and not _alike(line, lines[at]):
            at += 1
        if at == len(lines) or not _alike(line, lines[at]):
            return f"{line!r} is shown, printed was {lines[at] if at < len(lines) else 'nothing more'!r}"
        at, free = at + 1, False
    return "" if free or at == len(lines) else f"{lines[at]!r} was printed, and is not shown"


def _alike(shown: str, line: str) -> bool:
    """Tell whether a line is what is shown, but for text under `...` and the last digits of numbers."""
    pieces = [_pattern(piece) for piece in shown.strip().split("...")]
    found = re.fullmatch("(?:.*)".join(pattern for pattern, _ in pieces), " ".join(line.split()))
    if found is None:
        return False
    wanted = [number for _, numbers in pieces for number in numbers]
    return all(_near(value, got) for value, got in zip(wanted, found.groups(), strict=True))


def _pattern(text: str) -> tuple[str, list[str]]:
    """Return a regular expression with a group for each number of `text`, and these numbers."""
    text = re.sub(r"\s+", " ", text)
    numbers = [match.group() for match in _NUMBER.finditer(text)]
    fixed = _NUMBER.split(text)
    return r"([-+−]?[\d.]+(?:e[-+]?\d+)?)".join(re.escape(piece) for piece in fixed), numbers


def _near(shown: str, got: str) -> bool:
    if "." not in shown and "e" not in shown:
        return shown == got  # counts and names
    a, b = (float(text.replace("−", "-")) for text in (shown, got))
    mantissa, _, exponent = shown.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))  # what a digit more in the last place is
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) + last


def renewed(page: str, outputs: list[list[str]]) -> str:
    """Return the page with what was printed in place of what is shown, where nothing is left out by `...`."""
    remaining = iter(outputs)

    def block(match: re.Match[str]) -> str:
        lines = []
        for step in steps(f"```console\n{match.group()}```\n"):
            output = next(remaining)
            whole = not any("..." in line for line in step.shown)
            lines += [f"$ {step.command}", *(output if whole else step.shown)]
        return "\n".join(lines) + "\n"

    return _BLOCK.sub(block, page)


def check_page(path: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """Run every command of a page, one after the other in `folder`, and compare."""
    page = path.read_text(encoding="utf-8")
    outputs = []
    for step in steps(page):
        lines = printed(step, folder, environment)
        outputs.append(lines)
        wrong = differs(step.shown, lines)
        if wrong and not os.environ.get("THETAD_UPDATE_DOCS"):
            raise AssertionError("\n".join((str(path), f"$ {step.command}", wrong, "", *lines)))
    if os.environ.get("THETAD_UPDATE_DOCS"):
        path.write_text(renewed(page, outputs), encoding="utf-8")
