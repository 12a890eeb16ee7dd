"""Keys and the registry of clients in files: written for one user alone, and read only if they still are."""

from __future__ import annotations

import json
import os
import resource
import stat
from pathlib import Path

import pytest
import zmq.auth
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.roles import ROLES, allows
from service.security.files import (
    SecretFileError,
    check_directory,
    make_directory,
    read_secret,
    replacement_risk,
    write_new,
)
from service.security.keys import (
    SERVER_KEY,
    KeyFileError,
    client_key,
    is_key,
    new_pair,
    read_public,
    server_pair,
    server_public,
    write_pair,
    write_public,
)
from service.security.path_ownership import invoking_user, path_steps
from service.security.registry import CLIENTS, MAX_CLIENTS, Registry, RegistryError
from service.supervisor.directories import StateLock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / "keys"
    make_directory(directory)
    return directory


def test_keys_are_written_for_one_user_alone_whatever_the_mask(keys: Path) -> None:
    old = os.umask(0)
    try:
        write_pair(keys / "a.key", new_pair(), "about", "x")
        Registry(keys).add("anna", "read", new_pair().public)
        make_directory(keys.parent / "other")
    finally:
        os.umask(old)
    assert mode(keys / "a.key") == mode(keys / CLIENTS) == 0o600
    assert mode(keys) == mode(keys.parent / "other") == 0o700


@pytest.mark.parametrize("mask", [0, 0o002, 0o022, 0o077])
def test_directories_that_are_made_are_closed_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    """All that are missing on the way, also those that the state directory is made of."""
    state = tmp_path / "lib" / "thetad"
    old = os.umask(mask)
    try:
        StateLock(state / "state").release()
        for _ in range(2):
            make_directory(state / "more" / "keys")
    finally:
        os.umask(old)
    for path in (tmp_path / "lib", state, state / "state", state / "more", state / "more" / "keys"):
        assert not path.stat().st_mode & 0o022


def test_a_pair_comes_back_as_it_was_written(keys: Path) -> None:
    pair = new_pair()
    assert is_key(pair.public)
    assert is_key(pair.secret)
    write_pair(keys / SERVER_KEY, pair, "about")
    assert server_pair(keys, {}) == pair
    assert server_public(keys, {}) == pair.public
    assert pair.secret not in repr(pair)
    assert zmq.auth.load_certificate(keys / SERVER_KEY) == (pair.public.encode(), pair.secret.encode())


def test_a_client_finds_the_server_in_its_file_or_is_told_of_it(keys: Path) -> None:
    pair, server, other = new_pair(), new_pair().public, new_pair().public
    write_pair(keys / "a.key", pair, "about", server)
    write_public(keys / "other.pub", other, "about")
    assert client_key(keys / "a.key").server == server
    assert client_key(keys / "a.key", other).server == other
    assert client_key(keys / "a.key", str(keys / "other.pub")).server == other
    write_pair(keys / "b.key", pair, "about")
    with pytest.raises(KeyFileError, match=r"b\.key: names no key of a server"):
        client_key(keys / "b.key")
    with pytest.raises(KeyFileError, match=r"gone\.key: there is no such file"):
        client_key(keys / "gone.key")


@pytest.mark.parametrize("others", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601])
def test_a_file_that_others_may_use_is_refused(keys: Path, others: int) -> None:
    path = keys / SERVER_KEY
    write_pair(path, new_pair(), "about")
    path.chmod(others)
    with pytest.raises(SecretFileError, match=f"open to others .mode {others:04o}.: chmod 600"):
        server_pair(keys, {})
    path.chmod(0o400)
    server_pair(keys, {})


@pytest.mark.parametrize("others", [0o750, 0o705, 0o701, 0o730])
def test_a_directory_that_others_may_use_is_refused(keys: Path, others: int) -> None:
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    Registry(keys).add("anna", "read", new_pair().public)
    keys.chmod(others)
    with pytest.raises(SecretFileError, match="chmod 700"):
        server_pair(keys, {})
    with pytest.raises(SecretFileError, match="chmod 700"):
        Registry(keys).clients()
    with pytest.raises(SecretFileError, match="chmod 700"):
        make_directory(keys)


