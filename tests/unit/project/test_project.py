"""Dependencies, version, commands and packages of the repository."""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, distributions, entry_points, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from service.cli.main import build_parser, main

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = [("requirements.lock", ()), ("requirements-dev.lock", ("dev",)), ("requirements-bench.lock", ("dev", "bench"))]


def locked(name: str) -> dict[str, Version]:
    """Return the pins of a lock file; every one must have a hash."""
    text = (ROOT / name).read_text()
    blocks = re.findall(r"^([A-Za-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    pins: dict[str, Version] = {canonicalize_name(package): Version(pin) for package, pin, _ in blocks}
    lines = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert len(pins) == len(lines), f"{name}: a line is no pin with hashes"
    return pins


def requirements(*extras: str) -> list[Requirement]:
    """Return what pyproject.toml asks for: to build, to run, and for the extras named."""
    project = PYPROJECT["project"]
    texts = [*PYPROJECT["build-system"]["requires"], *project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    wanted = [Requirement(text) for text in texts]
    own = [r for r in wanted if canonicalize_name(r.name) == project["name"]]  # an extra that takes another one in
    return [r for r in wanted if r not in own] + [q for r in own for q in requirements(*r.extras)]


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command of the command line as a tuple of words, groups included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield (*path, name)
                yield from commands(child, (*path, name))


def gaps(pins: dict[str, Version], wanted: list[Requirement]) -> list[str]:
    """Return what the locked packages ask for here, and the lock lacks or pins otherwise.

    `wanted` is what the project asks for.  A package's own requirements are read from what is installed, and those of
    an extra only if somebody asks for the extra.
    """
    found: list[str] = []
    done: set[tuple[str, str]] = set()
    left = [*wanted, *(Requirement(name) for name in pins)]  # also what nobody asks for: pip installs it all the same
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name not in pins:
            found.append(f"{name} is not locked")
        elif not requirement.specifier.contains(pins[name], prereleases=True):
            found.append(f"{name} {pins[name]} is not {requirement}")
        else:
            for extra in {"", *requirement.extras} - {extra for known, extra in done if known == name}:
                done.add((name, extra))
                more = [Requirement(text) for text in distribution(name).requires or []]
                left += [each for each in more if each.marker is None or each.marker.evaluate({"extra": extra})]
    return sorted(set(found))


def test_locks_answer_pyproject_and_agree() -> None:
    smaller: dict[str, Version] = {}
    for lock, extras in LOCKS:
        pins = locked(lock)
        for requirement in requirements(*extras):
            name = canonicalize_name(requirement.name)
            assert name in pins, f"{lock} lacks {name}: run `make lock`"
            assert requirement.specifier.contains(pins[name]), f"{lock} pins {name} {pins[name]}, not {requirement}"
        assert {name: pins.get(name) for name in smaller} == smaller
        smaller = pins


@pytest.mark.parametrize(("lock", "extras"), LOCKS[:2])
def test_lock_is_complete(lock: str, extras: tuple[str, ...]) -> None:
    """pip installs it without dependencies, so that nothing else says that one is missing or another one is needed."""
    pins = locked(lock)
    installed: dict[str, Version] = {canonicalize_name(each.name): Version(each.version) for each in distributions()}
    wrong = {name: (installed.get(name), pin) for name, pin in pins.items() if installed.get(name) != pin}
    assert not wrong, f"installed and locked differ: {wrong}; run `make dev`"
    assert gaps(pins, requirements(*extras)) == []


def test_what_is_installed_is_this_version_with_its_command() -> None:
    assert version("thetad") == PYPROJECT["project"]["version"]
    assert f"## [{version('thetad')}]" in (ROOT / "CHANGELOG.md").read_text()
    (script,) = entry_points(group="console_scripts", name="thetad")
    assert script.load() is main


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for path in [(), *commands(build_parser())]:
        with pytest.raises(SystemExit) as end:
            main([*path, "--help"])
        help_text = capsys.readouterr().out
        assert end.value.code == 0
        assert help_text.startswith(" ".join(["usage: thetad", *path]))


@pytest.mark.parametrize(
    ("check", "file", "text", "found"),
    [
        ("doors", "rt_core/extra/__init__.py", '"""A\nB\nC\nD\nE"""\n', "rt_core/extra/__init__.py: no __all__"),
        ("doors", "rt_core/extra/__init__.py", '"""One line."""\n__all__ = []\n', "does not say where to start"),
        ("doors", "service/web/extra.py", "", "service/web/__init__.py: __all__ does not name extra"),
        ("doors", "drivers/_extra.py", "if 1:\n    from service.web._cache import Cache\n", "internal to service.web"),
        ("doors", "drivers/_extra.py", "from rt_core.jit import _hidden\n", "internal to rt_core"),
        ("prose", "docs/a.md", "[A](anew.md), `anew`.\n\nIt is\ntold, <!-- anew -->.\n", "docs/a.md:3: 'is told': "),
        ("prose", "docs/a.md", "```sh\nanew\n```\n\n| a | e.g. `b` |\n", "docs/a.md:5: 'e.g.': "),
        ("prose", "docs/a.md", "- a\n- " + 60 * "word " + "\n", "docs/a.md:2: sentence of 60 words"),
        ("prose", "docs/a.md", 40 * "Five words that end here.\n", "docs/a.md:1: paragraph of 200 words"),
        (
            "prose",
            "service/a.py",
            'def f(x):\n    """Anew."""\n    g(f"{x} anew", "anew")\n',
            "service/a.py:3: 'anew': ",
        ),
    ],
)
def test_what_is_not_in_order_is_found(tmp_path: Path, check: str, file: str, text: str, found: str) -> None:
    """Beside a package that is in order, as the first run shows."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    path = tmp_path / "service" / "web" / "__init__.py"
    for other in (path, tmp_path / file):
        other.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('"""A\nB\nC\nD\nE\n"""\n__all__ = []\n', encoding="utf-8")
    command = [sys.executable, tmp_path / ".ci" / f"check_{check}.py"]
    assert subprocess.run(command, check=False).returncode == 0
    (tmp_path / file).write_text(text, encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert found in done.stdout
