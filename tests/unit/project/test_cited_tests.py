"""Tests and files that pages name exist, and the tests run in CI; every fault has one; every alarm is listed."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
_CITED = re.compile(r"(tests/[\w/]+\.py)::(?:\w+::)?(\w+)")


def all_soak(values: ast.expr) -> bool:
    """Whether every parameter set among `values` carries the mark, as far as they are written out."""
    match values:
        case ast.List() | ast.Tuple():
            return bool(values.elts) and all(map(all_soak, values.elts))
        case ast.ListComp() | ast.GeneratorExp():
            return all_soak(values.elt)
        case ast.IfExp():
            return all_soak(values.body) and all_soak(values.orelse)
        case ast.Starred():
            return all_soak(values.value)
        case ast.Call():
            return ast.unparse(values.func) == "pytest.param" and "mark.soak" in ast.unparse(values)
    return False


def is_soak(file: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test runs in `make soak` only: by its folder, its own mark, or that of all its parameter sets."""
    for each in function.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.parametrize":
            given = each.args[1:] + [keyword.value for keyword in each.keywords if keyword.arg == "argvalues"]
            if any(map(all_soak, given)):
                return True
        elif "mark.soak" in ast.unparse(each):
            return True
    return file.startswith("tests/soak/")


@lru_cache
def functions(file: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(
    ("decorator", "soak"),
    [
        ("pytest.mark.soak", True),
        ("pytest.mark.parametrize('k', [1, pytest.param(2, marks=pytest.mark.soak)])", False),
        ("pytest.mark.parametrize('k', [pytest.param(k, marks=pytest.mark.soak) for k in (1, 2)])", True),
        ("pytest.mark.parametrize('k', [*(pytest.param(k, marks=pytest.mark.soak) for k in SOME), 3])", False),
        ("pytest.mark.parametrize('k', [pytest.param(k, marks=pytest.mark.soak) if k else k for k in SOME])", False),
        ("pytest.mark.parametrize(('a', 'b'), argvalues=(pytest.param(1, 2, marks=[pytest.mark.soak]),))", True),
    ],
)
def test_a_test_all_of_whose_parameter_sets_are_soak_is_soak(decorator: str, soak: bool) -> None:
    (function,) = ast.parse(f"@{decorator}\ndef test(): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert is_soak("tests/unit/test_x.py", function) == soak


def test_the_tests_that_pages_name_exist_and_run_in_ci() -> None:
    cited = [(page.name, *found) for page in PAGES for found in _CITED.findall(page.read_text(encoding="utf-8"))]
    assert len(cited) > 100
    gone = [each for each in cited if each[2] not in functions(ROOT / each[1])]
    assert gone == []
    assert [each for each in cited if is_soak(each[1], functions(ROOT / each[1])[each[2]])] == []


def test_every_fault_has_a_test() -> None:
    lines = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| fault ")]
    assert len(rows) > 80
    assert [row for row in rows if not re.search(rf"`{_CITED.pattern}` \|$", row)] == []


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
