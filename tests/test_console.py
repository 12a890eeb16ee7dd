"""The check of what the docs show tells what is wrong, and lets pass what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.console import check_page, differs, renewed, steps

PAGE = """# Title

```console
$ printf 'a 0.0646 s\\nsecond\\nthird\\n'
a 0.0650 s
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
    assert [step.shown for step in found] == [("a 0.0650 s", "...", "third"), ("one two",)]


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (["R 0.99991, 62 of 64"], ["R  0.99985, 62 of 64"]),
        (["a", "...", "z"], ["a", "b", "c", "z"]),
        (["a", "..."], ["a"]),
        (["in ... s"], ["in 12.3 s"]),
        (["  joints  a, b"], ["  joints    a, b"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.2e-05"]),
        (["k1 3.90e+04"], ["k1 3.86e+04"]),
        ([], []),
    ],
)
def test_the_same(shown: list[str], lines: list[str]) -> None:
    assert differs(shown, lines) == ""


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (["R 0.9"], ["R 0.5"]),
        (["62 of 64"], ["61 of 64"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.6e-05"]),
        (["fc1 = 4.21e-05"], ["fc1 = 4.21e-06"]),
        (["k1 3.90e+04"], ["k1 3.79e+04"]),
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
    page.write_text(PAGE.replace("echo one", "exit 3; echo one"))
    with pytest.raises(AssertionError, match="exit code 3"):
        check_page(page, tmp_path, os.environ)
    page.write_text(PAGE.replace("one two\n", "something else\n"))
    monkeypatch.setenv("THETAD_UPDATE_DOCS", "1")
    check_page(page, tmp_path, os.environ)
    assert page.read_text() == PAGE


def test_what_is_left_out_stays_so() -> None:
    assert renewed(PAGE, [["a 0.1 s", "x"], ["three"]]) == PAGE.replace("one two\n", "three\n")
