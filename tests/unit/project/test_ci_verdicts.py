"""What the checks make of results: which tests have passed, failed, or no verdict because the machine was elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.append(str(ROOT / ".ci"))
from stalls import exhausted, starved  # noqa: E402

FAILURE = '<failure message="late"/>'
VOID = f'<properties><property name="starved" value="elsewhere"/></properties>{FAILURE}'


def judged(folder: Path, *files: dict[str, str]) -> tuple[int, str]:
    """Exit code and last line for tests by name."""
    paths = []
    for k, cases in enumerate(files, 1):
        path = folder / f"tests{k}.xml"
        inside = "".join(f'<testcase classname="c" name="{name}">{body}</testcase>' for name, body in cases.items())
        path.write_text(f"<testsuites><testsuite>{inside}</testsuite></testsuites>", encoding="utf-8")
        paths.append(str(path))
    return verdict(*paths)


def verdict(*paths: str) -> tuple[int, str]:
    """Exit code and last line for files of results."""
    command = [sys.executable, str(ROOT / ".ci" / "check_junit.py"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("files", "code", "line"),
    [
        ([{"a": "", "b": FAILURE}, {"b": ""}], 0, "2 passed, 0 failed, 0 skipped"),
        ([{"a": "", "b": '<skipped message="no"/>'}], 1, "1 passed, 0 failed, 1 skipped"),
        ([{"a": "", "b": VOID}, {"b": VOID}], 0, "1 passed, 0 failed, 0 skipped"),
        ([{"a": "", "b": VOID}, {"b": FAILURE}], 1, "1 passed, 1 failed, 0 skipped"),
        ([{"b": VOID}], 1, "0 passed, 0 failed, 0 skipped"),
        ([{"a": ""} | {f"b{k}": VOID for k in range(21)}], 1, "1 passed, 0 failed, 0 skipped"),
    ],
)
def test_verdicts(tmp_path: Path, files: list[dict[str, str]], code: int, line: str) -> None:
    assert judged(tmp_path, *files) == (code, line)


def test_a_group_that_was_not_run_is_a_failure(tmp_path: Path) -> None:
    assert judged(tmp_path, {"a": ""}, {}) == (0, "1 passed, 0 failed, 0 skipped")  # nothing was left for a second run
    good, empty, cut = tmp_path / "tests1.xml", tmp_path / "other1.xml", tmp_path / "third1.xml"
    empty.write_text("<testsuites><testsuite></testsuite></testsuites>", encoding="utf-8")
    cut.write_text(good.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    for bad in (empty, cut, tmp_path / "missing1.xml"):
        assert verdict(str(good), str(bad)) == (1, "1 passed, 0 failed, 0 skipped")


@pytest.mark.parametrize(
    ("idle", "since", "found"),
    [
        ([0.01 * k for k in range(11)], 0.0, True),
        ([0.01 * k for k in range(10)], 0.0, False),  # too short
        ([*range(20), *(19.0 + 0.01 * k for k in range(15))], 0.0, True),  # from some time on
        ([*(0.01 * k for k in range(15)), *range(20)], 15.0, False),  # before, but not since
    ],
)
def test_whether_there_was_processor_time_left(tmp_path: Path, idle: list[float], since: float, found: bool) -> None:
    path = tmp_path / "stalls"
    lines = [f"idle {k:.4f} {spent:.2f}\n0 {k}.5 0.015\n" for k, spent in enumerate(idle)]
    path.write_text("".join(lines), encoding="ascii")
    assert bool(exhausted(path, since)) == found


@pytest.mark.parametrize(
    ("lines", "since", "until", "found"),
    [
        (["0 5.0 0.06"], 0.0, 10.0, True),
        (["0 5.0 0.06"], 0.0, 4.9, False),
        (["0 5.0 0.06"], 4.98, 10.0, False),  # what of it was before does not count
        ([f"0 {k / 10} 0.015" for k in range(1, 60)], 0.0, 10.0, True),
        ([f"{k % 2} {k / 10} 0.015" for k in range(1, 60)], 0.0, 10.0, False),  # each processor by itself
        (["0 5.0 0.019"], 4.95, 5.05, False),  # of a moment a share says nothing
    ],
)
def test_stalls(tmp_path: Path, lines: list[str], since: float, until: float, found: bool) -> None:
    path = tmp_path / "stalls"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert bool(starved(path, since, until)) == found
    assert starved(tmp_path / "none", since, until) == ""