@pytest.mark.parametrize("others", [0o777, 0o775, 0o757, 0o722])
def test_a_directory_below_one_that_others_may_write_to_is_refused(tmp_path: Path, others: int) -> None:
    """They could put another directory of keys in its place; with the sticky bit they cannot."""
    keys = tmp_path / "open" / "between" / "keys"
    make_directory(keys)
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    (tmp_path / "open").chmod(others)
    with pytest.raises(SecretFileError, match=f"/open: is open to others .mode {others:04o}.: chmod go-w"):
        server_pair(keys, {})
    (tmp_path / "link").symlink_to(keys)
    with pytest.raises(SecretFileError, match="chmod go-w"):
        Registry(tmp_path / "link").add("anna", "read", new_pair().public)
    (tmp_path / "open").chmod(others | stat.S_ISVTX)
    server_pair(keys, {})
    (tmp_path / "open").chmod(0o755)
    Registry(tmp_path / "link").add("anna", "read", new_pair().public)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
MALLORY = 12345


@root_only
def test_a_link_that_somebody_else_can_replace_is_refused(keys: Path) -> None:
    """Where it leads now is as it should be; where it leads tomorrow is up to whoever may change it."""
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    folders = (("shared", 0o1777, 0), ("closed", 0o755, 0), ("open", 0o775, 0), ("other", 0o755, MALLORY))
    for name, mode, owner in folders:
        (keys.parent / name).mkdir()
        (keys.parent / name / "link").symlink_to(Path("..", "keys"))
        os.chown(keys.parent / name, owner, -1)
        (keys.parent / name).chmod(mode)
    shared, closed, opened, other = (keys.parent / name / "link" for name in ("shared", "closed", "open", "other"))
    for link in (shared, closed):
        server_pair(link, {})
        os.lchown(link, MALLORY, -1)
    server_pair(closed, {})  # its owner may not write into the directory that it is in
    for link, words in (
        (shared, f"the link {shared} on the way to it belongs to user {MALLORY}"),
        (opened, f"{opened.parent}: is open to others .mode 0775.: chmod go-w"),
        (other, f"the directory {other.parent} on the way to it belongs to user {MALLORY}"),
    ):
        with pytest.raises(SecretFileError, match=words):
            server_pair(link, {})
        (keys.parent / "there").symlink_to(link)  # the same at second hand
        with pytest.raises(SecretFileError, match=words):
            Registry(keys.parent / "there").add("anna", "read", new_pair().public)
        (keys.parent / "there").unlink()


def test_links_that_lead_nowhere_are_refused(keys: Path) -> None:
    (keys.parent / "round").symlink_to("about")
    (keys.parent / "about").symlink_to("round")
    with pytest.raises(SecretFileError, match="Too many levels of symbolic links"):
        check_directory(keys.parent / "about")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        list(path_steps(keys.parent / "about"))
    (keys.parent / "up").symlink_to(keys / "..")
    places = [step.place for step in path_steps(keys.parent / "up" / "keys" / ".." / "keys")]
    assert places[-4:] == [keys.parent, keys, keys, keys]  # where it really leads, not as it is written
    assert keys.parent / "up" in places


