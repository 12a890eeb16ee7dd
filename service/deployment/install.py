"""Installation as a system service: a plan of files and commands, its obstacles, and its application."""

import contextlib
import os
import pwd
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from drivers.files.atomic_write import write_bytes
from drivers.files.shipped import shipped as shipped_folder

#: `kept`: exists and belongs to the user; `obsolete`: an earlier version's, under an unused name.
FileState = Literal["new", "same", "changed", "kept", "obsolete"]

SHIPPED = shipped_folder("deploy")
#: Placeholders in the files of `deploy/`.
_PREFIX, _CARD = "/opt/thetad", "enp3s0"
#: The folder with the `.venv` of the service: this clone, or of a wheel that of its environment, or the usual place.
_OWN = Path(sys.prefix).parent if Path(sys.prefix).name == ".venv" else Path(_PREFIX)
HOME = SHIPPED.parent if (SHIPPED.parent / "Makefile").is_file() else _OWN
PROGRAM, INTERPRETER = ".venv/bin/thetad", ".venv/bin/python"
_LINKS = 40  # more links are a loop
CONFIGURATION = Path("/etc/thetad/thetad.toml")
_FILES = {
    "thetad.service": "/etc/systemd/system/thetad.service", "sysusers.d/thetad.conf": "/etc/sysusers.d/thetad.conf",
    "tmpfiles.d/thetad.conf": "/etc/tmpfiles.d/thetad.conf", "thetad.toml": str(CONFIGURATION),
}  # fmt: skip
_BUS_FILES = {
    "thetad-card@.service": "/etc/systemd/system/thetad-card@.service",
    "thetad-ethercat.conf": "/etc/systemd/system/thetad.service.d/ethercat.conf",
    "sysctl.d/90-thetad.conf": "/etc/sysctl.d/90-thetad.conf",
    "network/90-thetad.conf": "/etc/NetworkManager/conf.d/90-thetad.conf",
    "network/05-thetad.network": "/etc/systemd/network/05-thetad.network",
}
#: Files of earlier versions for a bus, under names that are no longer used.
_OBSOLETE = ("/etc/systemd/network/10-thetad.network",)
#: Folders that the unit hides from the daemon (ProtectHome=, PrivateTmp=).
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
_USER = "thetad"  # of the unit
#: Reload commands of the managers of network cards, by unit.
_RELOADS = {
    "systemd-networkd.service": ("networkctl", "reload"),
    "NetworkManager.service": ("nmcli", "general", "reload"),
}
_COMMAND_S = 60.0


class DeployError(RuntimeError):
    """The installation failed; the message says at which step."""


@dataclass(frozen=True)
class PlannedFile:
    """A file and its `target` on the host, without the root folder."""

    source: str  # in deploy/; empty of one that is obsolete
    target: Path
    content: str
    state: FileState


@dataclass(frozen=True)
class Plan:
    """An installation: first the files, then the commands, in order."""

    root: Path
    prefix: Path
    files: tuple[PlannedFile, ...]
    commands: tuple[tuple[str, ...], ...]
    hindrances: tuple[str, ...]  # obstacles; empty if it can be applied
    first: tuple[str, ...] = ()  # those that are no fault of the plan: what the host lacks before it can be applied

    def apply(self) -> None:
        """Write the files and run the commands.

        Changed and obsolete files are kept as `NAME.old`, or with a number appended if that exists.

        Raises `DeployError`: a command failed.
        """
        for file in self.files:
            path = below(self.root, file.target)
            if file.state in ("changed", "obsolete"):
                os.replace(path, _backup_name(path))
            if file.state in ("new", "changed"):
                write_bytes(path, file.content.encode(), 0o644)  # whatever root's umask: the service reads them
        for command in self.commands:
            _run(command)


def is_running(unit: str) -> bool:
    """Return whether a unit of this host is active."""
    try:
        done = subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def make_plan(
    root: Path, prefix: Path, interface: str | None = None, *, force: bool = False, shipped: Path = SHIPPED,
    running: Callable[[str], bool] = is_running,
) -> Plan:  # fmt: skip
    """Plan an installation on a host with its file system at `root`; the service runs the clone at `prefix` there.

    `interface` is the network card of an EtherCAT bus; `force` replaces existing files that differ; `shipped` is the
    folder `deploy/`, and `running` tells whether a unit of this host is active.  Raises `DeployError`: the folder is
    missing.
    """
    wanted = _FILES | (_BUS_FILES if interface is not None else {})
    files = []
    for source, target in wanted.items():
        try:
            text = (shipped / source).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DeployError(f"{shipped / source}: is missing; install from a clone or a wheel") from error
        documents = shipped if shipped.is_relative_to(prefix) else prefix / "deploy"
        card = escaped(interface or _CARD) if source.endswith("ethercat.conf") else interface or _CARD
        # in one pass: the new texts may contain the old ones
        new = {f"{_PREFIX}/deploy": str(documents), _PREFIX: str(prefix), _CARD: card}
        content = "".join(new.get(part, part) for part in re.split(f"({'|'.join(new)})", text))
        files.append(PlannedFile(source, Path(target), content, _state(below(root, Path(target)), content)))
    if interface is not None:
        there = (Path(target) for target in _OBSOLETE if below(root, Path(target)).is_file())
        files += [PlannedFile("", target, "", "obsolete") for target in there]
    commands = _commands(root, interface, running)
    first = _missing(root, prefix)
    return Plan(root, prefix, tuple(files), commands, (*_hindrances(root, prefix, files, force), *first), first)


