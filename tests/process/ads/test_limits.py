"""What clients may not take: answers unread, connections, file descriptors."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from sim_backend.plc._outlet import LineFaults, Outlet
from tests.lab.ads.plc_bench import make, settings
from tests.lab.ads.plc_thread import PATIENCE_S, exchange, serving
from tests.lab.ads.simple_client import PlainClient

ADDRESS = "127.0.9.26"
MIB = 1024 * 1024
RUNNING = struct.pack("<IHH", 0, 5, 0)


@pytest.fixture
def served():
    with serving(settings(), ADDRESS, 0) as running:
        yield running


@pytest.fixture(scope="module")
def client():
    return PlainClient(make())


@pytest.fixture(scope="module")
def state_request(client):
    return client.packet(4)


def connect(served):
    return socket.create_connection((ADDRESS, served.port), PATIENCE_S)


def rest(connection):
    """Number of bytes until the PLC closes the connection."""
    count = 0
    try:
        while data := connection.recv(MIB):
            count += len(data)
    except ConnectionResetError:
        pass
    return count


def answered_until(connection, request, condition):
    """Let the PLC answer a client again and again until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert exchange(connection, request) == RUNNING
        assert time.monotonic() < deadline


def test_a_packet_of_any_length_but_not_much_behind_it():
    outlet = Outlet(LineFaults())
    outlet.put(bytes(20 * MIB), 0)
    assert not outlet.full
    outlet.put(b"x", 0)
    assert outlet.full
    outlet.due(0)
    outlet.put(bytes(MIB), 0)
    outlet.put(bytes(MIB), 0)
    assert not outlet.full


def test_answers_that_pile_up_in_one_turn_end_the_connection():
    client = PlainClient(make())
    client.session.receive(client.packet(2, struct.pack("<III", 0x4040, 0x1000, 10_000)) * 5000, 0)
    assert client.session.closed
    assert 16 * MIB < sum(map(len, client.session.outlet.due(0))) < 17 * MIB


def test_a_client_that_reads_nothing_loses_its_connection(served, client, state_request):
    asked = 5000
    with connect(served) as deaf, connect(served) as good:
        deaf.sendall(client.packet(2, struct.pack("<III", 0x4040, 0x1000, 10_000)) * asked)
        answered_until(good, state_request, lambda: served.do(lambda plc: len(plc.sessions)) == 1)
        assert rest(deaf) < asked * 10_000
        assert exchange(good, state_request) == RUNNING


def test_sixty_four_clients(served, state_request):
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(served)) for _ in range(70)]
        for each in clients[:64]:
            assert exchange(each, state_request) == RUNNING
        assert [rest(each) for each in clients[64:]] == [0] * 6
        clients[10].close()
        answered_until(clients[0], state_request, lambda: served.do(lambda plc: len(plc.sessions)) == 63)
        assert exchange(stack.enter_context(connect(served)), state_request) == RUNNING


def test_a_new_connection_from_a_host_closes_the_older_one(state_request):
    def connect_from(host):
        return socket.create_connection((ADDRESS, running.port), PATIENCE_S, source_address=(host, 0))

    with ExitStack() as stack:
        running = stack.enter_context(serving(settings(one_connection_per_host=True), ADDRESS, 0))
        first, other = (stack.enter_context(connect_from(host)) for host in ("127.0.9.27", "127.0.9.28"))
        for each in (first, other):
            assert exchange(each, state_request) == RUNNING
        second = stack.enter_context(connect_from("127.0.9.27"))
        assert rest(first) == 0
        for each in (other, second):
            assert exchange(each, state_request) == RUNNING


@contextmanager
def file_limit(count):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def filled():
    """No file descriptor is left; calling what is yielded takes those that have become free since."""
    taken: list[int] = []

    def fill():
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))

    try:
        fill()
        yield fill
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_no_file_descriptors_left(served, state_request):
    with connect(served) as good, socket.socket() as waiting:
        waiting.settimeout(PATIENCE_S)
        assert exchange(good, state_request) == RUNNING  # it has been accepted
        with file_limit(max(map(int, os.listdir("/proc/self/fd"))) + 10), filled() as fill:
            for _ in range(20):
                assert exchange(good, state_request) == RUNNING
            fill()  # what the PLC's thread had open for a moment
            waiting.connect((ADDRESS, served.port))
            for _ in range(20):
                assert exchange(good, state_request) == RUNNING
            assert served.do(lambda plc: len(plc.sessions)) == 1
        assert exchange(waiting, state_request) == RUNNING


def test_file_descriptors_above_1023(served, state_request):
    with ExitStack() as stack:
        with file_limit(1100):
            stack.enter_context(filled())
        stack.enter_context(file_limit(1200))
        connection = stack.enter_context(connect(served))
        assert connection.fileno() >= 1100
        assert exchange(connection, state_request) == RUNNING
