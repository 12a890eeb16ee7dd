"""Owners and permissions along a path of directories and links: who can change one of them can redirect the path.

OpenSSH checks the path to a user's keys alike (`StrictModes`), after resolving links; here links are included.
"""

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WRITERS = 0o022
_MAX_LINKS = 40  # the limit of Linux


@dataclass(frozen=True)
class PathStep:
    """A directory or link on a path."""

    place: Path  # with all links before it resolved
    owner: int  # user id of its owner
    mode: int
    shared: bool  # in a directory writable for others, with the sticky bit: only its owner can replace it

    @property
    def owner_decides(self) -> bool:
        """Whether its owner can redirect the path; a link cannot be written to, only replaced."""
        return self.shared or not stat.S_ISLNK(self.mode)

    @property
    def others_decide(self) -> bool:
        """Whether other users can redirect the path: it is writable for them, without a sticky bit."""
        return not stat.S_ISLNK(self.mode) and not self.mode & stat.S_ISVTX and bool(self.mode & _WRITERS)


def path_steps(path: Path) -> Iterator[PathStep]:
    """Yield all directories and links of a path, from the root on, and finally its target.

    Raises `OSError`: one is missing or cannot be inspected, or there is a loop of links.
    """
    here = Path("/")
    found = here.lstat()
    yield PathStep(here, found.st_uid, found.st_mode, shared=False)
    todo = list(path.absolute().parts[:0:-1])
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            here = here.parent
            continue
        above = here.lstat().st_mode
        place = here / name
        found = place.lstat()
        yield PathStep(place, found.st_uid, found.st_mode, bool(above & stat.S_ISVTX and above & _WRITERS))
        if not stat.S_ISLNK(found.st_mode):
            here = place
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(place))
        if target.is_absolute():
            here = Path("/")
        todo += [part for part in reversed(target.parts) if part != "/"]


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def invoking_user() -> int | None:
    """Return the id of the user who started this process by sudo, or None."""
    uid = os.environ.get("SUDO_UID", "")
    return int(uid) if os.geteuid() == 0 and uid.isascii() and uid.isdecimal() else None
