"""Each row of docs/faults.md names an existing test that CI runs."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "faults.md"
GROUPS = ["Bus", "Data", "Estimator", "Transport", "Storage", "Process", "Time", "Security"]


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
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| fault ")]


@pytest.mark.parametrize(
    ("decorator", "soak"),
    [
        ("pytest.mark.soak", True),
        ("pytest.mark.unit", False),
        ("pytest.mark.parametrize('k', [1, pytest.param(2, marks=pytest.mark.soak)])", False),
        ("pytest.mark.parametrize('k', [pytest.param(k, marks=pytest.mark.soak) for k in (1, 2)])", True),
        ("pytest.mark.parametrize('k', [*(pytest.param(k, marks=pytest.mark.soak) for k in SOME), 3])", False),
        ("pytest.mark.parametrize('k', [pytest.param(k, marks=pytest.mark.soak) if k else k for k in SOME])", False),
        ("pytest.mark.parametrize(('a', 'b'), argvalues=(pytest.param(1, 2, marks=[pytest.mark.soak]),))", True),
        ("pytest.mark.parametrize('k', SOME)", False),
    ],
)
def test_a_test_all_of_whose_parameter_sets_are_soak_is_soak(decorator: str, soak: bool) -> None:
    (function,) = ast.parse(f"@{decorator}\ndef test(): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert is_soak("tests/unit/test_x.py", function) == soak


def test_every_group_has_faults() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.M) == GROUPS
    for part in text.split("\n## ")[1:]:
        assert part.count("\n| ") > 3, part.splitlines()[0]


def test_every_fault_has_a_test_that_ci_runs() -> None:
    for fault, _, cell in rows():
        name = cell.strip("`")
        file, _, function = name.partition("::")
        assert function in functions(ROOT / file), (fault, name)
        assert not is_soak(file, functions(ROOT / file)[function]), (fault, name)
