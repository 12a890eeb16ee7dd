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

from service.security.files import SecretFileError, check_directory, make_directory, read_secret, write_new
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
from service.security.registry import CLIENTS, Registry, RegistryError
from service.security.roles import ROLES, allows


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
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
    with pytest.raises(RegistryError, match="this key is that of 'anna' already"):
        registry.add("anna2", "read", anna)
    assert [client.name for client in daemon.clients()] == ["anna", "ben", "anna"]


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
