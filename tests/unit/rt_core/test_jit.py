"""Compiled code is renewed when anything it was made from changes, or it is damaged."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rt_core.jit import imported_sources

ROOT = Path(__file__).resolve().parent.parent.parent.parent
INNER = "from rt_core.jit import kernel\nFACTOR = {}\n@kernel\ndef inner(x):\n    return FACTOR * x\n"
OUTER = "from rt_core.jit import jit\n{}\n@jit\ndef outer(x):\n    return inner(x)\n"
MAIN = "from parts.outer import outer\nprint(outer(1.0), sum(outer.stats.cache_hits.values()))\n"


def write_package(folder: Path, outer: str, inner: str = "") -> Path:
    package = folder / "parts"
    package.mkdir(parents=True)
    for name, source in (("__init__", ""), ("outer", outer), ("inner", inner)):
        (package / f"{name}.py").write_text(source)
    return package


def run(folder: Path, first: str = "") -> list[str]:
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", first + MAIN],
        env=environment, capture_output=True, text=True, check=True, cwd=folder, timeout=120,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.slow
def test_a_change_in_its_own_or_another_file_renews_the_code(tmp_path: Path) -> None:
    package = write_package(tmp_path, OUTER.format("from .inner import inner"), INNER.format(2.0))
    assert run(tmp_path) == ["2.0", "0"]
    assert run(tmp_path) == ["2.0", "1"]  # from the cache
    (package / "inner.py").write_text(INNER.format(3.0))
    assert run(tmp_path) == ["3.0", "0"]
    outer = package / "outer.py"
    outer.write_text(outer.read_text().replace("inner(x)", "inner(x) + 2.0"))
    assert run(tmp_path) == ["5.0", "0"]


def test_compiled_code_may_be_taken_into_another_clone_if_its_sources_are_the_same(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_package(tmp_path / name, OUTER.format("from parts.inner import inner"), INNER.format(2.0))
    assert run(tmp_path / "first") == ["2.0", "0"]
    for source in (tmp_path / "second").rglob("*.py"):
        os.utime(source, (1e9, 1e9))  # written at another time
    shutil.copytree(tmp_path / "first" / "parts" / "__pycache__", tmp_path / "second" / "parts" / "__pycache__")
    assert run(tmp_path / "second") == ["2.0", "1"]
    (tmp_path / "second" / "parts" / "inner.py").write_text(INNER.format(3.0))
    assert run(tmp_path / "second") == ["3.0", "0"]


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Path:
    """A folder in which `outer` has been compiled, of one file of code."""
    write_package(folder, "from rt_core.jit import jit\n@jit\ndef outer(x):\n    return 2.0 * x\n")
    assert run(folder) == ["2.0", "0"]
    return folder


def code_of(folder: Path) -> Path:
    [file] = folder.rglob("*.nbc")
    return file


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes((content[at] ^ 0x10,)) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[: len(content) // 2], lambda content: flip(content, 0),
     lambda content: flip(content, len(content) // 2)],
    ids=["cut off", "digest", "a bit"],
)  # fmt: skip
def test_damaged_code_is_compiled_again(compiled: Path, damage: Callable[[bytes], bytes]) -> None:
    file = code_of(compiled)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert run(compiled) == ["2.0", "0"]
    assert code_of(compiled).read_bytes() == whole


def test_code_that_cannot_be_kept_is_run_all_the_same(compiled: Path) -> None:
    file = code_of(compiled)
    file.unlink()
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); "
    assert run(compiled, "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " + limited) == ["2.0", "0"]
    assert not list(file.parent.glob("*.nbc*"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from . import near", {"parts/deep/__init__.py", "parts/deep/near.py"}),
        ("from .near import x", {"parts/deep/near.py"}),
        ("from .. import far", {"parts/__init__.py", "parts/far.py"}),
        ("from ..far import x", {"parts/far.py"}),
        ("from parts import far", {"parts/__init__.py", "parts/far.py"}),
        ("import parts.deep.near", {"parts/deep/near.py"}),
        ("from .absent import x\nimport numpy", set()),
        ("from . import (\n    absent,  # a, b\n    near as n,\n)", {"parts/deep/__init__.py", "parts/deep/near.py"}),
        ("import numpy, \\\n    parts.far as far", {"parts/far.py"}),
        ("def f():\n    from parts import far  # late", {"parts/__init__.py", "parts/far.py"}),
    ],
)
def test_imports_are_resolved(tmp_path: Path, line: str, expected: set[str]) -> None:
    deep = tmp_path / "parts" / "deep"
    deep.mkdir(parents=True)
    for file in (deep.parent / "__init__.py", deep.parent / "far.py", deep / "__init__.py", deep / "near.py"):
        file.write_text("")
    (deep / "own.py").write_text(line)
    assert {f.relative_to(tmp_path).as_posix() for f in imported_sources(deep / "own.py")} == expected
