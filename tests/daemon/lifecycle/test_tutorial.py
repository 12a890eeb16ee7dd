"""A newcomer's path: the tutorial, followed word by word in a fresh clone, and what else shows the same output.

The clone is of this repository's last commit, and runs its own code: `make` installs it into an environment of its own.
The locked packages are found there already, those that these tests run with, so that nothing is downloaded; and kernels
that were compiled here from the same sources are taken along.  Both would take minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.console import Ran, check_page, differs, surroundings, varying
from tests.lab.daemon.ethercat_rig import network

pytestmark = pytest.mark.timeout(900)  # a minute of motion, and what a first start compiles

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"

PACKAGES = ("rt_core", "drivers", "sim_backend", "service")
#: Run by git in a new clone: an environment that sees the packages, and not thetad, of the one that the tests run in.
HOOK = """#!/bin/sh -e
"{python}" -m venv --without-pip .venv
echo "{packages}" >"$(echo .venv/lib/python3*/site-packages)/locked.pth"
(cd "{root}" && find {sources} -name "*.nbc" -print0 | tar -c --null -T -) | tar -x
"""


class Newcomer:
    """A folder to clone into, and what is around the newcomer's shell."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.folder = folder
        hook = folder / "template" / "hooks" / "post-checkout"
        hook.parent.mkdir(parents=True)
        places = {"python": sys.executable, "packages": sysconfig.get_path("purelib"), "root": ROOT}
        hook.write_text(HOOK.format(**places, sources=" ".join(PACKAGES)), encoding="utf-8")
        hook.chmod(0o755)
        settings = {"safe.directory": "*", "init.templateDir": str(hook.parent.parent)}
        own = {"GIT_CONFIG_COUNT": str(len(settings))}
        for k, (name, value) in enumerate(settings.items()):
            own |= {f"GIT_CONFIG_KEY_{k}": name, f"GIT_CONFIG_VALUE_{k}": value}
        own |= {"THETAD_REPOSITORY": str(ROOT), "XDG_RUNTIME_DIR": runtime, "COLUMNS": "120", "PIP_NO_INDEX": "1"}
        here = Path(sys.executable).parent  # `thetad` is not found before the environment is activated
        own["PATH"] = os.pathsep.join(path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != here)
        self.environment = surroundings(**own)
        del self.environment["PYTHONPATH"]  # which would lead to the code of these tests

    def run(self, *command: str) -> list[str]:
        """Run a command in the clone; returns the lines of its stdout."""
        done = subprocess.run(
            command, cwd=self.folder / "thetad", env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with tempfile.TemporaryDirectory(prefix="thetad-doc-") as runtime:  # short, for its sockets
        yield Newcomer(tmp_path_factory.mktemp("newcomer"), runtime)


@pytest.fixture(scope="module")
def followed(newcomer: Newcomer) -> Iterator[list[Ran]]:
    """Output of the tutorial's commands; as root in a network name space, where all ports are free."""
    shutil.rmtree(newcomer.folder / "thetad", ignore_errors=True)  # of a try before this one
    with ExitStack() as stack:
        if os.geteuid() == 0:
            stack.enter_context(network())
        yield check_page(TUTORIAL, newcomer.folder, newcomer.environment)


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
