"""A newcomer's path: the tutorial, followed word by word in a fresh clone, and what else shows the same output.

The clone is of this repository's last commit.  Its environment is the one that these tests run in, with the packages
and their kernels: `make` and the first start would bring the same, for minutes of work.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.console import Ran, check_page, differs, surroundings, varying
from tests.service.ethercat_rig import network

pytestmark = pytest.mark.timeout(900)  # a minute of motion, and what a first start compiles

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"

#: Run by git in a new clone: the environment is there, and newer than what it is made from.
INSTALLED = """#!/bin/sh -e
mkdir .venv
ln -s "{prefix}/bin" "{prefix}/lib" "{prefix}/pyvenv.cfg" .venv/
touch -d 2000-01-01 requirements*.lock pyproject.toml
touch .venv/.installed-runtime .venv/.installed-dev
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Ran]]:
    """What the commands of the tutorial printed; as root in a network of its own, where all ports are free."""
    folder = tmp_path_factory.mktemp("newcomer")
    hook = folder / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(INSTALLED.format(prefix=sys.prefix), encoding="utf-8")
    hook.chmod(0o755)
    settings = {"safe.directory": "*", "init.templateDir": str(hook.parent.parent)}
    git = {"GIT_CONFIG_COUNT": str(len(settings))}
    for k, (name, value) in enumerate(settings.items()):
        git |= {f"GIT_CONFIG_KEY_{k}": name, f"GIT_CONFIG_VALUE_{k}": value}
    with ExitStack() as stack:
        if os.geteuid() == 0:
            stack.enter_context(network())
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="thetad-doc-"))  # short, for its sockets
        own = {"THETAD_REPOSITORY": str(ROOT), "XDG_RUNTIME_DIR": runtime, "COLUMNS": "120"}
        here = Path(sys.executable).parent  # `thetad` is not found before the environment is activated
        own["PATH"] = os.pathsep.join(path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != here)
        # The packages are those that are tested here, not those of the clone, whose kernels nobody has compiled.
        own["PYTHONSAFEPATH"] = "1"
        never = {"PIP_PYTHON": str(folder / "no-python")}  # were the environment not as it has to be
        yield check_page(TUTORIAL, folder, surroundings(**git, **own, **never))


def test_the_tutorial_is_what_happens(followed: list[Ran]) -> None:
    """That it was followed to its end shows that each command printed what the page shows."""
    commands = [ran.step.command for ran in followed]
    for word in ("git clone", "make demo", "identify", "validate", "export", "serve", "status", "watch", "shutdown"):
        assert any(word in command for command in commands), word


def test_the_model_of_the_tutorial_predicts_the_arm_that_moves(followed: list[Ran]) -> None:
    (ran,) = [ran for ran in followed if ran.step.command == "python examples/subscribe_torque.py"]
    pairs = [re.findall(r"(-?[\d.]+) N\*m", line) for line in ran.lines]
    assert len(pairs) == 3
    assert all(abs(float(measured) - float(predicted)) < 1.0 for measured, predicted in pairs)


def test_the_readme_shows_what_the_demo_prints(followed: list[Ran]) -> None:
    (block,) = re.findall(r"^```\n(\w+: \d+ frames received.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    demo = next(ran for ran in followed if "make demo" in ran.step.command)
    patterns = varying(TUTORIAL.read_text(encoding="utf-8"))
    assert differs(["...", *block.splitlines()], demo.lines, patterns) == ""
