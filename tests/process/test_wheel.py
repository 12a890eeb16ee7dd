"""The wheel, alone in an environment, beside distributions and in a folder with the names of its own packages."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from build_dist import build, main, tracked

from drivers.files.robots.file import known_robots

pytestmark = pytest.mark.slow

OWN = ("drivers", "rt_core", "service", "sim_backend")
INFO = f"thetad-{version('thetad')}.dist-info"
SCRIPT = """
import importlib.util, pathlib, sys, thetad
assert not {"numpy", "numba", "zmq"} & {*sys.modules}
from thetad.rt_core import jit
from thetad.service.cli import main
from thetad.service.jobs import kinds
from thetad.service.worker.worker import ENTRY, MODULES
main.build_parser()
assert all(map(importlib.util.find_spec, (ENTRY, *MODULES.values())))
assert [kinds.find_kind(name).name for name in kinds.KINDS] == list(kinds.KINDS)
assert main.is_own(main.CliError(""))
own = pathlib.Path(thetad.__file__).parent
found = {source for path in own.rglob("*.py") for source in jit.imported_sources(path)}
assert len(found) > 300 and all(source.is_relative_to(own) for source in found)
assert all(hasattr(thetad, name) for name in thetad.__all__)
import drivers
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of `make dist`, or a new one."""
    folder = Path(os.environ.get("THETAD_DIST") or tmp_path_factory.mktemp("dist"))
    if not any(folder.iterdir()):
        main(folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder and an environment, both with packages that cannot be imported, and the wheel with what it needs."""
    folder = tmp_path_factory.mktemp("lab")
    venv.create(folder / ".venv", symlinks=True)
    (site,) = (folder / ".venv").glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", folder / ".venv/bin/python", "install", "--no-compile"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", wheel], check=True)
    assert {path.name for path in site.iterdir()} == {"thetad", INFO}
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    for package in (place / name for place in (site, folder) for name in ("drivers", "service")):
        package.mkdir()
        (package / "__init__.py").write_text(f"raise ImportError('that of the {package.parent.name[:3]}')")
    return folder


def run(lab: Path, program: str, *arguments: str, code: int = 0) -> str:
    """Run a program of the environment in the lab's folder; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [lab / ".venv/bin" / program, *arguments]
    done = subprocess.run(command, cwd=lab, env=environment, capture_output=True, text=True, timeout=120.0)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def test_the_sdist_builds_the_wheel_of_a_clone(wheel: Path, tmp_path: Path) -> None:
    sums = []
    for path in (wheel, build(tracked(tmp_path / "clone"), "wheel", tmp_path)):
        with zipfile.ZipFile(path) as archive:
            sums.append({info.filename: info.CRC for info in archive.infolist()})
    assert sums[0] == sums[1]


def test_its_names_are_all_below_thetad(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert {name.split("/")[0] for name in content} == {"thetad", INFO}
    assert content[f"{INFO}/top_level.txt"] == b"thetad\n"
    assert [name for name in content if name.startswith(f"{INFO}/licenses/") and "uPlot" in name]
    for name, tree in ((name, ast.parse(text)) for name, text in content.items() if name.endswith(".py")):
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in set(ast.walk(tree)) - docstrings:
            texts = [str(node.value)] if isinstance(node, ast.Constant) else []
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [each for each in imported if each.split(".")[0] in OWN], name
            assert not [each for each in texts if re.search(rf"(^|^b'|-m )({'|'.join(OWN)})\.[a-z_]+", each)], name
            for path in (each.replace(".", "/") for each in texts if re.match(r"thetad\.[a-z_]+\.[\w.]+$", each)):
                assert {f"{path}.py", f"{path}/__init__.py"} & {*content}, name


def test_commands_processes_and_caches_find_what_is_shipped_and_nothing_else(lab: Path) -> None:
    """The sources that compiled code depends on are the product's, and none of a library beside it."""
    listed = run(lab, "thetad", "robots", "list")
    assert [name for name in known_robots() if name not in listed] == []
    assert "nothing.mcap" in run(lab, "thetad", "identify", "nothing.mcap", "--robot", "franka_panda", code=2)
    assert f"{lab}: the service does not see /tmp" in run(lab, "thetad", "deploy", "install", "--dry-run", code=1)
    assert "required: --to" in run(lab, "python", "-m", "thetad.drivers.ads.structured_text", code=2)
    assert f"thetad {version('thetad')}" in run(lab, "python", "-m", "thetad", "--version")
    assert "ImportError: that of the lab" in run(lab, "python", "-c", SCRIPT, code=1)
    assert "--runtime" in run(lab, "python", "-m", "thetad.service.worker.entry", "--help")
