"""Checks of the resources of a daemon: kernel cache, disk, folders, keys and ports."""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.config.load import Config
from service.doctor.finding import Finding
from service.jobs.budget import recordings_of
from service.security.files import SecretFileError, replacement_risk
from service.security.keys import server_pair
from service.security.path_ownership import user_name
from service.supervisor.directories import runtime_parent
from service.worker.worker import Runtime

#: Disk space for states, logs and histories before anything is recorded [bytes].
_MIN_FREE = 100e6
_AS_USER = "run thetad doctor as the daemon's user"


def check_cache(package: Path, environment: Mapping[str, str] = os.environ) -> Finding:
    """Find numba's cache of the compiled kernels of `package`, and check that it is writable."""
    name, named = "kernel_cache", environment.get("NUMBA_CACHE_DIR")
    places = [Path(named)] if named else [package / "__pycache__", Path.home() / ".cache" / "numba"]
    for place in places:
        if _writable(place):
            folder = package if place == package / "__pycache__" else place  # beside the sources, in each folder
            count = sum(1 for _ in folder.rglob("*.nbc"))
            kept = f"{count} functions compiled" if count else "empty: the first start compiles for minutes"
            return Finding(name, "ok", f"{place if named else folder}: {kept}")
    remedy = "every start compiles again: set NUMBA_CACHE_DIR to a folder that the daemon's user can write to"
    return Finding(name, "failed", f"{places[0]}: cannot be written", remedy)


def check_site(config: Config) -> Iterator[Finding]:
    """Yield the findings about the directories, keys and ports of a configuration."""
    yield from _disk(config)
    yield _folder("state_dir", config.state_dir)
    yield _folder("runtime_dir", runtime_parent(config), private=True)
    yield _keys(config)
    yield _ports(config)


def _disk(config: Config) -> Iterator[Finding]:
    """Compare the free space of each disk with the limits of recorders and jobs."""
    wanted: dict[int, float] = {}
    places: dict[int, Path] = {}
    unlimited: dict[int, list[str]] = {}
    least = max(config.jobs.least_free_mb * 1e6, _MIN_FREE)
    for arm in (None, *config.arm):
        if arm is not None and arm.recorder is None:
            continue
        folder = config.state_dir if arm is None else config.recording_dir(arm)
        try:
            place = _existing(folder)
            disk = place.stat().st_dev
        except PermissionError:
            yield Finding("disk", "unknown", f"{folder}: may not be looked at", _AS_USER)
            continue
        places.setdefault(disk, place)
        wanted.setdefault(disk, least)
        if arm is None or arm.recorder is None:
            continue
        if arm.recorder.max_gb is None:
            unlimited.setdefault(disk, []).append(arm.name)
        else:
            try:
                used = sum(one.bytes for one in recordings_of(arm.name, folder))
            except PermissionError:
                yield Finding("disk", "unknown", f"{folder}: may not be looked at", _AS_USER)
                continue
            wanted[disk] += max(0.0, arm.recorder.max_gb * 1e9 - used)
    for disk, place in places.items():
        free = shutil.disk_usage(place).free
        value = f"{place}: {free / 1e9:.1f} GB free, {wanted[disk] / 1e9:.1f} GB wanted"
        if free < least:
            yield Finding("disk", "failed", value, "make room: jobs wait, and recordings are cut short")
        elif free < wanted[disk]:
            yield Finding("disk", "warning", value, "make room, or set a lower max_gb in [arm.recorder]")
        elif disk in unlimited:
            arms = ", ".join(unlimited[disk])
            yield Finding("disk", "warning", f"{value}; recordings of {arms} have no limit", "max_gb in [arm.recorder]")
        else:
            yield Finding("disk", "ok", value)


