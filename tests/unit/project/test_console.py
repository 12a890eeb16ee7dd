"""The comparison of console output with documentation pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.console import check_page, differs, renewed, steps, varying

PAGE = """# Title

```console
$ printf 'a 0.0646 s\\nsecond\\nthird\\n'
a 0.0647 s
...
third
$ echo one \\
    two
one two
```

```sh
$ not this
```
"""


def test_commands_of_a_page() -> None:
    found = steps(PAGE)
    assert [step.command for step in found] == [r"printf 'a 0.0646 s\nsecond\nthird\n'", "echo one \\\n    two"]
    assert [step.shown for step in found] == [("a 0.0647 s", "...", "third"), ("one two",)]


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (["R 0.99991, 62 of 64"], ["R  0.99985, 62 of 64"]),
        (["a", "...", "z"], ["a", "b", "c", "z"]),
        (["a", "..."], ["a"]),
        (["in ... s"], ["in 12.3 s"]),
        (["  joints  a, b"], ["  joints    a, b"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.2e-05"]),
        (["k1 3.90e+04"], ["k1 3.91e+04"]),
        (["k1 3.9000e+04"], ["k1 3.8810e+04"]),
        (["R 0.9"], ["R 0.8"]),
        ([], []),
    ],
)
def test_the_same(shown: list[str], lines: list[str]) -> None:
    assert differs(shown, lines) == ""


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (["R 0.9"], ["R 0.7"]),
        (["0.0646 s"], ["0.0650 s"]),
        (["62 of 64"], ["61 of 64"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.6e-05"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.21e-06"]),
        (["k1 3.90e+04"], ["k1 3.87e+04"]),
        (["a", "z"], ["a", "b", "z"]),
        (["a", "...", "z"], ["a", "b"]),
        (["a"], ["a", "b"]),
        (["a", "b"], ["a"]),
        (["joint_1"], ["joint_2"]),
        (["value -0.5"], ["value 0.5"]),
        ([], ["something"]),
    ],
)
def test_not_the_same(shown: list[str], lines: list[str]) -> None:
    assert differs(shown, lines)


def test_a_page_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("third\n", "fourth\n").replace("\\nfourth\\n", "\\nthird\\n"))
    with pytest.raises(AssertionError, match="'fourth' is shown"):
        check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("echo one", "false; echo one"))
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


def test_what_is_left_out_stays_so() -> None:
    assert renewed(PAGE, [["a 0.1 s", "x"], ["three"]]) == PAGE.replace("one two\n", "three\n")


def page_of(shown: str, varies: str) -> str:
    return f"<!-- varies: {varies} -->\n\n```console\n$ command\n{shown}\n```\n"


@pytest.mark.parametrize(
    ("shown", "varies", "line", "alike"),
    [
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 7 s, 3 of 4", True),
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 61 s, 3 of 4", False),
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up 7 s, 2 of 4", False),
        ("up 12 s, 3 of 4", r"up (\d+) s within 1..60", "up for 7 s, 3 of 4", False),
        ("up 12 s, 3 of 4", r"up (\S+) s within 1..60", "up 7:00 s, 3 of 4", False),
        ("at 2026-11-22 05:53:58", r"at (\S+ \S+)", "at 2027-01-02 15:00:00", True),
        ("at 2026-11-22 05:53:58", r"at (\S+ \S+)", "at no time", False),
        ("a-20261122T055358.mcap", r"a-(\d+T\d+)\.mcap", "a-20270102T150000.mcap", True),
        ("content 66a8804fc7c1", r"content (\w+)", "content 00a880400000", True),
        ("content 66a8804fc7c1", r"content (\w+)", "content missing", False),
        ("1 to 2", r"(\d+) to (\d+) within any, 0..6", "345 to 6", True),
        ("1 to 2", r"(\d+) to (\d+) within any, 0..6", "345 to 7", False),
        ("−1.5 N", r"(\S+) N within -2..-1", "−1.9 N", True),
        ("−1.5 N", r"(\S+) N within -2..-1", "1.9 N", False),
        ("| a |  7 |\n|━━━━|━━|", r"a \| (\d+) within 0..1e5", "| a | 71234 |\n|━━━━|━━━━━|", True),
    ],
)
def test_what_is_declared_to_vary_may_and_nothing_else(shown: str, varies: str, line: str, alike: bool) -> None:
    patterns = varying(page_of(shown, varies))
    assert (differs(shown.splitlines(), line.splitlines(), patterns) == "") == alike


@pytest.mark.parametrize(
    ("varies", "words"),
    [
        (r"up \d+ s", "no group"),
        (r"down (\d+) s", "nowhere"),
        (r"(\w+) 12 s", "no figure"),
        (r"(.*)", "no figure"),
        (r"up (\d+) s", "any number"),
        (r"up (\d+) s within 13..60", "out of its bounds"),
        (r"up (\d+) s, (\d) of within 1..60", "2 groups, and 1 bounds"),
        (r"up (\d+) s within little", "neither LOW..HIGH nor any"),
    ],
)
def test_a_page_may_not_declare_anything_to_vary(varies: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        varying(page_of("up 12 s, 3 of 4", varies))


def test_commands_of_a_page_share_a_shell(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ mkdir inner && cd inner && X=7\n$ echo $X; basename $PWD\n7\ninner\n$ cat\n```\n")
    check_page(page, tmp_path, os.environ)


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
