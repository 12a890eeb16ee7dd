"""A daemon that requires keys: admission, roles, revocation, and restarts of the gateway."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.client import ClientError, ClientTimeoutError, ControlError, NotAdmittedError, UnreachableError
from service.security.authenticator import HANDSHAKE_MS
from service.security.keys import SERVER_KEY, client_key, new_pair
from tests.lab.command_line import ROOT, thetad
from tests.lab.daemon.daemons import DEADLINE_S, await_message, await_status, processes
from tests.lab.daemon.ethercat_rig import network
from tests.lab.daemon.shared import Keeper
from tests.lab.daemon.sockets import PORTS, KeyedSite, hung_up_on, keyed
from tests.lab.node import installed

SHORT_S = 2.0
SOME_S = 10.0


@pytest.fixture(scope="module")
def site(keeper: Keeper) -> KeyedSite:
    return keeper.get(keyed)


def test_whoever_has_none_is_refused_on_every_port(site: KeyedSite) -> None:
    stranger = site.stranger()
    # Which side notices first that one of them has no key is a matter of chance.
    for key, words in ((None, "asks for a key"), (stranger, "does not admit this key")):
        with site.control_by(key) as control, pytest.raises(ClientError, match=words):
            control.request("ping", timeout_s=SOME_S)
        for port, what in (("frames", "frame"), ("estimates", "estimate"), ("mirror", "estimate")):
            with site.subscribe(key, port, what) as stream, pytest.raises(ClientError, match=words):
                stream.receive(SOME_S)


def test_whoever_does_not_get_on_with_the_handshake_is_hung_up_on(site: KeyedSite) -> None:
    endpoints = [site.endpoints[port] for port in PORTS]
    greeting = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
    assert hung_up_on(endpoints, (b"", greeting[:10], greeting)) > 0.9e-3 * HANDSHAKE_MS


def test_a_subscriber_that_is_revoked_is_cut_off_and_the_others_come_back(site: KeyedSite) -> None:
    with (
        site.control_by(site.key("carl")) as control,
        site.subscribe(site.key("dora")) as stays,
        site.subscribe(site.key("emil")) as goes,
    ):
        await_message(stays)
        await_message(goes)
        restarts = processes(control)["gateway"]["restarts"]
        site.registry.revoke("emil")
        found = await_status(control, lambda now: now["gateway"]["restarts"] > restarts)
        assert "emil" in found["gateway"]["last_error"]
        await_status(control, lambda now: now["gateway"]["state"] == "ready")
        with pytest.raises(NotAdmittedError):
            await_message(goes, lambda message: False)
        while stays.newest(DEADLINE_S).envelope.t_host_ns < time.monotonic_ns() - 1_000_000_000:
            pass


def test_after_a_kill_the_gateway_lets_in_the_same_clients(site: KeyedSite) -> None:
    key = site.key("fred")
    with site.control_by(key) as control:
        before = processes(control)["gateway"]
        os.kill(before["pid"], signal.SIGKILL)
        await_status(control, lambda found: found["gateway"]["restarts"] > before["restarts"])
        await_status(control, lambda found: found["gateway"]["state"] == "ready")
        with site.subscribe(key) as stream:
            await_message(stream)
        with site.subscribe(site.stranger()) as stream, pytest.raises(NotAdmittedError):
            stream.receive(DEADLINE_S)


@pytest.mark.parametrize(("what", "error"), [("gateway", ClientTimeoutError), ("supervisor", UnreachableError)])
def test_while_the_gateway_hangs_nobody_is_let_in(site: KeyedSite, what: str, error: type[ClientError]) -> None:
    """Nor by the control socket while the supervisor does."""
    key = site.key("gina")

    def comes_in(timeout_s: float) -> None:
        if what == "gateway":
            with site.subscribe(key) as stream:
                stream.receive(timeout_s)
        else:
            with site.control_by(key) as control:
                assert control.request("ping", timeout_s=timeout_s)["pong"] is True

    with site.control() as control:
        pid = processes(control)["gateway"]["pid"] if what == "gateway" else site.daemon.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(error):
            comes_in(SHORT_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    comes_in(DEADLINE_S)


def test_roles_hold_in_the_daemon_and_revocation_at_the_next_request(site: KeyedSite) -> None:
    with site.control_by(site.key("ines", "read")) as reader, site.control_by(site.key("jana", "operate")) as operator:
        assert reader.request("models")["arms"].keys() == {"axis"}
        for control, verb in ((reader, "snapshot"), (operator, "shutdown"), (operator, "backup")):
            with pytest.raises(ControlError, match=f"{verb}: needs the role") as error:
                control.request(verb)
            assert error.value.type == "denied"
        await_status(reader, lambda found: found["axis/estimator"]["state"] == "ready")
        assert operator.request("snapshot", timeout_s=DEADLINE_S)["theta"]
        site.registry.revoke("jana")
        with pytest.raises(ControlError, match="has been revoked"):
            operator.request("snapshot")


def test_files_that_clients_may_not_name_are_not_touched(site: KeyedSite) -> None:
    """Without jobs.folders those are all but the daemon's recordings, of which this one makes none."""
    recording = site.path / "rec.mcap"
    with site.control_by(site.key("kurt")) as control:
        await_status(control, lambda found: found["jobs"]["state"] == "ready")
        for parameters, words in (
            ({"recording": str(recording)}, "jobs.folders"),
            ({"recording": "/etc/passwd"}, "jobs.folders"),
            ({"recording": str(site.keys / SERVER_KEY)}, "keys are there"),
            ({"recording": "live:5", "robot": str(site.keys / SERVER_KEY)}, "name of a robot"),
        ):
            with pytest.raises(ControlError, match=words) as error:
                control.request("submit", DEADLINE_S, kind="identify", parameters=parameters)
            assert error.value.type == "bad_argument"
        with pytest.raises(ControlError, match=r"jobs\.folders"):
            control.request("backup", directory=str(site.path / "copy"))
    assert not (site.path / "copy").exists()


