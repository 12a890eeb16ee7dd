"""Connection of one client, sans I/O.

Without a route the connection is closed, as TwinCAT does.  A packet for an unknown net id or port gets an error in the
AMS header from the router; all others go to the device behind the port.
"""

from typing import Protocol

from sim_backend.plc import _ams as ams
from sim_backend.plc._ams import Address, AmsError, Packet, Splitter
from sim_backend.plc._codes import Code, Command
from sim_backend.plc._device import Device
from sim_backend.plc._notifications import Notifications
from sim_backend.plc._outlet import LineFaults, Outlet
from sim_backend.plc._services import Services
from sim_backend.plc.settings import PlcSettings

_CLIENT_PORT = 0x8000  # first port that the router gives to clients


class Router(Protocol):
    """Controller of a session: its router, and the runtime behind it."""

    settings: PlcSettings
    net_id: bytes
    line: LineFaults
    services: Services
    next_cycle: int

    def routed(self, net_id: bytes) -> bool:
        """Return whether a client's net id has a route."""

    def device(self, port: int) -> Device | None:
        """Return the device behind an AMS port, if any."""


class Session:
    """Connection `number`, from 0, of a client at `host`, until it is `closed`; packets to send are in `outlet`."""

    def __init__(self, plc: Router, number: int, host: str = "") -> None:
        self._plc = plc
        self.host = host
        self._number = number
        self._splitter = Splitter()
        self._clients: dict[tuple[Address, Address], Notifications] = {}
        self.outlet = Outlet(plc.line)
        self.closed = False

    def receive(self, data: bytes, now_ns: int) -> None:
        """Process bytes received at a time [ns]."""
        if self.closed:
            return
        try:
            for kind, payload in self._splitter.feed(data):
                self._take(kind, payload, now_ns)
                if self.closed:
                    return
        except AmsError:
            self.closed = True

    def notify(self, cycle: int, time_100ns: int, now_ns: int) -> None:
        """Sample all notifications after a cycle of the task."""
        for (device, client), notifications in self._clients.items():
            packet = notifications.look(cycle, time_100ns)
            if packet is not None and now_ns >= self._plc.line.silent_until_ns and not self.closed:
                self._put(ams.encode(client, device, Command.NOTIFICATION, ams.ADS, 0, 0, packet), now_ns)

    def end_notifications(self) -> None:
        """End all notifications silently."""
        for notifications in self._clients.values():
            notifications.clear()

    def lose_samples(self, count: int) -> None:
        """Lose the next samples of notifications."""
        for notifications in self._clients.values():
            notifications.lose = count

    @property
    def notifications(self) -> int:
        return sum(map(len, self._clients.values()))

    def _take(self, kind: int, payload: bytes, now_ns: int) -> None:
        if now_ns < self._plc.line.silent_until_ns:
            return
        if kind == ams.AMS:
            packet = ams.decode(payload)
            if packet.is_request:
                answer = self._route(packet)
                if answer is not None:
                    self._put(answer, now_ns)
        elif kind in (ams.PORT_CONNECT, ams.LOCAL_NET_ID):
            port = (_CLIENT_PORT + self._number & 0xFFFF).to_bytes(2, "little") if kind == ams.PORT_CONNECT else b""
            answer = self._plc.net_id + port
            self._put(ams.TCP_HEADER.pack(kind, len(answer)) + answer, now_ns)
        elif kind == ams.PORT_CLOSE:
            self.closed = True

    def _route(self, packet: Packet) -> bytes | None:
        plc = self._plc
        if not plc.routed(packet.source.net_id):
            self.closed = True
            return None
        if packet.target.net_id != plc.net_id:
            return None if plc.settings.unknown_net_id == "silent" else packet.answer(error=Code.MACHINE_NOT_FOUND)
        device = plc.device(packet.target.port)
        if device is None:
            return packet.answer(error=Code.PORT_NOT_FOUND)
        key = packet.target, packet.source
        client = self._clients.get(key)
        if client is None:
            client = Notifications(plc.services.watched, plc.settings.cycle_ns, lambda: plc.next_cycle)
        answer = packet.answer(device.answer(packet.command, packet.data, client))
        if len(client) and key not in self._clients:
            self._clients[key] = client
        return answer

    def _put(self, data: bytes, now_ns: int) -> None:
        """Queue a packet; close the connection of a client that does not read."""
        self.outlet.put(data, now_ns)
        if self.outlet.full:
            self.closed = True
