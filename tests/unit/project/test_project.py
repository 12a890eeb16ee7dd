"""Layout, dependencies, import contracts, commands and decision records of the repository."""

from __future__ import annotations

import argparse
import re
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
TOP_LEVEL = ("README.md", "service", "drivers", "rt_core", "configs", "tests", "sim_backend", "deploy", "LICENSE")
PACKAGES = ("pysoem", "pyads", "numpy", "scipy", "numba", "pyzmq", "msgpack", "structlog")
LOCKS = [
    ("requirements.lock", ()),
    ("requirements-dev.lock", ("dev",)),
    ("requirements-bench.lock", ("dev", "bench")),
]
COMMANDS = """
jobs submit, jobs reidentify, jobs list, jobs show, jobs log, jobs cancel, jobs retry, jobs wait, jobs kinds,
models list, models promote, models rollback, models diff, events, keys new, keys list, keys revoke, doctor,
deploy install, run, serve, demo, watch, import, record, bridge foxglove, bridge ros2, recordings info,
recordings recover, replay, identify, validate, compare, payload, models show, models export
"""


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


def test_top_level_holds() -> None:
    assert [name for name in TOP_LEVEL if not (ROOT / name).exists()] == []


def test_the_fixed_packages_are_dependencies() -> None:
    names = {canonicalize_name(Requirement(text).name) for text in PYPROJECT["project"]["dependencies"]}
    assert names >= set(PACKAGES)


@pytest.mark.parametrize(("lock", "extras"), LOCKS)
def test_lock_answers_pyproject(lock: str, extras: tuple[str, ...]) -> None:
    pins = locked(lock)
    for requirement in requirements(*extras):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{lock} lacks {name}: run `make lock`"
        assert requirement.specifier.contains(pins[name]), f"{lock} pins {name} {pins[name]}, not {requirement}"


@pytest.mark.parametrize(
    ("inner", "outer"),
    [("requirements.lock", "requirements-dev.lock"), ("requirements-dev.lock", "requirements-bench.lock")],
)
def test_locks_agree(inner: str, outer: str) -> None:
    larger = locked(outer)
    assert {name: larger.get(name) for name in locked(inner)} == locked(inner)


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


@pytest.mark.parametrize(("lock", "extras"), [each for each in LOCKS if "bench" not in each[1]])
def test_lock_is_complete(lock: str, extras: tuple[str, ...]) -> None:
    """pip installs it without dependencies, so that nothing else says that one is missing or another one is needed."""
    pins = locked(lock)
    installed: dict[str, Version] = {canonicalize_name(each.name): Version(each.version) for each in distributions()}
    wrong = {name: (installed.get(name), pin) for name, pin in pins.items() if installed.get(name) != pin}
    assert not wrong, f"installed and locked differ: {wrong}; run `make dev`"
    assert gaps(pins, requirements(*extras)) == []


def test_a_gap_in_a_lock_would_be_found() -> None:
    pins, wanted = locked("requirements-dev.lock"), requirements("dev")
    without = {name: pin for name, pin in pins.items() if name != "coverage"}
    assert gaps(without, wanted) == ["coverage is not locked"]
    (old,) = gaps({**pins, "llvmlite": Version("0.1")}, wanted)
    assert re.match(r"llvmlite 0\.1 is not llvmlite\b.*>=", old)
    # What an extra of a package asks for: mkdocstrings by itself does not ask for its handler of Python.
    without = {name: pin for name, pin in pins.items() if name != "mkdocstrings-python"}
    assert "mkdocstrings-python is not locked" in gaps(without, wanted)


@pytest.mark.parametrize("lock", [name for name, _ in LOCKS])
def test_lock_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^--?(index|extra-index|find-links|trusted|i |f )", text, re.M)


def test_the_environment_is_the_locked_one() -> None:
    """Another version would make the tests say nothing about what users install."""
    pins = locked("requirements.lock")
    wrong = {name: (version(name), str(pin)) for name, pin in pins.items() if version(name) != str(pin)}
    assert not wrong, f"installed and locked differ: {wrong}; run `make install`"


def test_installed_version_is_that_of_pyproject() -> None:
    assert version("thetad") == PYPROJECT["project"]["version"]


def test_changelog_has_the_version() -> None:
    assert f"## [{PYPROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="thetad")
    assert script.load() is main


def test_the_command_line_has_what_was_promised() -> None:
    assert {" ".join(path) for path in commands(build_parser())} >= set(re.split(r",\s+", COMMANDS.strip()))


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for path in [(), *commands(build_parser())]:
        with pytest.raises(SystemExit) as end:
            main([*path, "--help"])
        help_text = capsys.readouterr().out
        assert end.value.code == 0
        assert help_text.startswith(" ".join(["usage: thetad", *path]))
        assert len(help_text.splitlines()) > 4, f"thetad {' '.join(path)} --help says next to nothing"


def records() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("record", records(), ids=lambda path: path.stem)
def test_decision_record_is_complete(record: Path) -> None:
    text = record.read_text()
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+", record.stem)
    assert text.startswith("# NNNN: " if record.stem == "0000-template" else f"# {record.stem[:4]}: ")
    assert re.findall(r"^## (.*)$", text, re.M) == ["Context", "Decision", "Consequences"]
    assert all(section.split("\n", 1)[1].strip() for section in text.split("\n## ")[1:])


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(record.stem[:4]) for record in records()] == list(range(len(records())))
