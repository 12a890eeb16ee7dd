"""A simulated PLC on TCP in a thread of the test, and requests to it by plain sockets."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sim_backend.plc.build import build_plc
from sim_backend.plc.server import Server
from sim_backend.plc.settings import PlcSettings

START_S = 60.0  # kernels may have to be compiled
PATIENCE_S = 20.0


@contextmanager
def serving(settings: PlcSettings, address: str, port: int = 48898) -> Iterator[Server]:
    """Answer clients at an address until the block is left."""
    server = Server(build_plc(settings, time.monotonic_ns()), address, port)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), name="simulated PLC")
    thread.start()
    try:
        assert ready.wait(START_S)
        yield server
    finally:
        server.stop()
        thread.join(10.0)
        server.close()


def exchange(connection: socket.socket, packet: bytes) -> bytes:
    """Send a packet and return the answer's data."""
    connection.sendall(packet)
    head = receive(connection, 6)
    return receive(connection, struct.unpack("<HI", head)[1])[32:]


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, "the PLC closed the connection"
        data += piece
    return data
