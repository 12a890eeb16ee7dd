"""Keys and the registry of clients in files: written for one user alone, and read only if they still are."""

import json
import os
import resource
import stat
from pathlib import Path

import pytest
import zmq.auth

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
    new_pair,
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


@pytest.mark.parametrize("mask", [0, 0o077])
def test_what_is_made_is_closed_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    """Keys and their folder to all others; to writers all folders on the way, also those of the state directory."""
    state = tmp_path / "lib" / "thetad"
    keys = state / "more" / "keys"
    old = os.umask(mask)
    try:
        StateLock(state / "state").release()
        for _ in range(2):
            make_directory(keys)
        write_pair(keys / "a.key", new_pair(), "about", "x")
        Registry(keys).add("anna", "read", new_pair().public)
    finally:
        os.umask(old)
    assert mode(keys / "a.key") == mode(keys / CLIENTS) == 0o600
    assert mode(keys) == 0o700
    for path in (tmp_path / "lib", state, state / "state", keys.parent):
        assert not mode(path) & 0o022


def test_a_pair_comes_back_as_it_was_written(keys: Path) -> None:
    pair = new_pair()
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


@pytest.mark.parametrize("others", [0o640, 0o602])
def test_a_file_that_others_may_use_is_refused(keys: Path, others: int) -> None:
    path = keys / SERVER_KEY
    write_pair(path, new_pair(), "about")
    path.chmod(others)
    with pytest.raises(SecretFileError, match=f"open to others .mode {others:04o}.: chmod 600"):
        server_pair(keys, {})
    path.chmod(0o400)
    server_pair(keys, {})


@pytest.mark.parametrize("others", [0o750, 0o701])
def test_a_directory_that_others_may_use_is_refused(keys: Path, others: int) -> None:
    write_pair(keys / SERVER_KEY, new_pair(), "about")
    Registry(keys).add("anna", "read", new_pair().public)
    keys.chmod(others)
    for use in (lambda: server_pair(keys, {}), Registry(keys).clients, lambda: make_directory(keys)):
        with pytest.raises(SecretFileError, match="chmod 700"):
            use()


@pytest.mark.parametrize("others", [0o775, 0o702])
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
    for path in (keys / SERVER_KEY, keys):
        os.chown(path, MALLORY, -1)
        with pytest.raises(SecretFileError, match=f"{path}: belongs to user {MALLORY}"):
            server_pair(keys, {})


def test_what_is_no_readable_file_is_refused_at_once(keys: Path) -> None:
    """Also on a disk that fails: nothing is at the beginning of a process's memory."""
    os.mkfifo(keys / "pipe", 0o600)
    write_new(keys / "big", "x" * (1 << 20 | 1))
    (keys / "bytes").write_bytes(b"\xff")
    (keys / "bytes").chmod(0o600)
    for path, words in (
        (keys / "pipe", "is not a file"), (keys, "is not a file"), (keys / "big", "larger than"),
        (keys / "bytes", "is not text"), (Path("/proc/self/mem"), "cannot be read: Input/output error"),
    ):  # fmt: skip
        with pytest.raises(SecretFileError, match=words):
            read_secret(path)
    with pytest.raises(SecretFileError, match="is not a directory"):
        check_directory(keys / "pipe")
    (keys / CLIENTS).symlink_to("/proc/self/mem")
    with pytest.raises(RegistryError, match="cannot be read"):
        Registry(keys).find(new_pair().public)


def test_a_key_is_written_whole_and_once(keys: Path) -> None:
    """Nothing is left on a full disk, here with no more than ten bytes a file; and a key is never written over."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(SecretFileError, match="cannot be written: File too large"):
            write_pair(keys / SERVER_KEY, new_pair(), "about")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
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
        ("public-key = {a}\nsecret-key = " + 40 * "#", "is not that of its secret key"),  # more than 32 bytes
        ("public-key = {a}\npublic-key = {a}\n", "two entries 'public-key'"),
    ],
)
def test_damaged_files_are_named(keys: Path, text: str, words: str) -> None:
    write_new(keys / SERVER_KEY, text.replace("{a}", new_pair().public).replace("{b}", new_pair().secret))
    with pytest.raises(KeyFileError, match=words) as error:
        server_pair(keys, {})
    assert str(keys / SERVER_KEY) in str(error.value)


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
    assert (found.name, found.role, found.revoked) == ("anna", "operate", None)
    registry.revoke("anna")
    assert daemon.find(anna).revoked is not None
    assert daemon.find(new_pair().public) is None
    registry.add("anna", "read", new_pair().public)  # the name is free again, the key is not
    with pytest.raises(RegistryError, match="this key was that of 'anna' and is revoked, which is permanent"):
        registry.add("anna2", "read", anna)
    with pytest.raises(RegistryError, match="this key is that of 'ben' already: for another role, revoke that client"):
        registry.add("ben", "admin", ben)
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
        (lambda file: file["clients"][0].update(role="root"), r"clients\[0\].role"),
        (lambda file: file["clients"][0].update(public_key="x"), r"clients\[0\].public_key: is not a key"),
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
    entry = {"name": "n" * 64, "role": "operate"} | dict.fromkeys(("created", "revoked"), "2026-01-01T00:00:00+00:00")
    clients = [entry | {"public_key": key} for key in (*distinct, last)]
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
    registry.add("anna", "read", new_pair().public)
    assert registry.find(last) is None  # unknown, and so not let in
