"""Network interface of a bus: presence, link, exclusive use, other masters, and a list of candidates."""

import errno
import fcntl
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from drivers.driver import DriverConfigError, DriverConnectionError

ETHERTYPE = 0x88A4
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFHWADDR, _SIOCGIWNAME = 0x8913, 0x8915, 0x8927, 0x8B01
_ARPHRD_ETHER = 1
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_NAME_BYTES = 15
#: How long to listen for frames of another master [s].
LISTEN_S = 0.1


def check_name(name: str) -> None:
    """Raise `DriverConfigError` unless an interface can have this name; SOEM copies it into 16 bytes unchecked."""
    raw = name.encode("utf-8", "surrogateescape")
    if not 1 <= len(raw) <= _NAME_BYTES or b"\0" in raw or b"/" in raw or any(c.isspace() for c in name):
        raise DriverConfigError(
            f"interface {name!r} is not a network interface name (1 to {_NAME_BYTES} bytes); `ip link` lists them"
        )


def link_flags(name: str) -> tuple[bool, bool] | None:
    """Return whether an interface is up, and whether it also has a link; None if it does not exist."""
    request = struct.pack("16sH14x", name.encode("utf-8", "surrogateescape"), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            (flags,) = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)
        except OSError:
            return None
    up = bool(flags & _IFF_UP)
    return up, up and bool(flags & _IFF_RUNNING)


def check_link(name: str) -> None:
    """Raise unless the interface exists, is up, and has a link.

    `DriverConfigError`: no interface can have this name; `DriverConnectionError`: not there, down, or without a cable.
    """
    check_name(name)
    flags = link_flags(name)
    if flags is None:
        known = ", ".join(other for _, other in socket.if_nameindex() if other != "lo") or "none"
        raise DriverConnectionError(f"there is no network interface {name!r}; there is: {known}")
    up, link = flags
    if not up:
        raise DriverConnectionError(f"interface {name} is down: `ip link set {name} up` (as root)")
    if not link:
        raise DriverConnectionError(
            f"interface {name} has no link: is the cable plugged in, and the first drive powered?"
        )


def permission_text(name: str) -> str:
    """Return the remedy for a missing permission to open raw sockets."""
    return (
        f"no permission for raw Ethernet on {name}: run with sudo, or once "
        f"`sudo setcap cap_net_raw,cap_net_admin+ep {sys.executable}` (on the file, not on a link to it)"
    )


class InterfaceClaim:
    """Exclusive use of an interface among the masters of this program.

    The claim is a socket in Linux' abstract name space, which like interfaces belongs to a network name space; the
    kernel removes it with the process.
    """

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(f"\0thetad.ethercat.{name}")
        except OSError as error:
            self._socket.close()
            if error.errno != errno.EADDRINUSE:
                raise DriverConnectionError(f"interface {name} cannot be claimed: {error.strerror}") from error
            raise DriverConnectionError(
                f"another EtherCAT master of this program runs on interface {name}: stop it first"
            ) from error

    def release(self) -> None:
        """Release the interface."""
        self._socket.close()


def listen(name: str, duration_s: float) -> int:
    """Count the EtherCAT frames that arrive within `duration_s`; raises `DriverConnectionError` if not permitted.

    As this process sends none meanwhile, they are answers to another master.
    """
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    except PermissionError as error:
        raise DriverConnectionError(permission_text(name)) from error
    frames = 0
    with tap:
        tap.bind((name, ETHERTYPE))
        tap.setblocking(False)
        until = time.monotonic() + duration_s
        while (left := until - time.monotonic()) > 0.0:
            if select.select([tap], [], [], left)[0]:
                tap.recv(2048)
                frames += 1
    return frames


def refuse_other_master(name: str) -> None:
    """Raise `DriverConnectionError` if another master is active.

    Listens twice, because late answers to a master that has just stopped may still arrive.
    """
    if listen(name, LISTEN_S) and (frames := listen(name, LISTEN_S)):
        raise DriverConnectionError(
            f"another EtherCAT master is active on {name} ({frames} of its frames in {LISTEN_S * 1e3:.0f} ms): "
            "stop it first; two masters on one bus stop each other's drives"
        )


def check_free(names: Sequence[str]) -> None:
    """Raise if a master could not use these interfaces now: no link, no permission, another master."""
    for name in names:
        check_link(name)
    for name in names:
        InterfaceClaim(name).release()
        refuse_other_master(name)


@dataclass(frozen=True)
class Adapter:
    """A wired Ethernet interface."""

    name: str
    mac: str
    up: bool
    link: bool
    address: str | None  # IPv4; an interface with one has another use

    @property
    def state(self) -> str:
        """Return `down`, `no link` or `link`."""
        return "down" if not self.up else "link" if self.link else "no link"


def adapters() -> list[Adapter]:
    """Return all wired Ethernet interfaces of this machine; needs no privileges."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            hardware = _ask(probe, _SIOCGIFHWADDR, name)
            flags = link_flags(name)
            if hardware is None or flags is None or struct.unpack_from("H", hardware, 16)[0] != _ARPHRD_ETHER:
                continue
            if _ask(probe, _SIOCGIWNAME, name) is not None:  # wireless
                continue
            address = _ask(probe, _SIOCGIFADDR, name)
            found.append(
                Adapter(
                    name, hardware[18:24].hex(":"), *flags,
                    None if address is None else socket.inet_ntoa(address[20:24]),
                )
            )  # fmt: skip
    return found


def _ask(probe: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(probe, request, struct.pack("16s24x", name.encode("utf-8", "surrogateescape")))
    except OSError:  # no such value, or the interface is gone
        return None
