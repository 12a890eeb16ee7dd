"""Commands in the documentation: they parse, and their output is compared with the page."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from service.cli.main import build_parser
from tests.lab.console import steps

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
#: Pages with blocks marked `console`, and the test that runs each of their commands.
RUN = {
    "docs/tutorial.md": "tests/daemon/lifecycle/test_tutorial.py",
    "docs/recordings.md": "tests/process/test_recordings_doc.py",
    "docs/payload.md": "tests/unit/service/cli/test_payload_command.py",
    "docs/jobs.md": "tests/daemon/jobs/test_jobs_page.py",
    "docs/doctor.md": "tests/process/doctor/test_command.py",
    "docs/drift.md": "tests/daemon/estimation/test_change_events.py",
    "docs/excitation.md": "tests/unit/service/cli/test_excite_command.py",
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and content of each block of a page."""
    for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(encoding="utf-8"), re.S | re.M):
        yield match.group(2), re.sub(rf"^{match.group(1)}", "", match.group(3), flags=re.M)


def test_what_commands_print_is_compared() -> None:
    shown = {name(page) for page in PAGES if any(language == "console" for language, _ in blocks(page))}
    assert shown == RUN.keys()
    for page, test in RUN.items():
        code = (ROOT / test).read_text(encoding="utf-8")
        assert re.search(r"\bcheck_page\(", code)
        assert Path(page).name in code
    for page in PAGES:  # no output hides in a block of another kind
        for language, content in blocks(page):
            assert language != "sh" or "\n$ " not in f"\n{content}", name(page)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `thetad` of each command of a page."""
    for language, content in blocks(page):
        if language == "sh":
            text = content.replace("\\\n", " ")
            lines = text.splitlines()
        elif language == "console":
            lines = [step.command.replace("\\\n", " ") for step in steps(f"```console\n{content}```\n")]
        else:
            continue
        for line in lines:
            for part in re.split(r" && | \| |; | > | 2> ", line):
                with contextlib.suppress(ValueError):  # a quotation that was split
                    words = shlex.split(part, comments=True)
                    while words and (words[0] in ("sudo", "$") or re.match(r"\w+=|-", words[0])):
                        words = words[2:] if words[0] in ("-u", "-C") else words[1:]
                    if words and re.fullmatch(r"(\S*/)?thetad", words[0]):
                        yield words[1:]


def test_every_command_can_be_given_so() -> None:
    parser, wrong = build_parser(), []
    found = [(page, words) for page in PAGES for words in commands(page)]
    assert len(found) > 100
    for page, words in found:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                parser.parse_args(words)
            except SystemExit:
                wrong.append(f"{name(page)}: thetad {' '.join(words)}: {said.getvalue()}")
    assert not wrong
