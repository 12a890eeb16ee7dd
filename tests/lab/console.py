"""Commands that a page of the docs shows, and what they print: run, compared, or written anew.

A block marked `console` holds lines that begin with `$ `, commands of a shell, each with what it prints below it.  All
of a page run in one shell, one after the other, so `cd` and `source` hold for those that follow; a pipe fails with any
of its commands.  A command
`thetad serve` stays, as in a terminal of its own: what is shown is what it prints at first, and before the page ends it
must have ended, without an error.

What is shown is compared word by word, but for

- numbers with a point or an exponent: 0.0646 stands for what is at most a digit more or less in the last place, or half
  a percent;
- runs of spaces, and of what tables are drawn with;
- a line `...`, which stands for any number of lines, and `...` within a line, for any text;
- figures that the page declares to vary, by a comment `<!-- varies: PATTERN within BOUNDS -->` for each: what the
  groups of the regular expression hold may be another number, time or hash there, and nothing else may.  Of numbers the
  bounds say which, one after the other for each group: `1..300, any`; without numbers there need be none.

With THETAD_UPDATE_DOCS=1 in the environment the page is written anew with what the commands print now, where they are
shown whole.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent.parent
TOLERANCE = 0.005
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)", re.ASCII)
_VARIES = re.compile(r"^<!-- varies: (.+?)(?: within ([^ ,]+(?:, [^ ,]+)*))? -->$", re.MULTILINE)
#: What may stand in place of a figure that varies: a number, a time, a hash.
_FIGURE = re.compile(r"[-+−]?[\d.,:]+(?:[-T \d:.Z+]*)|[0-9a-f]{8,64}")
_PLAIN_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
_MASK = "#"
_RULES = re.compile(r"([━─═])[━─═]+")
_STAYS = re.compile(r"(?:sudo )?(?:\S*/)?thetad serve(?!.*--check)")


@dataclass(frozen=True)
class Step:
    """A command and the lines that it is said to print."""

    command: str
    shown: tuple[str, ...]

    @property
    def stays(self) -> bool:
        """Whether the command does not end by itself."""
        return _STAYS.match(self.command) is not None

    @property
    def whole(self) -> bool:
        """Whether all that the command prints is shown."""
        return not any("..." in line for line in self.shown)


@dataclass(frozen=True)
class Ran:
    """A step, and the lines that it printed."""

    step: Step
    lines: list[str]


def steps(page: str) -> list[Step]:
    """Return the commands of a page, in order; one that ends in a backslash goes on in the next line."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found[-1][0].endswith("\\") and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            else:
                found[-1][1].append(line)
    return [Step(command, tuple(shown)) for command, shown in found]


@dataclass(frozen=True)
class Varying:
    """What may vary: the groups of a pattern, within bounds; None for a group without any."""

    pattern: re.Pattern[str]
    bounds: tuple[tuple[float, float] | None, ...]

    def allows(self, group: int, figure: str) -> bool:
        """Tell whether a group, counted from 1, may hold this figure."""
        bounds = self.bounds[group - 1]
        if bounds is None:
            return _FIGURE.fullmatch(figure) is not None
        return _PLAIN_NUMBER.fullmatch(figure) is not None and bounds[0] <= _value(figure) <= bounds[1]


def varying(page: str) -> list[Varying]:
    """Return what the page declares to vary; each pattern must have a group, and be of use in what is shown."""
    shown = [" ".join(line.split()) for step in steps(page) for line in step.shown]
    found = []
    for text, bounds in _VARIES.findall(page):
        pattern = re.compile(text)
        assert pattern.groups, f"{text!r} has no group: only what groups hold may vary"
        limits = tuple(_bounds(each) for each in bounds.split(", ")) if bounds else (None,) * pattern.groups
        assert len(limits) == pattern.groups, f"{text!r} has {pattern.groups} groups, and {len(limits)} bounds"
        one = Varying(pattern, limits)
        used = [m for line in shown for m in pattern.finditer(line)]
        assert used, f"{text!r} is nowhere in what the page shows"
        for match in used:
            for group, figure in enumerate(match.groups(), 1):
                if figure is None:
                    continue
                assert _FIGURE.fullmatch(figure), f"{text!r} would let {figure!r} vary, which is no figure"
                unbounded = not bounds and _PLAIN_NUMBER.fullmatch(figure)
                assert not unbounded, f"{text!r} lets {figure} be any number: within what?"
                assert one.allows(group, figure), f"{text!r}: {figure} is shown, and out of its bounds"
        found.append(one)
    return found


