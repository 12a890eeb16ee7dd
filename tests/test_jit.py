"""Compiled code is renewed when anything it was made from changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INNER = "from rt_core.jit import kernel\nFACTOR = {}\n@kernel\ndef inner(x):\n    return FACTOR * x\n"
OUTER = "from rt_core.jit import jit\nfrom parts.inner import inner\n@jit\ndef outer(x):\n    return inner(x)\n"
MAIN = "from parts.outer import outer\nprint(outer(1.0), sum(outer.stats.cache_hits.values()))\n"


def run(folder: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        env=environment, capture_output=True, text=True, check=True, cwd=folder, timeout=120,
    )  # fmt: skip
    return done.stdout.split()


def test_a_change_in_another_file_renews_the_callers_code(tmp_path: Path) -> None:
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "outer.py").write_text(OUTER)
    (package / "inner.py").write_text(INNER.format(2.0))
    assert run(tmp_path) == ["2.0", "0"]
    assert run(tmp_path) == ["2.0", "1"]  # from the cache
    (package / "inner.py").write_text(INNER.format(3.0))
    assert run(tmp_path) == ["3.0", "0"]