def test_commands_take_a_key(site: KeyedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    key, control = site.key("lena", "read"), site.endpoints["control"]
    assert thetad("status", "--control", control, "--key", key, "--json").json["arms"] == ["axis"]
    named = thetad("watch", "--endpoint", site.endpoints["estimates"], "--key", key, "--json", "--timeout", "60")
    assert named.json["arm"] == "axis"
    thetad("status", "--control", control).refused("asks for a key")
    thetad("status", "--control", control, "--key", site.path / "gone.key").refused("gone.key")
    monkeypatch.setenv("THETAD_KEY", str(key))
    assert thetad("jobs", "list", "--control", control, "--json").json["jobs"] == []
    wrong = thetad("status", "--control", control, "--server-key", new_pair().public, "--timeout", "3")
    assert wrong.code == 3
    assert "is the server's key that of this daemon?" in wrong.err


@pytest.mark.parametrize("language", ["python", "node"])
def test_the_example_subscribes(site: KeyedSite, tmp_path: Path, language: str) -> None:
    """The one in Python with two packages."""
    example = ROOT / "examples" / "subscribe_keyed.py"
    program: list[str | Path] = [sys.executable, "-u", example]
    if language == "node":
        program = ["node", installed(ROOT / "examples" / "node", tmp_path) / "subscribe_keyed.mjs"]
    used = set(re.findall(r"^(?:import|from) (\w+)", example.read_text(encoding="utf-8"), re.MULTILINE))
    assert used <= {"re", "sys", "pathlib", "zmq", "msgpack"}
    command = [*program, site.key(language, "read"), site.endpoints["estimates"], "axis"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.kill()
        _, errors = process.communicate(timeout=30.0)
    for line in lines:
        assert re.fullmatch(r" *[\d.]+ s  frames \d+  lost \d+  theta \[?[-\de.+, ]*\]?\n", line), (line, errors)


def test_no_secret_is_where_it_need_not_be(site: KeyedSite) -> None:
    secrets = [site.server.secret, *(client_key(path).pair.secret for path in site.path.glob("*.key"))]
    assert len(secrets) > 1
    files = [path for path in site.path.rglob("*") if path.is_file() and path.suffix != ".key"]
    assert site.path / "log" in files
    for path in files:
        content = path.read_bytes()
        assert not any(secret.encode() in content for secret in secrets), path


# ---------------------------------------------------------------- beyond loopback

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
        with site.control_by(site.stranger()) as control, pytest.raises(ClientError, match="does not admit this key"):
            control.request("ping", timeout_s=DEADLINE_S)
        found = [c.laddr for pid in pids for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"]
        assert {each.ip for each in found} == {address}
        assert {each.port for each in found} == {int(each.rpartition(":")[2]) for each in site.endpoints.values()}