def _missing(root: Path, prefix: Path) -> tuple[str, ...]:
    """Return what this host lacks; another one, prepared below `root`, need not have it yet."""
    if root != Path("/"):
        return ()
    found = []
    if not (prefix / PROGRAM).exists():
        found.append(f"{prefix / PROGRAM}: is not there: install there first, or name another --prefix")
    if not Path("/run/systemd/system").is_dir():
        found.append("this host was not started by systemd: say --root DIR to prepare the file system of another")
    return tuple(found)


def _backup_name(path: Path) -> Path:
    """Return an unused name beside `path` for its present content."""
    number, name = 1, path.with_name(f"{path.name}.old")
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}.old.{number}")
    return name


def escaped(name: str) -> str:
    """Escape a name as part of a unit's name (systemd-escape)."""
    return re.sub(r"[^A-Za-z0-9:_.]|^\.", lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()), name)


def below(root: Path, path: Path) -> Path:
    """Return an absolute path relocated below `root`."""
    return root / path.relative_to("/")


def _state(path: Path, content: str) -> FileState:
    try:
        found = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "new"
    if path.name == CONFIGURATION.name:
        return "kept"
    return "same" if found == content else "changed"


def _commands(root: Path, interface: str | None, running: Callable[[str], bool]) -> tuple[tuple[str, ...], ...]:
    if root != Path("/"):
        option = f"--root={root}"
        return (
            ("systemd-sysusers", option, "thetad.conf"),
            ("systemd-tmpfiles", option, "--create", "thetad.conf"),
            ("systemctl", option, "enable", "thetad.service"),
        )
    settings: tuple[tuple[str, ...], ...] = ()
    if interface is not None:
        reloads = (command for unit, command in _RELOADS.items() if running(unit))
        settings = (("systemctl", "restart", "systemd-sysctl.service"), *reloads)
    return (
        ("systemd-sysusers", "thetad.conf"), ("systemd-tmpfiles", "--create", "thetad.conf"), *settings,
        ("systemctl", "daemon-reload"), ("systemctl", "enable", "thetad.service"),
    )  # fmt: skip


def _hindrances(root: Path, prefix: Path, files: list[PlannedFile], force: bool) -> tuple[str, ...]:
    found = []
    hidden = next((folder for folder in _HIDDEN if prefix.is_relative_to(folder)), None)
    if hidden is not None:
        found.append(
            f"{prefix}: the service does not see {hidden}: install in {_PREFIX} (deploy/README.md), and run "
            f"{_PREFIX}/{PROGRAM} deploy install"
        )
    elif below(root, prefix / PROGRAM).exists() or root != Path("/"):
        found += _unreachable(root, prefix)
    if re.search(r"[\s%\\\"']", str(prefix)):
        found.append(f"{prefix}: blanks, quotes, '%' and '\\' have a meaning in units: install in another folder")
    changed = [str(file.target) for file in files if file.state == "changed"]
    if changed and not force:
        found.append(
            f"{', '.join(changed)}: there already, and different: keep your changes in a drop-in (systemctl edit "
            "thetad) and say --force, which leaves what was there as NAME.old"
        )
    return tuple(found)


def _unreachable(root: Path, prefix: Path) -> list[str]:
    """Return the reasons why the service's user could not run program or interpreter, as far as they exist."""
    found = []
    for name in (PROGRAM, INTERPRETER):
        path = _real(root, prefix / name)
        shown = str(prefix / name) if path == prefix / name else f"{prefix / name}, which is {path}"
        again = f"create the virtual environment again with an interpreter below /usr, such as /usr/bin/{path.name}"
        hidden = next((folder for folder in _HIDDEN if path.is_relative_to(folder)), None)
        closed = _closed(root, path)
        if hidden is not None:
            found.append(f"{shown}: the service does not see {hidden}: {again}")
        elif closed is not None:
            letters = "x" if below(root, closed).is_dir() else "rx"
            found.append(f"{shown}: the user {_USER} may not use {closed}: chmod o+{letters} '{closed}'")
    return found


def _closed(root: Path, path: Path) -> Path | None:
    """Return the first folder or file on the path of a program that the service's user may not use."""
    user = None
    if root == Path("/"):
        with contextlib.suppress(KeyError):  # it will be created
            user = pwd.getpwnam(_USER)
    for step in (*reversed(path.parents), path):
        try:
            found = below(root, step).stat()
        except FileNotFoundError:
            return None
        needed = stat.S_IXOTH | (0 if stat.S_ISDIR(found.st_mode) else stat.S_IROTH)
        shift = 0
        if user is not None:
            shift = 6 if found.st_uid == user.pw_uid else 3 if found.st_gid == user.pw_gid else 0
        if step != Path("/") and needed & ~(found.st_mode >> shift):
            return step
    return None


def _real(root: Path, path: Path) -> Path:
    """Resolve all links of an absolute path on the host, whose file system is at `root`."""
    done, left, links = Path("/"), list(path.parts[1:]), 0
    while left:
        part = left.pop(0)
        step = below(root, done / part)
        if part == "..":
            done = done.parent
        elif step.is_symlink() and links < _LINKS:
            target, links = step.readlink(), links + 1
            done = Path("/") if target.is_absolute() else done
            left = [*(target.parts[1:] if target.is_absolute() else target.parts), *left]
        else:
            done /= part
    return done


def _run(command: tuple[str, ...]) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeployError(f"{shown}: {error}") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise DeployError(f"{shown}: {words}")
