"""A daemon beyond loopback: it requires keys."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.client import ClientError
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import DEADLINE_S, await_message, processes
from tests.lab.daemon.ethercat_rig import network
from tests.lab.daemon.sockets import PORTS, keyed

ADDRESS = "192.0.2.7"  # of a block that is for documentation alone


@pytest.fixture
def address() -> Iterator[str]:
    """An address that is not loopback, in a network name space."""
    with network():
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True, timeout=20)
        yield ADDRESS


def test_without_keys_it_is_refused(address: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    text = f"[daemon]\nbind = '{address}'\nstate_dir = 'state'\n[[arm]]\nname = 'axis'\nrobot = 'emps'\n"
    path.write_text(text + "[arm.driver]\nkind = 'replay'\nrecording = 'rec.mcap'\n")
    thetad("serve", "-c", path).refused(f"{address} is not a loopback address", "thetad keys new --server")


def test_with_keys_it_lets_in_whoever_has_one(address: str, tmp_path: Path) -> None:
    with keyed(tmp_path, bind=address, http=None, http_token_file=None) as site:
        assert set(site.endpoints) == set(PORTS)  # no HTTP, which knows no keys
        assert all(endpoint.startswith(f"tcp://{address}:") for endpoint in site.endpoints.values())
        with site.control() as control:
            assert control.request("ping", timeout_s=DEADLINE_S)["pong"] is True
            pids = [site.daemon.pid, *(process["pid"] for process in processes(control).values())]
        for port, what in (("frames", "frame"), ("estimates", "estimate"), ("mirror", "frame")):
            with site.subscribe(site.admin, port, what) as stream:
                await_message(stream)
        for key, words in ((None, "asks for a key"), (site.stranger(), "does not admit this key")):
            with site.control_by(key) as control, pytest.raises(ClientError, match=words):
                control.request("ping", timeout_s=DEADLINE_S)
            for port in ("frames", "estimates", "mirror"):
                with site.subscribe(key, port) as stream, pytest.raises(ClientError, match=words):
                    stream.receive(DEADLINE_S)
        found = [c.laddr for pid in pids for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"]
        assert {each.ip for each in found} == {address}
        assert {each.port for each in found} == {int(each.rpartition(":")[2]) for each in site.endpoints.values()}