def _bounds(text: str) -> tuple[float, float] | None:
    if text == "any":
        return None
    low, dots, high = text.partition("..")
    assert dots, f"{text!r} is neither LOW..HIGH nor any"
    return float(low), float(high)


def surroundings(**more: str) -> dict[str, str]:
    """Return an environment in which the command `thetad` is this repository's."""
    programs = (str(Path(sys.executable).parent), os.environ["PATH"])
    sources = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    paths = {"PATH": os.pathsep.join(programs), "PYTHONPATH": os.pathsep.join(filter(None, sources))}
    return os.environ | paths | more


_GOING_S = 2.0  # until a program that stays has something to show


class Staying:
    """A command that stays; what it goes on to print is taken from it, or it would stand still at a full pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.rest: deque[str] = deque(maxlen=50)  # the last lines that it has printed
        self.thread = threading.Thread(target=self._drain)

    def first(self, count: int) -> list[str]:
        """Return its first lines, empty ones if it has ended before, and take the others as they come."""
        lines = [self.process.stdout.readline().rstrip() for _ in range(count)]
        self.thread.start()
        return lines

    def _drain(self) -> None:
        self.rest.extend(line.rstrip()[:200] for line in self.process.stdout)

    def end(self) -> None:
        """Wait for the last line of a process that has ended."""
        if self.thread.is_alive():
            self.thread.join(15.0)


class Shell:
    """A shell whose commands are given one by one; what stays is ended with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = self._start("exec bash -o pipefail", folder, environment)
        self._staying: list[Staying] = []
        self._environment = environment

    @staticmethod
    def _start(program: str, folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", program], cwd=folder, env=dict(environment), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str, timeout_s: float = 600.0) -> list[str]:
        """Run a command; returns the lines of its stdout and stderr; fails on an exit code other than 0."""
        process, lines = self._process, list[str]()
        end: str = "end of the command"
        code: int | None = None
        with self._at_most(process, timeout_s):
            with contextlib.suppress(BrokenPipeError):  # the command before has ended the shell
                process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n{end} %s\\n' $?\n")
                process.stdin.flush()
            for line in process.stdout:
                if line.startswith(f"{end} "):
                    code = int(line.split()[-1])
                    break
                lines.append(line.rstrip())
            if code is None:
                code = process.wait()
        while lines and not lines[-1]:
            lines.pop()
        assert code == 0, "\n".join((f"$ {command}", f"exit code {code}", *lines))
        return lines

    def leave(self, command: str, count: int, timeout_s: float = 300.0) -> list[str]:
        """Start a command that stays, and return the first `count` lines of its stdout."""
        folder, path = self.run('pwd; echo "$PATH"')
        process = self._start(f"exec {command}", Path(folder), {**self._environment, "PATH": path})
        staying = Staying(process)
        self._staying.append(staying)
        with self._at_most(process, timeout_s):
            lines = staying.first(count)
        assert all(lines), f"$ {command}\nended with {process.poll()}, having printed {lines}"
        time.sleep(_GOING_S)  # a reader, too, types the next command after the first frames
        return lines

    def finish(self, timeout_s: float = 30.0) -> None:
        """Wait until what stayed has ended, and check that it ended well."""
        for staying in self._staying:
            with self._at_most(staying.process, timeout_s):
                code = staying.process.wait()
            staying.end()
            last = "\n".join((f"exit code {code}; does the page end it?", *staying.rest))
            assert code == 0, f"{staying.process.args}: {last}"

    @staticmethod
    @contextlib.contextmanager
    def _at_most(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
        """Kill the process and its children after some seconds, so that waiting for it ends."""
        timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*(staying.process for staying in self._staying), self._process):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM if process is not self._process else signal.SIGKILL)
            try:
                process.wait(15.0)
            except subprocess.TimeoutExpired:
                process.kill()
        for staying in self._staying:
            staying.end()
        for process in (*(staying.process for staying in self._staying), self._process):
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def differs(shown: Sequence[str], lines: Sequence[str], patterns: Sequence[Varying] = ()) -> str:
    """Say where `lines` are not what is shown; empty if they are."""
    if not shown:
        return "" if not lines else f"nothing is shown, printed was {lines[0]!r}"
    at, free = 0, False
    for line in shown:
        if line.strip() == "...":
            free = True
            continue
        while at < len(lines) and free and not _alike(line, lines[at], patterns):
            at += 1
        if at == len(lines) or not _alike(line, lines[at], patterns):
            return f"{line!r} is shown, printed was {lines[at] if at < len(lines) else 'nothing more'!r}"
        at, free = at + 1, False
    return "" if free or at == len(lines) else f"{lines[at]!r} was printed, and is not shown"


