"""Each row of docs/faults.md names an existing test that CI runs."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "faults.md"
GROUPS = ["Bus", "Data", "Estimator", "Transport", "Storage", "Process", "Time", "Security"]


def is_soak(file: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test runs in `make soak` only."""
    return file.startswith("tests/soak/") or any(
        "mark.soak" in ast.unparse(each) for each in function.decorator_list if "parametrize" not in ast.unparse(each)
    )


@lru_cache
def functions(file: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| fault ")]


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
