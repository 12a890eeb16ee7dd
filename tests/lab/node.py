"""Programs on Node.js, with the modules that a folder's lock file names."""

import shutil
import subprocess
from pathlib import Path

import pytest


def installed(folder: Path, into: Path) -> Path:
    """Copy what is in `folder` to `into`, install its locked modules there, and return `into`.

    The test that asks is skipped where there is no Node.js.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: install Node.js 20 or newer, and npm")
    for path in folder.iterdir():
        if path.suffix in (".json", ".mjs", ".cjs"):
            shutil.copy(path, into)
    done = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"], cwd=into, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"npm ci failed; does the npm registry answer?\n{done.stderr}"
    return into
