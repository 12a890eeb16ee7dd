"""A virtual cable: a pair of virtual Ethernet interfaces, by `ip` of iproute2 as root (CAP_NET_ADMIN)."""

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass

from sim_backend.errors import SimulationError

#: Default names: the daemon's end and the drives' end.
MASTER_END, SEGMENT_END = "thetad0", "thetad1"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")


class LinkError(SimulationError, OSError):
    """The pair of interfaces cannot be made or removed; the message says why."""


@dataclass(frozen=True)
class Link:
    """The two ends of a cable."""

    master: str = MASTER_END
    segment: str = SEGMENT_END

    def __post_init__(self) -> None:
        for name in (self.master, self.segment):
            if not _NAME.fullmatch(name):
                raise LinkError(f"{name!r} is not an interface name: a letter, then up to 14 letters, digits, - _ .")
        if self.master == self.segment:
            raise LinkError(f"both ends of the cable are named {self.master!r}")

    def exists(self) -> bool:
        """Whether there is an interface with the name of either end."""
        return _exists(self.master) or _exists(self.segment)

    def up(self) -> None:
        """Create both interfaces and enable them; `LinkError` if a name is taken, `ip` is missing, or it is refused."""
        for name in (self.master, self.segment):
            if _exists(name):
                raise LinkError(f"there is an interface {name} already: remove it with thetad sim link down")
        _ip("link", "add", self.master, "type", "veth", "peer", "name", self.segment)
        try:
            for name in (self.master, self.segment):
                # Neighbour discovery of IPv6 would put frames of its own on the cable.
                _ip("link", "set", name, "addrgenmode", "none")
                _ip("link", "set", name, "multicast", "off", "arp", "off", "up")
        except LinkError:
            self.down()
            raise

    def down(self) -> None:
        """Remove both interfaces; raises `LinkError` if there are none, or they are not a virtual pair."""
        if not self.exists():
            raise LinkError(f"there is no interface {self.master} or {self.segment}")
        name = self.master if _exists(self.master) else self.segment
        if "veth" not in _ip("-details", "link", "show", "dev", name):
            raise LinkError(f"interface {name} is not a virtual pair: it was not made by thetad, and stays")
        _ip("link", "delete", name)


def enable_loopback() -> None:
    """Enable the loopback interface of a new network namespace; raises `LinkError`."""
    _ip("link", "set", "lo", "up")


def _exists(name: str) -> bool:
    """Whether this network namespace has the interface."""
    return name in {each for _, each in socket.if_nameindex()}


def _ip(*arguments: str) -> str:
    program = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if program is None:
        raise LinkError("the program ip is missing: install iproute2 (apt install iproute2)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=10.0)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix("RTNETLINK answers: ")
        hint = ": run it as root (sudo)" if "not permitted" in reason.lower() else ""
        raise LinkError(f"ip {' '.join(arguments)}: {reason}{hint}")
    return done.stdout
