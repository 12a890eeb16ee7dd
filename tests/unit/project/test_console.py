"""The comparison of console output with documentation pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.console import check_page, differs, renewed, varying
from tests.lab.files import FILES

PAGE = (FILES / "console_page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shown", "lines", "alike"),
    [
        (["R 0.99991, 62 of 64"], ["R  0.99985, 62 of 64"], True),
        (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["fc1 = 4.21e-05"], ["fc1 = 4.2e-05"], True),
        (["R 0.9"], ["R 0.8"], True),
        ([], [], True),
        (["R 0.9"], ["R 0.7"], False),
        (["62 of 64"], ["61 of 64"], False),
        (["fc1 = 4.21e-05"], ["fc1 = 4.21e-06"], False),
        (["a", "z"], ["a", "b", "z"], False),
        (["a", "...", "z"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["joint_1"], ["joint_2"], False),
        (["value -0.5"], ["value 0.5"], False),
        ([], ["something"], False),
    ],
)
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
    [
        (r"down (\d+) s", "nowhere"),
        (r"(.*)", "no figure"),
        (r"up (\d+) s", "any number"),
        (r"up (\d+) s within 13..60", "out of its bounds"),
    ],
)
def test_a_page_may_not_declare_anything_to_vary(varies: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        varying(page_of("up 12 s, 3 of 4", varies))


@pytest.mark.parametrize("ends", [True, False])
def test_what_stays_has_to_end_with_the_page(ends: bool, tmp_path: Path) -> None:
    """However much it prints meanwhile: a pipe holds 64 KiB."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "thetad"
    talk = "echo ready\nhead -c 200000 /dev/zero | tr '\\0' x\necho; echo the last line\n"
    program.write_text(f"#!/bin/sh\n{talk}while ! [ -e stop ]; do sleep 0.05; done\n[ $(cat stop) = well ]\n")
    program.chmod(0o755)
    page = tmp_path / "page.md"
    last = "echo well > stop" if ends else "echo badly > stop"
    page.write_text(f"```console\n$ PATH={programs}:$PATH\n$ thetad serve -c x.toml\nready\n$ {last}\n```\n")
    if ends:
        assert [ran.lines for ran in check_page(page, tmp_path, os.environ)] == [[], ["ready"], []]
    else:
        with pytest.raises(AssertionError, match=r"exit code 1; does the page end it\?(.|\n)*the last line$"):
            check_page(page, tmp_path, os.environ)
