"""Between a driver and a PLC: a TCP proxy that damages what the PLC says, drawn by a seed.

Spared is what the ADS library does not survive (docs/twincat.md): lengths in AMS headers, answers that end with their
connection, and notifications whose counts are wrong.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time

from sim_backend.plc._ams import AMS_HEADER, TCP_HEADER, AmsError, Splitter, decode, encode
from sim_backend.plc._codes import Command
from tests.lab.closing import Closing

PORT = 48898
#: What is done to packets.
KINDS = ("random", "torn", "value", "header", "repeated", "notifications", "ended")
#: Places of the length in a packet's AMS header.
_LENGTH = range(8 * 26, 8 * 30)
_NOTIFICATION_HEADER = struct.Struct("<II")  # length, stamps
_LOOK_S = 0.05


class DamagingProxy(Closing):
    """A proxy at `address`, in a thread; `kind` is what it does to a `share` of the packets, "" nothing.

    `damaged` counts packets that were damaged, or that the PLC has not sent.
    """

    def __init__(self, address: str, plc: str, seed: int) -> None:
        self.kind, self.share, self.damaged = "", 0.0, 0
        self._plc, self._random = plc, random.Random(seed)
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server((address, PORT))
        self._listener.setblocking(False)
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="damaging proxy")
        self._thread.start()

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        for pair in self._pairs:
            pair.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._stop:
            ends = [end for pair in self._pairs for end in (pair.driver, pair.plc)]
            ready = select.select([self._listener, *ends], [], [], _LOOK_S)[0]
            if self._listener in ready:
                with contextlib.suppress(OSError):
                    self._accept()
            for pair in list(self._pairs):
                try:
                    if pair.driver in ready:
                        pair.plc.sendall(pair.received(pair.driver))
                    if pair.plc in ready:
                        self._answer(pair, pair.received(pair.plc))
                except (OSError, AmsError):
                    self._pairs.remove(pair)
                    pair.close()

    def _accept(self) -> None:
        driver, _ = self._listener.accept()
        try:
            plc = socket.create_connection((self._plc, PORT), 5.0)
        except OSError:
            driver.close()
            raise
        for end in (driver, plc):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        driver.settimeout(1.0)  # who takes nothing is hung up on
        self._pairs.append(_Pair(driver, plc))

    def _answer(self, pair: _Pair, data: bytes) -> None:
        for kind, payload in pair.splitter.feed(data):
            packet = TCP_HEADER.pack(kind, len(payload)) + payload
            pair.old = [*pair.old[-9:], packet]
            if self.kind and self._random.random() < self.share:
                self.damaged += 1
                packet = self._damage(pair, packet)
            pair.driver.sendall(packet)

    def _damage(self, pair: _Pair, packet: bytes) -> bytes:
        """Return what is sent in place of a packet; raises `ConnectionError` where the connection ends with it."""
        draw, spoilt = self._random, bytearray(packet)
        head = TCP_HEADER.size + AMS_HEADER.size
        if self.kind == "random":
            return draw.randbytes(draw.randrange(1, 400))
        if self.kind == "torn":
            return packet[: draw.randrange(len(packet))]
        if self.kind == "ended":
            pair.driver.sendall(packet[: draw.randrange(head)])
            raise ConnectionAbortedError
        if self.kind == "repeated":
            return draw.choice(pair.old) + packet + packet
        if self.kind == "notifications":
            return self._notification(packet) + packet
        first, end = (0, head) if self.kind == "header" else (head, len(packet))
        for _ in range(draw.randrange(1, 4) if end > first else 0):
            bit = draw.randrange(8 * first, 8 * end)
            if bit not in _LENGTH:
                spoilt[bit // 8] ^= 1 << bit % 8
        return bytes(spoilt)

    def _notification(self, packet: bytes) -> bytes:
        """Return a notification that nobody has asked for, or of another size, to whom a packet is for."""
        draw = self._random
        asked = decode(packet[TCP_HEADER.size :])
        data = draw.randbytes(draw.randrange(200))
        samples = struct.pack("<II", draw.randrange(1, 40), len(data)) + data
        body = struct.pack("<QI", time.time_ns() // 100, 1) + samples
        body = _NOTIFICATION_HEADER.pack(len(body) + 4, 1) + body
        return encode(asked.target, asked.source, Command.NOTIFICATION, 4, 0, 0, body)


class _Pair:
    """The two ends of a connection, and what the PLC has sent over it."""

    def __init__(self, driver: socket.socket, plc: socket.socket) -> None:
        self.driver, self.plc = driver, plc
        self.splitter = Splitter()
        self.old: list[bytes] = []

    @staticmethod
    def received(end: socket.socket) -> bytes:
        """Return what has come; raises `ConnectionError` if the other has hung up."""
        data = end.recv(1 << 18)
        if not data:
            raise ConnectionAbortedError
        return data

    def close(self) -> None:
        self.driver.close()
        self.plc.close()