@root_only
def test_who_has_started_it_by_sudo_is_told_of_not_refused(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in a user's own folder, and a daemon of root's: the program is that user's too."""
    home = keys.parent / "home"
    home.mkdir(mode=0o755)
    make_directory(home / "keys")
    write_pair(home / "keys" / SERVER_KEY, new_pair(), "about")
    os.chown(home, MALLORY, -1)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert replacement_risk(home / "keys") == ""
    for uid in ("", "0", "54321", "x", "\u0661"):
        monkeypatch.setenv("SUDO_UID", uid)
        with pytest.raises(SecretFileError, match=f"belongs to user {MALLORY}.*name one as daemon.keys_dir that root"):
            server_pair(home / "keys", {})
    monkeypatch.setenv("SUDO_UID", str(MALLORY))
    server_pair(home / "keys", {})
    assert replacement_risk(keys) == ""
    for path in (home / "keys", home / "to" / "come"):
        assert f"user {MALLORY}, who has started this by sudo, owns {home}" in replacement_risk(path)
    home.chmod(0o775)
    with pytest.raises(SecretFileError, match="chmod go-w"):
        server_pair(home / "keys", {})
    home.chmod(0o755)
    os.chown(home / "keys", MALLORY, -1)
    with pytest.raises(SecretFileError, match=f"must belong to root: run this as user {MALLORY}, or chown root"):
        server_pair(home / "keys", {})
    os.seteuid(MALLORY)  # who is not root has not been made so by sudo
    try:
        assert invoking_user() is None
    finally:
        os.seteuid(0)


def test_no_key_looks_like_an_option_of_a_command() -> None:
    assert not any(key.startswith("-") for _ in range(500) for key in (new_pair().public, new_pair().secret))


@root_only
def test_what_belongs_to_somebody_else_is_refused(keys: Path) -> None:
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    os.chown(keys / SERVER_KEY, 12345, -1)
    with pytest.raises(SecretFileError, match="belongs to user 12345"):
        server_pair(keys, {})
    os.chown(keys, 12345, -1)
    with pytest.raises(SecretFileError, match="belongs to user 12345"):
        check_directory(keys)


def test_what_is_no_file_is_refused_at_once(keys: Path) -> None:
    os.mkfifo(keys / "pipe", 0o600)
    with pytest.raises(SecretFileError, match="is not a file"):
        read_secret(keys / "pipe")
    with pytest.raises(SecretFileError, match="is not a file"):
        read_secret(keys)
    with pytest.raises(SecretFileError, match="is not a directory"):
        check_directory(keys / "pipe")
    write_new(keys / "big", "x" * (1 << 20 | 1))
    with pytest.raises(SecretFileError, match="larger than"):
        read_secret(keys / "big")
    (keys / "bytes").write_bytes(b"\xff")
    (keys / "bytes").chmod(0o600)
    with pytest.raises(SecretFileError, match="is not text"):
        read_secret(keys / "bytes")


def test_a_file_that_fails_while_it_is_read_is_refused(keys: Path) -> None:
    """As on a disk that fails; nothing is at the beginning of a process's memory."""
    with pytest.raises(SecretFileError, match="mem: cannot be read: Input/output error"):
        read_secret(Path("/proc/self/mem"))
    (keys / CLIENTS).symlink_to("/proc/self/mem")
    for _ in range(2):
        with pytest.raises(RegistryError, match="cannot be read"):
            Registry(keys).find(new_pair().public)


def test_a_key_that_could_not_be_written_whole_is_not_left(keys: Path) -> None:
    """As on a full disk; here files may have no more than ten bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(SecretFileError, match="cannot be written: File too large"):
            write_pair(keys / SERVER_KEY, new_pair(), "about")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write_pair(keys / SERVER_KEY, new_pair(), "about")


def test_keys_are_never_written_over(keys: Path) -> None:
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    before = (keys / SERVER_KEY).read_text()
    with pytest.raises(SecretFileError, match="is there already"):
        write_pair(keys / SERVER_KEY, new_pair(), "about")
    assert (keys / SERVER_KEY).read_text() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no public-key"),
        ('public-key = "short"', "public-key is not a key"),
        ("public-key = {a}\n", "has no secret-key"),
        ("public-key = {a}\nsecret-key = {b}\n", "is not that of its secret key"),
        ("public-key = {a}\npublic-key = {a}\n", "two entries 'public-key'"),
    ],
)
def test_damaged_files_are_named(keys: Path, text: str, words: str) -> None:
    write_new(keys / SERVER_KEY, text.replace("{a}", new_pair().public).replace("{b}", new_pair().secret))
    with pytest.raises(KeyFileError, match=words) as error:
        server_pair(keys, {})
    assert str(keys / SERVER_KEY) in str(error.value)


@given(text=st.text())
def test_any_text_is_read_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / "x.pub"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(KeyFileError):
        read_public(path)


def test_a_credential_of_systemd_comes_first(keys: Path, tmp_path: Path) -> None:
    """systemd shows its access list as rights of the group; others have none."""
    here, there = new_pair(), new_pair()
    write_pair(keys / SERVER_KEY, here, "about")
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o700)
    environment = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert server_pair(keys, environment) == here
    write_pair(credentials / SERVER_KEY, there, "about")
    (credentials / SERVER_KEY).chmod(0o440)
    assert server_pair(keys, environment) == there
    (credentials / SERVER_KEY).chmod(0o444)
    with pytest.raises(SecretFileError, match="open to others"):
        server_pair(keys, environment)


# ---------------------------------------------------------------- registry


def test_clients_come_and_go(keys: Path) -> None:
    registry, daemon = Registry(keys), Registry(keys)
    anna, ben = new_pair().public, new_pair().public
    assert daemon.clients() == ()
    registry.add("anna", "operate", anna)
    registry.add("ben", "read", ben)
    found = daemon.find(anna)
    assert found is not None
    assert (found.name, found.role, found.revoked) == ("anna", "operate", None)
    registry.revoke("anna")
    found = daemon.find(anna)
    assert found is not None
    assert found.revoked is not None
    assert daemon.find(new_pair().public) is None
    registry.add("anna", "read", new_pair().public)  # the name is free again, the key is not
    with pytest.raises(RegistryError, match="this key was that of 'anna' and is revoked, which is for good"):
        registry.add("anna2", "read", anna)
    with pytest.raises(RegistryError, match="this key is that of 'ben' already: for another role, revoke that client"):
        registry.add("ben", "admin", ben)
    assert [client.name for client in daemon.clients()] == ["anna", "ben", "anna"]
    registry.revoke("ben")  # as was advised
    registry.add("ben", "admin", new_pair().public)


def test_changes_that_are_refused_change_nothing(keys: Path) -> None:
    registry = Registry(keys)
    registry.add("anna", "read", new_pair().public)
    before = (keys / CLIENTS).read_bytes()
    with pytest.raises(RegistryError, match="anna: there is such a client"):
        registry.add("anna", "admin", new_pair().public)
    with pytest.raises(RegistryError, match="name: String should match"):
        registry.add("../etc", "admin", new_pair().public)
    with pytest.raises(RegistryError, match="not a key"):
        registry.add("ben", "admin", "short")
    with pytest.raises(RegistryError, match="ben: there is no such client; there are: anna"):
        registry.revoke("ben")
    assert (keys / CLIENTS).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.update(version=2), "version"),
        (lambda file: file.update(more=1), "more"),
        (lambda file: file["clients"][0].update(role="root"), "clients.0.role"),
        (lambda file: file["clients"][0].update(public_key="x"), "clients.0.public_key: is not a key"),
        (lambda file: file["clients"].append(file["clients"][0]), "a public key is there twice"),
        (lambda file: file["clients"].append(file["clients"][0] | {"public_key": new_pair().public}), "same name"),
    ],
)
def test_a_registry_that_contradicts_itself_tells_nobody_apart(keys: Path, change: object, words: str) -> None:
    key = new_pair().public
    registry = Registry(keys)
    registry.add("anna", "read", key)
    good = (keys / CLIENTS).read_text()
    file = json.loads(good)
    change(file)  # type: ignore[operator]
    (keys / CLIENTS).write_text(json.dumps(file))
    for _ in range(2):
        with pytest.raises(RegistryError, match=words):
            registry.find(key)
    (keys / CLIENTS).write_text(good)
    assert registry.find(key) is not None


def test_a_registry_is_full_before_it_cannot_be_read_any_more(keys: Path) -> None:
    """As many clients as there may be are found, with the longest names; one more is refused and changes nothing."""
    last = new_pair().public
    distinct = (f"{number:040d}" for number in range(MAX_CLIENTS - 1))
    entry: dict[str, str | None] = {"role": "operate", "created": "2026-01-01T00:00:00+00:00"}
    entry["revoked"] = entry["created"]
    clients = [{"name": "n" * 64, "public_key": key, **entry} for key in (*distinct, last)]
    (keys / CLIENTS).write_text(json.dumps({"version": 1, "clients": clients}, indent=2))
    (keys / CLIENTS).chmod(0o600)
    registry = Registry(keys)
    assert registry.find(last) is not None
    before = (keys / CLIENTS).read_bytes()
    words = f"clients.json: holds {MAX_CLIENTS} clients, {MAX_CLIENTS} of them revoked, and no more: take entries"
    with pytest.raises(RegistryError, match=words):
        registry.add("anna", "read", new_pair().public)
    assert (keys / CLIENTS).read_bytes() == before
    (keys / CLIENTS).write_text(json.dumps({"version": 1, "clients": clients[:-1]}))  # as was advised: the last is out
    anna = new_pair().public
    registry.add("anna", "read", anna)
    assert registry.find(anna) is not None
    assert registry.find(last) is None  # unknown, and so not let in
    entry["revoked"] = None
    clients = [{"name": f"n{number}", "public_key": f"{number:040d}", **entry} for number in range(MAX_CLIENTS)]
    (keys / CLIENTS).write_text(json.dumps({"version": 1, "clients": clients}))
    with pytest.raises(RegistryError, match="0 of them revoked, and no more: revoke clients that are gone, then take"):
        registry.add("ben", "read", new_pair().public)


def test_a_registry_that_others_may_change_is_refused_until_it_is_closed(keys: Path) -> None:
    key = new_pair().public
    registry = Registry(keys)
    registry.add("anna", "read", key)
    (keys / CLIENTS).chmod(0o666)
    with pytest.raises(SecretFileError, match="open to others"):
        registry.find(key)
    (keys / CLIENTS).chmod(0o600)
    assert registry.find(key) is not None


def test_roles_include_one_another() -> None:
    for higher, role in enumerate(ROLES):
        for lower, needed in enumerate(ROLES):
            assert allows(role, needed) == (higher >= lower)
