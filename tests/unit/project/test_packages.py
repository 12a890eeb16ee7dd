"""The checks of packages find what they are for, and the pages that lead through the code name files that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("rt_core", "drivers", "sim_backend", "service")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, with the configuration of the import contracts."""
    folder = tmp_path_factory.mktemp("copy")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    return folder


def doors(root: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, root / ".ci/check_doors.py"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def contracts(root: Path) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout


def test_the_doors_are_in_order() -> None:
    assert doors(ROOT)[0] == 0, doors(ROOT)[1]


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("rt_core/extra/__init__.py", '"""One line."""\n', "rt_core/extra/__init__.py: no __all__"),
        ("rt_core/extra/__init__.py", '"""One line."""\n__all__ = []\n', "does not say where to start"),
        ("rt_core/model/extra.py", "", "__all__ does not name extra"),
        ("drivers/_extra.py", "from service.web import _cache\n", "internal to service.web"),
        ("drivers/_extra.py", "def f():\n    from service.web._cache import Cache\n", "internal to service.web"),
        ("drivers/_extra.py", "from rt_core.jit import _hidden\n", "internal to rt_core"),
    ],
)
def test_a_door_that_is_not_in_order_is_found(copy: Path, file: str, text: str, found: str) -> None:
    path = copy / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    try:
        code, printed = doors(copy)
        assert code == 1
        assert found in printed
    finally:
        path.unlink()
        if path.parent.name == "extra":
            path.parent.rmdir()


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("rt_core/types.py", "def late():\n    import drivers.frame\n", "Imports point down only"),
        ("service/io/sockets.py", "def late():\n    import service.config.load\n", "Packages of the service"),
        ("sim_backend/errors.py", "import sim_backend.arm.robot\n", "No cycle among packages"),
    ],
    ids=["upward", "layer", "cycle"],
)
def test_an_import_that_breaks_a_contract_is_found(copy: Path, file: str, line: str, broken: str) -> None:
    before = (copy / file).read_text(encoding="utf-8")
    (copy / file).write_text(f"{before}\n\n{line}", encoding="utf-8")
    try:
        code, printed = contracts(copy)
        assert code == 1
        assert re.search(rf"^{broken}.* BROKEN$", printed, re.M), printed
    finally:
        (copy / file).write_text(before, encoding="utf-8")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/packages.md"])
def test_files_that_the_pages_name_exist(page: str) -> None:
    named = set(re.findall(r"`((?:service|sim_backend|drivers|rt_core|tests|benchmarks|docs|\.ci)/[\w./-]*)`",
                           (ROOT / page).read_text(encoding="utf-8")))  # fmt: skip
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
