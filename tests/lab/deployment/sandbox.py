"""Start a command as thetad.service restricts it, by the kernel's own means, as root.

`python -m tests.lab.deployment.sandbox FOLDER COMMAND...`: `FOLDER` has `state`, `run` and `cache`, in place of the
unit's.
"""

import ctypes
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.lab.deployment.units import ROOT, Unit

USER = 61_998  # nobody's, and not one that systemd gives away
_BIND, _SLAVE = 0x1000 | 0x4000, 0x4000 | 0x80000  # each with all mounts below
_MOUNTS_NAME_AND_IPC, _USERS = 0x20000 | 0x4000000 | 0x8000000, 0x10000000
_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80)
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _NO_NEW_PRIVS, _CAPBSET_DROP = 442, -100, 0x8000, 38, 24
_ALLOW, _ERRNO, _EQUAL, _AT_LEAST, _MASKED = 0x7FFF0000, 0x00050000, 4, 5, 7
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: Path | str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    check(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def read_only(place: Path | str, yes: bool) -> None:
    """A mount, and with it all below it if it is to be read-only."""
    attributes = (ctypes.c_uint64 * 4)(*((1, 0) if yes else (0, 1)), 0, 0)
    arguments = (_AT_FDCWD, os.fsencode(place), _AT_RECURSIVE if yes else 0, attributes, ctypes.sizeof(attributes))
    check(libc.syscall(_MOUNT_SETATTR, *arguments), f"mount_setattr {place}")


def hide(folders: list[str], kept: list[Path]) -> None:
    """Put an empty folder in the place of each, in which only those stay that are kept."""
    held = [(path, os.open(path, os.O_PATH | os.O_NOFOLLOW)) for path in kept]
    for folder in folders:
        mount("tmpfs", folder, "tmpfs", 0, "mode=755")
        for path, fd in held:
            if path.is_relative_to(folder) and not path.exists():  # it is there with a folder above it that is kept
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir() if os.stat(fd).st_mode & 0o170000 == 0o040000 else path.touch()
                mount(f"/proc/self/fd/{fd}", path, None, _BIND)
    for _, fd in held:
        os.close(fd)


def restrict_files(folder: Path) -> None:
    check(libc.unshare(_MOUNTS_NAME_AND_IPC), "unshare")
    mount("none", "/", None, _SLAVE)
    devices = [Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom", "tty", "shm")]
    own = [folder, ROOT, Path(sys.prefix), Path(sys.base_prefix)]  # there, even if below /tmp or /root
    hide(["/tmp", "/home", "/root", "/run/user", "/dev"], [*devices, *own])
    writable = [folder / name for name in ("state", "run", "cache")]
    for place in writable:
        place.mkdir(exist_ok=True, mode=0o700)
        os.chown(place, USER, USER)
        mount(str(place), place, None, _BIND)
    folder.chmod(0o755)
    os.chmod("/tmp", 0o1777)
    read_only("/", True)
    for free in (*writable, "/tmp", "/dev", "/dev/shm"):
        read_only(free, False)
    mount("proc", "/proc", "proc", 0, "hidepid=invisible")
    mount("/proc/sys", "/proc/sys", None, _BIND)
    read_only("/proc/sys", True)


def become_user() -> None:
    """In a name space of users that has root and this user; what is root's outside is nobody's to command inside."""
    told, tell = os.pipe()
    outside = os.fork()
    if outside == 0:
        os.close(tell)
        os.read(told, 1)
        for file in ("uid_map", "gid_map"):
            Path(f"/proc/{os.getppid()}/{file}").write_text(f"0 0 1\n{USER} {USER} 1\n", encoding="ascii")
        os._exit(0)
    check(libc.unshare(_USERS), "unshare users")
    os.close(tell)
    assert os.waitpid(outside, 0)[1] == 0
    check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    for number in range(64):
        libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # those that this kernel knows
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


class Compared(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def load_filter(default: int, rules: list[tuple[str, int, Compared | None]]) -> None:
    """Name of a call, action, and what its argument is compared with."""
    seccomp = ctypes.CDLL("libseccomp.so.2")  # which systemd needs as well
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(default)))
    for name, action, compared in rules:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # a call of this architecture
            count, given = (0, None) if compared is None else (1, ctypes.byref(compared))
            done = seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, count, given)
            assert done == 0, (name, done)
    assert seccomp.seccomp_load(context) == 0


def calls(groups: list[str]) -> set[str]:
    """Names of the calls in groups, as systemd lists them."""
    told = subprocess.run(["systemd-analyze", "syscall-filter", *groups], capture_output=True, text=True, check=True)
    words = [line.strip() for line in told.stdout.splitlines() if line.startswith("    ") and "#" not in line]
    inner = [word for word in words if word.startswith("@")]
    return {word for word in words if not word.startswith("@")} | (calls(inner) if inner else set())


def restrict_calls(unit: Unit, allowed: set[str]) -> None:
    refused = _ERRNO | getattr(errno, unit.one("SystemCallErrorNumber"))
    families = {int(getattr(socket, name)) for name in unit.words("RestrictAddressFamilies")}
    family = _ERRNO | errno.EAFNOSUPPORT
    rules = [("socket", family, Compared(0, _EQUAL, k)) for k in range(max(families)) if k not in families]
    rules.append(("socket", family, Compared(0, _AT_LEAST, max(families) + 1)))
    for flag in _NAMESPACES:
        rules += [(name, _ERRNO | errno.EPERM, Compared(0, _MASKED, flag, flag)) for name in ("unshare", "clone")]
    plain = [("setns", _ERRNO | errno.EPERM, None), ("clone3", _ERRNO | errno.ENOSYS, None)]
    load_filter(_ALLOW, [*rules, *plain])
    load_filter(refused, [(name, _ALLOW, None) for name in sorted(allowed)])


def main() -> None:
    folder, unit = Path(sys.argv[1]), Unit("thetad.service")
    allowed = calls([*unit.words("SystemCallFilter"), "@default"])  # @default is in every list of systemd
    mask = os.umask(0o022)
    restrict_files(folder)
    os.umask(mask)
    become_user()
    restrict_calls(unit, allowed)
    os.chdir(folder / "state")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
