"""A daemon at an address that other computers reach: with keys alone, and it lets in nobody who has none."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.client import ClientError, ClientKey, Control, Subscriber
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair
from service.security.registry import Registry
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import DEADLINE_S, await_message, config, make_recording, processes, replayed, start
from tests.lab.daemon.ethercat_rig import network

ADDRESS = "192.0.2.7"  # of a block that is for documentation alone


@pytest.fixture
def address() -> Iterator[str]:
    """An address that is no loopback one, in a network of this test's own."""
    with network():
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True, timeout=20)
        yield ADDRESS


def test_without_keys_it_is_refused(address: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    text = f"[daemon]\nbind = '{address}'\nstate_dir = 'state'\n[[arm]]\nname = 'axis'\nrobot = 'emps'\n"
    path.write_text(text + "[arm.driver]\nkind = 'replay'\nrecording = 'rec.mcap'\n")
    thetad("serve", "-c", path).refused(f"{address} is not a loopback address", "thetad keys new --server")


def test_with_keys_it_lets_in_whoever_has_one(address: str, tmp_path: Path) -> None:
    keys, server, pair = tmp_path / "keys", new_pair(), new_pair()
    make_directory(keys)
    write_pair(keys / SERVER_KEY, server, "test")
    Registry(keys).add("anna", "read", pair.public)
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True)
    with start(config(tmp_path, arm, bind=address, keys_dir=str(keys), mirror_port=0, http=None), tmp_path) as daemon:
        endpoints = daemon.endpoints
        assert set(endpoints) == {"frames", "estimates", "mirror", "control"}  # no HTTP, which knows no keys
        assert all(endpoint.startswith(f"tcp://{address}:") for endpoint in endpoints.values())
        anna = ClientKey(pair, server.public)
        with Control(endpoints["control"], anna) as control:
            assert control.request("ping", timeout_s=DEADLINE_S)["pong"] is True
            pids = [daemon.pid, *(process["pid"] for process in processes(control).values())]
        for port, topic in (("frames", "axis/frame"), ("estimates", "axis/estimate"), ("mirror", "axis/frame")):
            with Subscriber(endpoints[port], [topic], key=anna) as stream:
                await_message(stream)
        for key, words in ((None, "asks for a key"), (ClientKey(new_pair(), server.public), "does not admit this key")):
            with Control(endpoints["control"], key) as control, pytest.raises(ClientError, match=words):
                control.request("ping", timeout_s=DEADLINE_S)
            for port in ("frames", "estimates", "mirror"):
                with Subscriber(endpoints[port], [""], key=key) as stream, pytest.raises(ClientError, match=words):
                    stream.receive(DEADLINE_S)
        listening = [
            c.laddr for pid in pids for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"
        ]
        assert {each.ip for each in listening} == {address}
        assert {each.port for each in listening} == {int(each.rpartition(":")[2]) for each in endpoints.values()}
