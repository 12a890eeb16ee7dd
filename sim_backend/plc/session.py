"""One client's connection: bytes in, bytes out.

Without a route the connection is closed, as TwinCAT does.  A packet for another net id or for a port that is not there
is answered by the router, with an error in the AMS header; all else is for the device behind the port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_backend.plc import ams
from sim_backend.plc.ams import Address, AmsError, Packet, Splitter
from sim_backend.plc.codes import AdsError, Code, Command
from sim_backend.plc.notifications import Notifications
from sim_backend.plc.outlet import Outlet

if TYPE_CHECKING:
    from sim_backend.plc.plc import SimulatedPlc

_CLIENT_PORT = 0x8000  # first port that the router gives to clients


class Session:
    """A connection.

    Parameters
    ----------
    plc : SimulatedPlc
    number : int
        Of the connection, from 0.

    Attributes
    ----------
    closed : bool
        The PLC has closed it.
    requests : int
        Packets answered or ignored.
    outlet : Outlet
        What is to be sent.
    """

    def __init__(self, plc: SimulatedPlc, number: int) -> None:
        self._plc = plc
        self._number = number
        self._splitter = Splitter()
        self._clients: dict[tuple[Address, Address], Notifications] = {}
        self.outlet = Outlet(plc.line)
        self.closed = False
        self.requests = 0

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes that have come at a time [ns]."""
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
        """Look at the values of all notifications after a cycle of the task."""
        for (device, client), notifications in self._clients.items():
            packet = notifications.look(cycle, time_100ns)
            if packet is not None and now_ns >= self._plc.line.silent_until_ns:
                self.outlet.put(ams.encode(client, device, Command.NOTIFICATION, ams.ADS, 0, 0, packet), now_ns)

    def end_notifications(self) -> None:
        """Forget all notifications, without a word."""
        for notifications in self._clients.values():
            notifications.clear()

    def lose_samples(self, count: int) -> None:
        """Let the next samples of notifications get lost."""
        for notifications in self._clients.values():
            notifications.lose = count

    @property
    def notifications(self) -> int:
        """How many there are."""
        return sum(map(len, self._clients.values()))

    def _take(self, kind: int, payload: bytes, now_ns: int) -> None:
        self.requests += 1
        if now_ns < self._plc.line.silent_until_ns:
            return
        if kind == ams.AMS:
            packet = ams.decode(payload)
            if packet.is_request:
                answer = self._route(packet)
                if answer is not None:
                    self.outlet.put(answer, now_ns)
        elif kind in (ams.PORT_CONNECT, ams.LOCAL_NET_ID):
            port = (_CLIENT_PORT + self._number & 0xFFFF).to_bytes(2, "little") if kind == ams.PORT_CONNECT else b""
            answer = self._plc.net_id + port
            self.outlet.put(ams.TCP_HEADER.pack(kind, len(answer)) + answer, now_ns)
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
        return packet.answer(device.answer(packet.command, packet.data, _Client(self, packet)))

    def client(self, packet: Packet) -> Notifications:
        """Notifications of the client that a packet comes from."""
        key = packet.target, packet.source
        if key not in self._clients:
            self._clients[key] = Notifications(self._plc.settings.cycle_ns)
        return self._clients[key]

    def watch(self, packet: Packet, request: bytes) -> int:
        """Add a notification."""
        services = self._plc.services
        if packet.target.port != self._plc.settings.port:
            raise AdsError(Code.SERVICE_NOT_SUPPORTED)
        return self.client(packet).add(request, services.watched, self._plc.next_cycle)


class _Client:
    """The client of a packet, for requests about notifications."""

    def __init__(self, session: Session, packet: Packet) -> None:
        self._session, self._packet = session, packet

    def add_notification(self, request: bytes) -> int:
        return self._session.watch(self._packet, request)

    def delete_notification(self, handle: int) -> None:
        self._session.client(self._packet).delete(handle)
