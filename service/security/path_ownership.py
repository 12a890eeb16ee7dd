"""The way that a path takes through directories and links: whoever may change one of them leads the path elsewhere.

OpenSSH judges the way to a user's keys alike (`StrictModes`), on the path without links; here links are a part of it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WRITERS = 0o022
_MAX_LINKS = 40  # as many as Linux follows


@dataclass(frozen=True)
class Step:
    """A directory or link on the way.

    Attributes
    ----------
    place : Path
        Without links before it.
    owner : int
        User id of its owner.
    mode : int
    shared : bool
        It is in a directory that others may write to, with the sticky bit: it is replaced by its owner alone.
    """

    place: Path
    owner: int
    mode: int
    shared: bool

    @property
    def owner_decides(self) -> bool:
        """Whether its owner can lead the way elsewhere; a link cannot be written to, only replaced."""
        return self.shared or not stat.S_ISLNK(self.mode)

    @property
    def others_decide(self) -> bool:
        """Whether other users can: they may write to it, and there is no sticky bit."""
        return not stat.S_ISLNK(self.mode) and not self.mode & stat.S_ISVTX and bool(self.mode & _WRITERS)


def way(path: Path) -> Iterator[Step]:
    """Yield all directories and links that a path leads through, from the root on, and at the end where it leads.

    Raises
    ------
    OSError
        As soon as one is not there, cannot be looked at, or links go round in a circle.
    """
    here = Path("/")
    found = here.lstat()
    yield Step(here, found.st_uid, found.st_mode, shared=False)
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
        yield Step(place, found.st_uid, found.st_mode, bool(above & stat.S_ISVTX and above & _WRITERS))
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
    """Return the name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def invoking_user() -> int | None:
    """Return the user id of who has started this process as root by sudo; None if nobody has."""
    uid = os.environ.get("SUDO_UID", "")
    return int(uid) if os.geteuid() == 0 and uid.isascii() and uid.isdecimal() else None
