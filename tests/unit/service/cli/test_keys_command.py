"""`thetad keys`: the commands as they are typed, and what the files are worth afterwards."""

import os
import stat
from pathlib import Path

import pytest

from service.config.load import ConfigError, load_config
from service.security.keys import client_key, new_pair, server_pair
from service.security.registry import Registry
from tests.lab.command_line import thetad

CONFIG = """
[daemon]
state_dir = "state"
bind = "0.0.0.0"
[[arm]]
name = "a"
robot = "emps"
[arm.driver]
kind = "sim"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configuration of a daemon that others may reach."""
    monkeypatch.chdir(tmp_path)
    for name in ("CREDENTIALS_DIRECTORY", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "site.toml"
    path.write_text(CONFIG)
    return path


def test_a_daemon_that_others_may_reach_needs_a_key(site: Path) -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 is not a loopback address.*thetad keys new --server"):
        load_config(site)
    made = thetad("keys", "new", "--server", "-c", site, "--json").json
    config = load_config(site)
    assert config.daemon.keyed
    assert config.keys_dir == site.parent / "state" / "keys"
    assert server_pair(config.keys_dir).public == made["public_key"]
    (config.keys_dir / "server.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_config(site)
    site.write_text(CONFIG.replace("0.0.0.0", "127.0.0.1"))
    assert not load_config(site).daemon.keyed  # loopback needs none unless it is asked for
    site.write_text(CONFIG.replace('bind = "0.0.0.0"', "require_keys = true").replace('"state"', '"other"'))
    with pytest.raises(ConfigError, match=r"daemon\.require_keys, and this needs a key of the server"):
        load_config(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("key", ["keys_dir", "state_dir"])
def test_a_configured_link_that_somebody_else_can_replace_is_refused(site: Path, key: str) -> None:
    """The configuration keeps links on the way to keys, for whoever may change one decides which keys these are."""
    shared, place = site.parent / "shared", site.parent / "place"
    place.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(place)
    site.write_text(CONFIG.replace('state_dir = "state"', f'{key} = "shared/link"'))
    assert thetad("keys", "new", "--server", "-c", site).code == 0
    keys = shared / "link" if key == "keys_dir" else shared / "link" / "keys"
    assert load_config(site).keys_dir == keys
    os.lchown(shared / "link", 12345, -1)
    with pytest.raises(ConfigError, match=f"the link {shared / 'link'} on the way to it belongs to user 12345"):
        load_config(site)
    thetad("keys", "new", "anna", "-c", site).refused("belongs to user 12345")


def test_commands_that_start_no_daemon_do_not_ask_for_its_key(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for other users than the daemon's too, and its key may be a credential of its service alone."""
    thetad("ethercat", "scan", "-c", site).refused("no arm is on EtherCAT")
    thetad("ads", "info", "-", "-c", site).refused("no arm is on ADS")
    monkeypatch.setenv("THETAD_KEY", "")  # names no key
    asked = thetad("status", "--control", "tcp://127.0.0.1:1", "--timeout", "0.2")
    assert (asked.code, "is the daemon running?" in asked.err) == (3, True)


def test_a_client_gets_a_file_of_its_own(site: Path) -> None:
    server = thetad("keys", "new", "--server", "-c", site, "--json").json["public_key"]
    done = thetad("keys", "new", "anna", "--role", "operate", "-c", site, "--json")
    path, keys = site.parent / "anna.key", site.parent / "state" / "keys"
    key = client_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = {"name": "anna", "role": "operate", "public_key": key.pair.public}
    assert done.json == told | {"server_key": server, "file": str(path)}
    assert key.server == server
    assert key.pair.secret not in done.out + done.err + "".join(file.read_text() for file in keys.iterdir())
    client = Registry(keys).find(key.pair.public)
    assert (client.name, client.role) == ("anna", "operate")
    public = new_pair().public  # a client may have made its keys itself
    done = thetad("keys", "new", "ben", "--public", public, "--keys", keys, "--json")
    assert (done.json["role"], done.json["public_key"], done.json["file"]) == ("read", public, None)
    assert not (site.parent / "ben.key").exists()


def test_clients_are_listed_and_revoked(site: Path) -> None:
    thetad("keys", "new", "--server", "-c", site)
    none = thetad("keys", "list", "-c", site)
    assert (none.code, none.out, "thetad keys new" in none.err) == (0, "", True)
    for name in ("anna", "ben"):
        thetad("keys", "new", name, "-c", site)
    assert thetad("keys", "revoke", "anna", "-c", site, "--json").json["revoked"]
    clients = thetad("keys", "list", "-c", site, "--json").json["clients"]
    assert [(client["name"], client["revoked"] is not None) for client in clients] == [("anna", True), ("ben", False)]
    assert ["revoked" in line for line in thetad("keys", "list", "-c", site).out.splitlines()] == [True, False]
    thetad("keys", "revoke", "anna", "-c", site).refused("anna: there is no such client; there are: ben")


def test_mistakes_leave_nothing_behind(site: Path) -> None:
    new, of_site = ("keys", "new"), ("-c", site)
    thetad(*new, "anna", *of_site).refused("there is no key of the server", "keys new --server")
    thetad(*new, *of_site).refused("Name the client")
    thetad(*new, "anna").refused("-c FILE")
    thetad(*new, "--server", "--role", "admin", *of_site).refused("--server")
    assert not (site.parent / "state").exists()
    thetad(*new, "--server", *of_site)
    thetad(*new, "--server", *of_site).refused("is there already")
    (site.parent / "anna.key").write_text("mine")
    thetad(*new, "anna", *of_site).refused("anna.key", "is there already")
    assert (site.parent / "anna.key").read_text() == "mine"
    assert Registry(site.parent / "state" / "keys").clients() == ()
    thetad(*new, "ben", "--public", "short", *of_site).refused("short")
    thetad(*new, "../ben", *of_site).refused("../ben")
    thetad(*new, "anna", "-o", "other.key", *of_site)
    thetad(*new, "anna", "-o", "again.key", *of_site).refused("there is such a client")
    assert {path.name for path in site.parent.iterdir()} == {"site.toml", "state", "anna.key", "other.key"}
    assert not (site.parent.parent / "ben.key").exists()
