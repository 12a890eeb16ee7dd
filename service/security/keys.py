"""CURVE keys of the daemon and of clients in files, in the form of ZeroMQ's certificates (`load_certificate`)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.security.files import SecretFileError, check_directory, read_secret, write_new

SERVER_KEY = "server.key"  # in the directory of keys, or a credential of a systemd service
SERVER_PUBLIC = "server.pub"
_Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
_LENGTH = 40


class KeyFileError(SecretFileError):
    """A file without a valid key."""


@dataclass(frozen=True)
class KeyPair:
    """A public key and its secret, in Z85; the secret is not in its repr."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


@dataclass(frozen=True)
class ClientKey:
    """Keys of a client's connection: its own pair, and the daemon's public key."""

    pair: KeyPair
    server: str


def is_key(text: str) -> bool:
    """Return whether a text is a key in Z85."""
    return len(text) == _LENGTH and _Z85.issuperset(text)


def new_pair() -> KeyPair:
    """Return a new pair of keys; none begins with a hyphen, which commands would take for an option."""
    import zmq

    while True:
        public, secret = zmq.curve_keypair()
        if not (public.startswith(b"-") or secret.startswith(b"-")):
            return KeyPair(public.decode(), secret.decode())


def write_pair(path: Path, pair: KeyPair, about: str, server: str | None = None) -> None:
    """Write keys to a new file readable only by this user; raises `SecretFileError`."""
    lines = [f"# {about}", "curve", f'    public-key = "{pair.public}"', f'    secret-key = "{pair.secret}"']
    if server is not None:
        lines.append(f'    server-key = "{server}"')
    write_new(path, "\n".join(lines) + "\n")


def write_public(path: Path, public: str, about: str) -> None:
    """Write a public key to a new file; raises `SecretFileError`."""
    write_new(path, f'# {about}\ncurve\n    public-key = "{public}"\n', 0o644)


def server_pair(keys_dir: Path, environment: Mapping[str, str] = os.environ) -> KeyPair:
    """Read the daemon's keys: the systemd credential `server.key` if it exists, else the file in `keys_dir`.

    Raises `SecretFileError`: the file is missing, damaged, or open to others.
    """
    credentials = environment.get("CREDENTIALS_DIRECTORY")
    if credentials:
        path = Path(credentials, SERVER_KEY)
        try:
            return _pair(path, _entries(path, read_secret(path, credential=True)))
        except FileNotFoundError:
            pass
    path = keys_dir / SERVER_KEY
    try:
        text = read_secret(path)
    except SecretFileError:
        check_directory(keys_dir)  # gives a more specific reason
        raise
    except FileNotFoundError as error:
        words = "there is no key of the server: make one with `thetad keys new --server`"
        raise KeyFileError(f"{path}: {words}") from error
    check_directory(keys_dir)
    return _pair(path, _entries(path, text))


def server_public(keys_dir: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the daemon's public key, for clients; raises `SecretFileError`."""
    path = keys_dir / SERVER_PUBLIC
    if path.exists():
        return read_public(path)
    return server_pair(keys_dir, environment).public


def read_public(path: Path) -> str:
    """Read a public key from a file; raises `SecretFileError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _key(path, _entries(path, text), "public-key")


def client_key(path: Path, server: str | None = None) -> ClientKey:
    """Read a client's key file; `server` is the daemon's public key, or a file with it, if not that of the client's.

    Raises `SecretFileError`: the file is missing, damaged or open to others, or there is no server key.
    """
    try:
        entries = _entries(path, read_secret(path))
    except FileNotFoundError as error:
        raise KeyFileError(f"{path}: there is no such file of a key") from error
    pair = _pair(path, entries)
    if server is not None:
        return ClientKey(pair, server if is_key(server) else read_public(Path(server)))
    if "server-key" not in entries:
        words = "names no key of a server: give the daemon's public key, or a file with it, as well"
        raise KeyFileError(f"{path}: {words}")
    return ClientKey(pair, _key(path, entries, "server-key"))


def _entries(path: Path, text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            if name.strip() in entries:
                raise KeyFileError(f"{path}: has two entries {name.strip()!r:.40}")
            entries[name.strip()] = value.strip(" \t\"'")
    return entries


def _key(path: Path, entries: Mapping[str, str], name: str) -> str:
    value = entries.get(name)
    if value is None:
        raise KeyFileError(f"{path}: has no {name}")
    if not is_key(value):
        raise KeyFileError(f"{path}: {name} is not a key: {_LENGTH} characters of Z85 are expected")
    return value


def _pair(path: Path, entries: Mapping[str, str]) -> KeyPair:
    import zmq

    public, secret = _key(path, entries, "public-key"), _key(path, entries, "secret-key")
    try:
        right = zmq.curve_public(secret.encode()).decode() == public
    except zmq.ZMQError:  # five characters of Z85 can be more than four bytes
        right = False
    if not right:
        raise KeyFileError(f"{path}: its public key is not that of its secret key: one of them is damaged")
    return KeyPair(public, secret)