def _folder(name: str, path: Path, *, private: bool = False) -> Finding:
    """Check that this user can write to a folder, and others cannot; a `private` one must belong to this user."""
    me = user_name(os.geteuid())
    try:
        found = path.stat()
    except FileNotFoundError:
        if _writable(path):
            return Finding(name, "ok", f"{path}: will be made")
        remedy = f"make it: sudo install -d -o {me} -m 700 '{path}'"
        return Finding(name, "failed", f"{path}: cannot be made by {me}", remedy)
    except OSError as error:
        return Finding(name, "failed", f"{path}: {error.strerror}", _AS_USER)
    value = f"{path}: of {user_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"
    if not stat.S_ISDIR(found.st_mode):
        return Finding(name, "failed", f"{path}: is not a folder", "move it away, or name another")
    other = found.st_uid != os.geteuid()
    if other and (private or not _writable(path)):
        return Finding(name, "failed", value, f"run it as {user_name(found.st_uid)}, or name a folder of your own")
    if not _writable(path) or not os.access(path, os.R_OK):
        return Finding(name, "failed", f"{value}: cannot be written", f"chmod u+rwx '{path}', or mount it for writing")
    foreign_entries = _foreign_entries(path)
    if foreign_entries:
        text = f"{value}; of others, and closed: {', '.join(foreign_entries)}"
        return Finding(name, "failed", text, f"sudo chown -R {me}: '{path}'")
    if other:
        remedy = f"what {me} writes there {user_name(found.st_uid)} may not change: run it as that user"
        return Finding(name, "warning", value, remedy)
    if found.st_mode & 0o022:
        return Finding(name, "warning", f"{value}: others may write there", f"chmod go-w '{path}'")
    return Finding(name, "ok", value)


def _foreign_entries(path: Path) -> list[str]:
    """Return entries of a folder that belong to others and are not writable, as left by a daemon run as root."""
    found = []
    for entry in sorted(path.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            status = entry.lstat()
            wanted = os.W_OK | os.X_OK if stat.S_ISDIR(status.st_mode) else os.W_OK
            if status.st_uid != os.geteuid() and not os.access(entry, wanted):
                found.append(f"{entry.name} of {user_name(status.st_uid)}")
    return found


def _keys(config: Config) -> Finding:
    if not config.daemon.keyed:
        return Finding("keys", "not applicable", f"{config.daemon.bind}, for this computer alone")
    try:
        server_pair(config.keys_dir)
    except SecretFileError as error:
        return Finding("keys", "failed", str(error), "thetad keys new --server, as the daemon's user")
    if warning := replacement_risk(config.keys_dir):
        return Finding("keys", "warning", warning, "name a directory of root's as daemon.keys_dir")
    return Finding("keys", "ok", f"{config.keys_dir}: the server's key")


def _ports(config: Config) -> Finding:
    daemon = config.daemon
    public = (daemon.frames_port, daemon.estimates_port, daemon.mirror_port, daemon.control_port)
    wanted = [(daemon.bind, port) for port in public if port]
    if daemon.serves_http:
        wanted.append((daemon.http_bind, daemon.http_port))
    wanted = [(address, port) for address, port in wanted if port]
    taken: list[int] = []
    for address, port in wanted:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except PermissionError as error:
                text = f"{address}:{port}: {error.strerror}"
                return Finding("ports", "failed", text, "set a port from 1024 on in [daemon]")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    text = f"{address}:{port}: {error.strerror}"
                    return Finding("ports", "failed", text, "daemon.bind: give an address of this computer")
                taken.append(port)
    if not taken:
        shown = ", ".join(str(port) for _, port in wanted)
        return Finding("ports", "ok", f"{shown or 'any'} on {daemon.bind}: free")
    holder = _running(config.state_dir)
    own = set[int]() if holder is None else _own_ports(config, holder)
    foreign = [port for port in taken if own is None or port not in own]
    text = f"{', '.join(map(str, foreign or taken))} on {daemon.bind}"
    if not foreign:
        return Finding("ports", "ok", f"{text}: of this daemon, process {holder}")
    remedy = f"who has it: ss -ltnp 'sport = :{foreign[0]}' (as root); or set another port in [daemon]"
    if own is None or 0 in own:
        return Finding("ports", "unknown", f"{text}: taken, perhaps by this daemon, process {holder}", remedy)
    return Finding("ports", "failed", f"{text}: taken by another program", remedy)


def _own_ports(config: Config, holder: str) -> set[int] | None:
    """Return the configured ports of a running daemon, 0 for any; None if its configuration cannot be read."""
    try:
        table = Runtime(runtime_parent(config) / holder).config.read_bytes()
        daemon = Config.model_validate_json(table).daemon
    except (OSError, ValueError):
        return None
    ports = {daemon.frames_port, daemon.estimates_port, daemon.control_port}
    ports |= set[int]() if daemon.mirror_port is None else {daemon.mirror_port}
    return ports | {daemon.http_port} if daemon.serves_http else ports


def _running(state_dir: Path) -> str | None:
    """Return the process id of the daemon that holds a state directory, or None."""
    try:
        handle = os.open(state_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(handle)
    return None


def _existing(path: Path) -> Path:
    """Return the nearest existing folder; raises PermissionError if it cannot be inspected."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _writable(path: Path) -> bool:
    """Return whether this user can write to a folder, or create it."""
    try:
        place = _existing(path)
        return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    except PermissionError:
        return False