def _plain(line: str, patterns: Sequence[Varying]) -> str:
    """Return a line with single spaces and short rules, and without the figures that vary."""
    line = _RULES.sub(r"\1", " ".join(line.split()))
    for varying in patterns:
        line = varying.pattern.sub(partial(_masked, varying), line)
    return line


def _masked(varying: Varying, match: re.Match[str]) -> str:
    text, begin = match.group(), match.start()
    for k in range(match.re.groups, 0, -1):  # from the last one, so that places before it stay
        figure = match.group(k)
        if figure is not None and varying.allows(k, figure):
            text = text[: match.start(k) - begin] + _MASK + text[match.end(k) - begin :]
    return text


def _alike(shown: str, line: str, patterns: Sequence[Varying]) -> bool:
    """Tell whether a line is what is shown, but for text under `...`, the last digits of numbers, and what varies."""
    pieces = [_pattern(piece) for piece in _plain(shown, patterns).split("...")]
    found = re.fullmatch("(?:.*)".join(pattern for pattern, _ in pieces), _plain(line, patterns))
    if found is None:
        return False
    wanted = [number for _, numbers in pieces for number in numbers]
    return all(_near(value, got) for value, got in zip(wanted, found.groups(), strict=True))


def _pattern(text: str) -> tuple[str, list[str]]:
    """Return a regular expression with a group for each number of `text`, and these numbers."""
    numbers = [match.group() for match in _NUMBER.finditer(text)]
    fixed = _NUMBER.split(text)
    return r"([-+−]?[\d.]+(?:e[-+]?\d+)?)".join(re.escape(piece) for piece in fixed), numbers


def _near(shown: str, got: str) -> bool:
    if "." not in shown and "e" not in shown:
        return shown == got  # counts and names
    a, b = _value(shown), _value(got)
    mantissa, _, exponent = shown.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))  # what a digit more in the last place is
    return abs(a - b) <= max(TOLERANCE * max(abs(a), abs(b)), last * (1.0 + 1e-9))


def _value(text: str) -> float:
    return float(text.replace("−", "-"))


def renewed(page: str, outputs: list[list[str]]) -> str:
    """Return the page with what was printed in place of what is shown, where nothing is left out by `...`."""
    remaining = iter(outputs)

    def block(match: re.Match[str]) -> str:
        lines = []
        for step in steps(f"```console\n{match.group()}```\n"):
            output = next(remaining)
            lines += [f"$ {step.command}", *(output if step.whole else step.shown)]
        return "\n".join(lines) + "\n"

    return BLOCK.sub(block, page)


def check_page(
    path: Path, folder: Path, environment: Mapping[str, str],
    compare: Callable[[Sequence[str], Sequence[str], Sequence[Varying]], str] = differs,
) -> list[Ran]:  # fmt: skip
    """Run every command of a page, one after the other, beginning in `folder`, compare, and return what was printed."""
    page = path.read_text(encoding="utf-8")
    renew = bool(os.environ.get("THETAD_UPDATE_DOCS"))
    patterns = [] if renew else varying(page)
    ran = []
    with Shell(folder, environment) as shell:
        for step in steps(page):
            lines = shell.leave(step.command, max(len(step.shown), 1)) if step.stays else shell.run(step.command)
            ran.append(Ran(step, lines))
            wrong = compare(step.shown, lines, patterns)
            if wrong and not (renew and step.whole):
                raise AssertionError("\n".join((str(path), f"$ {step.command}", wrong, "", *lines)))
        shell.finish()
    if renew:
        path.write_text(renewed(page, [each.lines for each in ran]), encoding="utf-8")
    return ran
