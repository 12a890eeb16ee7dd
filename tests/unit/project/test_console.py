"""Console output in the documentation: its comparison with what commands print, and that they all parse."""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli.main import build_parser
from tests.lab.console import check_page, differs, renewed, steps, varying
from tests.lab.files import FILES

PAGE = (FILES / "console_page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shown", "lines", "alike"),
    [
        (["R 0.99991, 62 of 64"], ["R  0.99985, 62 of 64"], True), (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["fc1 = 4.21e-05"], ["fc1 = 4.2e-05"], True), (["R 0.9"], ["R 0.8"], True), ([], [], True),
        (["R 0.9"], ["R 0.7"], False), (["62 of 64"], ["61 of 64"], False),
        (["fc1 = 4.21e-05"], ["fc1 = 4.21e-06"], False), (["a", "z"], ["a", "b", "z"], False),
        (["a", "...", "z"], ["a", "b"], False), (["a", "b"], ["a"], False), (["joint_1"], ["joint_2"], False),
        (["value -0.5"], ["value 0.5"], False), ([], ["something"], False),
    ],
)  # fmt: skip
def test_lines_are_those_shown_up_to_the_last_digits(shown: list[str], lines: list[str], alike: bool) -> None:
    assert (differs(shown, lines) == "") == alike


def test_a_page_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("third\n", "fourth\n").replace("\\nfourth\\n", "\\nthird\\n"))
    with pytest.raises(AssertionError, match="'fourth' is shown"):
        check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("echo one", "false | echo one"))  # what fails in a pipe is told as well
    with pytest.raises(AssertionError, match="exit code 1"):
        check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("echo one", "exit 3; echo one"))
    with pytest.raises(AssertionError, match="exit code 3"):
        check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("one two\n", "something else\n"))
    monkeypatch.setenv("THETAD_UPDATE_DOCS", "1")
    check_page(page, tmp_path, os.environ)
    assert page.read_text() == PAGE
    assert renewed(PAGE, [["a 0.1 s", "x"], ["three"]]) == PAGE.replace("one two\n", "three\n")  # `...` stays so


def page_of(shown: str, varies: str) -> str:
    return f"<!-- varies: {varies} -->\n\n```console\n$ command\n{shown}\n```\n"


@pytest.mark.parametrize(
    ("shown", "varies", "line", "alike"),
    [
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 7 s, 3 of 4", True),
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 61 s, 3 of 4", False),
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 7 s, 2 of 4", False),
        ("at 2026-11-22 05:53:58", r"at (\S+ \S+)", "at 2027-01-02 15:00:00", True),
        ("content 66a8804fc7c1", r"content (\w+)", "content missing", False),
        ("1 to 2", r"(\d+) to (\d+) within any, 0..6", "345 to 7", False),
        ("−1.5 N", r"(\S+) N within -2..-1", "−1.9 N", True),
        ("| a |  7 |\n|━━━━|━━|", r"a \| (\d+) within 0..1e5", "| a | 71234 |\n|━━━━|━━━━━|", True),
    ],
)
def test_what_is_declared_to_vary_may_and_nothing_else(shown: str, varies: str, line: str, alike: bool) -> None:
    patterns = varying(page_of(shown, varies))
    assert (differs(shown.splitlines(), line.splitlines(), patterns) == "") == alike


@pytest.mark.parametrize(
    ("varies", "words"),
    [(r"down (\d+) s", "nowhere"), (r"(.*)", "no figure"), (r"up (\d+) s", "any number"),
     (r"up (\d+) s within 13..60", "out of its bounds")],
)  # fmt: skip
def test_a_page_may_not_declare_anything_to_vary(varies: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        varying(page_of("up 12 s, 3 of 4", varies))


ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
#: Pages with blocks marked `console`, and the test that runs each of their commands.
RUN = {
    "docs/tutorial.md": "tests/daemon/lifecycle/test_tutorial.py",
    "docs/recordings.md": "tests/process/test_recordings_doc.py",
    "docs/payload.md": "tests/unit/service/cli/test_payload_command.py",
    "docs/jobs.md": "tests/daemon/jobs/test_jobs_daemon.py",
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
            lines = content.replace("\\\n", " ").splitlines()
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
