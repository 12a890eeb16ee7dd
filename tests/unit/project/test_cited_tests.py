"""Tests and files that pages name exist, and the tests run in CI; every fault has one; every alarm is listed."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
_CITED = re.compile(r"(tests/[\w/]+\.py)::(?:\w+::)?(\w+)")


def is_soak(file: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test runs in `make soak` only, by its folder or its mark; single parameter sets are not looked at."""
    return file.startswith("tests/soak/") or any(
        "mark.soak" in ast.unparse(each) and "parametrize" not in ast.unparse(each) for each in function.decorator_list
    )


@lru_cache
def functions(file: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_tests_that_pages_name_exist_and_run_in_ci() -> None:
    cited = [(page.name, *found) for page in PAGES for found in _CITED.findall(page.read_text(encoding="utf-8"))]
    assert len(cited) > 100
    gone = [each for each in cited if each[2] not in functions(ROOT / each[1])]
    assert gone == []
    assert [each for each in cited if is_soak(each[1], functions(ROOT / each[1])[each[2]])] == []


def test_every_fault_has_a_test() -> None:
    parts = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").split("\n## Tests\n")
    faults, tests = (re.findall(r"^\| ([A-Z]+\d+) \|(.*)", part, re.MULTILINE) for part in parts)
    assert len({number for number, _ in faults}) == len(faults) > 150
    assert [(number, bool(_CITED.search(row))) for number, row in tests] == [(number, True) for number, _ in faults]


def test_every_alarm_is_there() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    alarms = {rule["alert"] for group in groups for rule in group["rules"]}
    table = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split("## Alarms")[1].split("\n## ")[0]
    assert set(re.findall(r"`(Thetad\w+)`", table)) == alarms


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/packages.md"])
def test_files_that_the_pages_name_exist(page: str) -> None:
    named = set(re.findall(r"`((?:service|sim_backend|drivers|rt_core|tests|benchmarks|docs|\.ci)/[\w./-]*)`",
                           (ROOT / page).read_text(encoding="utf-8")))  # fmt: skip
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_messages_of_troubleshooting_are_in_the_source() -> None:
    sources = [
        path for root in ("rt_core", "drivers", "sim_backend", "service") for path in (ROOT / root).rglob("*.py")
    ]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    texts = "\n".join(str(n.value) for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant))
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = [
        code for cell in re.findall(r"^\| (.*?) \| ", page, re.MULTILINE) for code in re.findall("`([^`]+)`", cell)
    ]
    assert len(quoted) > 100
    assert [code for code in quoted if not all(part.strip() in texts for part in code.split("..."))] == []
