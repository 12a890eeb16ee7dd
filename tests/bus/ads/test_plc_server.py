"""The server's clock and sockets: a late process, bad bytes, routes; and the command."""

import json
import signal
import socket
import struct
import subprocess
import sys
from types import SimpleNamespace

import pyads
import pytest

from sim_backend.plc import server as module
from sim_backend.plc.server import Server, ServerError
from tests.lab.ads.plc_bench import CONFIG, make, settings
from tests.lab.ads.plc_thread import PATIENCE_S, exchange, receive, serving
from tests.lab.ads.simple_client import PlainClient
from tests.lab.command_line import thetad

MS = 1_000_000
RUNNING = struct.pack("<IHH", 0, 5, 0)


class TestClock:
    """A server whose clock is the test's."""

    @pytest.fixture
    def now(self, monkeypatch):
        now = [0]
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
        return now

    @pytest.fixture
    def server(self, now):
        server = Server(make(), "127.0.9.21", 0)
        yield server
        server.close()

    def test_in_time_a_cycle_runs_when_it_is_due(self, now, server):
        for k in range(50):
            now[0] = k * MS
            server.serve()
            assert server.plc.next_cycle == k + 1
        assert server.latest_ns == 0

    def test_a_late_process_loses_no_cycle_and_catches_up_at_twice_the_speed(self, now, server):
        server.serve()
        now[0] = 500 * MS
        server.serve()
        assert server.plc.next_cycle == 11  # two times five milliseconds, and the first
        before, turns = 11, 0
        while server.plc.due_ns() <= now[0]:
            now[0] += MS
            server.serve()
            assert server.plc.next_cycle - before <= 2
            before, turns = server.plc.next_cycle, turns + 1
        assert server.plc.program.counter == server.plc.next_cycle == now[0] // MS + 1
        assert 480 < turns < 500
        assert server.latest_ns == 499 * MS

    @pytest.mark.parametrize("cycle_ms", [0.0, 2.0])
    def test_ready_means_that_clients_are_answered(self, now, server, monkeypatch, cycle_ms):
        costs = [300.0]  # of the first cycle, which loads the kernels
        advance = server.plc.machine.advance

        def slow(period_s):
            now[0] += round((costs.pop() if costs else cycle_ms) * MS)
            advance(period_s)

        monkeypatch.setattr(server.plc.machine, "advance", slow)
        ready = []
        now[0] = 2 * MS
        server.run(ready=lambda: (ready.append(server.plc.due_ns() - now[0]), server.stop()))
        before = server.plc.next_cycle
        server.serve()
        assert server.plc.next_cycle - before <= 11  # beside clients, and not before them
        assert cycle_ms or ready[0] > 0


@pytest.fixture(scope="module")
def served():
    with serving(settings(), "127.0.9.22", 0) as running:
        yield running


@pytest.fixture(scope="module")
def state_request():
    return PlainClient(make()).packet(4)


def connect(served):
    return socket.create_connection(("127.0.9.22", served.port), PATIENCE_S)


class TestSockets:
    def test_requests_in_pieces_and_several_in_one(self, served, state_request):
        with connect(served) as connection:
            for byte in state_request[:-1]:
                connection.sendall(bytes((byte,)))
            assert exchange(connection, state_request[-1:]) == RUNNING
            connection.sendall(state_request * 20)
            assert receive(connection, 20 * 46).count(RUNNING) == 20

    def test_what_is_no_ams_ends_that_connection_only(self, served, state_request):
        with connect(served) as good, connect(served) as bad:
            bad.sendall(b"GET / HTTP/1.1\r\nHost: plc\r\n\r\n")
            assert bad.recv(100) == b""
            assert exchange(good, state_request) == RUNNING


def test_the_command_serves_and_ends_in_order(state_request):
    command = [sys.executable, "-m", "service.cli.main", "sim", "plc", CONFIG, "--address", "127.0.9.23", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        assert (said["event"], said["axes"], said["net_id"]) == ("ready", 9, "5.80.201.11.1.1")
        with socket.create_connection((said["address"], said["port"]), PATIENCE_S) as connection:
            assert exchange(connection, state_request) == RUNNING
        process.send_signal(signal.SIGTERM)
        _, text = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "cycles, at most" in text


def test_the_command_checks_a_description_and_refuses_a_bad_one(tmp_path):
    assert thetad("sim", "plc", CONFIG, "--check").json["ok"] is True
    bad = tmp_path / "bad.toml"
    bad.write_text('robot = "arm9"\naxis = [{ joint = "joint_1", units = "deg" }]\n')
    thetad("sim", "plc", bad).refused("axis[0].units: unknown key; did you mean 'unit'")


def test_routes_are_added_with_user_and_password():
    address = "127.0.9.2"
    with serving(settings(routes=()), address) as server:
        host = "127.0.0.1.1.1"

        def add(password):
            return pyads.add_route_to_plc(host, "127.0.0.1", address, "Administrator", password, added_net_id=host)

        # pyads does not know the answer to a wrong password, and says so.
        with pytest.raises(RuntimeError, match="Unexpected response"):
            add("")
        assert not server.do(lambda simulated: simulated.routed(bytes((127, 0, 0, 1, 1, 1))))
        assert add("1") is True
        assert server.do(lambda simulated: simulated.routed(bytes((127, 0, 0, 1, 1, 1))))
        assert pyads.pyads_ex.adsGetNetIdForPLC(address) == "5.80.201.11.1.1"


def test_an_address_that_is_taken_or_not_ours(served):
    with pytest.raises(ServerError, match=r"cannot listen at 127\.0\.9\.22, TCP port"):
        Server(make(), "127.0.9.22", served.port)
    with pytest.raises(ServerError, match="give an address of this machine"):
        Server(make(), "192.0.2.1")
    with pytest.raises(ServerError, match="cannot listen"):
        Server(make(), "127.0.9.22", 70_000)
