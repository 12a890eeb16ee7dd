"""Network interfaces that a bus could be plugged into."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass

from drivers.ethercat.bus.interface import link_flags

_SIOCGIFADDR, _SIOCGIFHWADDR, _SIOCGIWNAME = 0x8915, 0x8927, 0x8B01
_ETHERNET = 1


@dataclass(frozen=True)
class Adapter:
    """An interface of the Ethernet kind."""

    name: str
    mac: str
    up: bool
    link: bool
    address: str | None  # IPv4; an interface that has one is used for something else

    @property
    def state(self) -> str:
        """Return `down`, `no link` or `link`."""
        return "down" if not self.up else "link" if self.link else "no link"


def adapters() -> list[Adapter]:
    """All wired Ethernet interfaces of this machine; needs no rights."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            hardware = _ask(probe, _SIOCGIFHWADDR, name)
            flags = link_flags(name)
            if hardware is None or flags is None or struct.unpack_from("H", hardware, 16)[0] != _ETHERNET:
                continue
            if _ask(probe, _SIOCGIWNAME, name) is not None:  # wireless
                continue
            address = _ask(probe, _SIOCGIFADDR, name)
            found.append(
                Adapter(
                    name,
                    hardware[18:24].hex(":"),
                    *flags,
                    None if address is None else socket.inet_ntoa(address[20:24]),
                )
            )
    return found


def _ask(probe: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(probe, request, struct.pack("16s24x", name.encode("utf-8", "surrogateescape")))
    except OSError:  # it has none, or has just gone
        return None
