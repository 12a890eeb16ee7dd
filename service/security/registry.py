"""Registry of a daemon's clients, with public keys only: `clients.json`, reread whenever it has changed."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from drivers.files.atomic_write import sync_folder, write_bytes
from drivers.files.table import describe
from service.protocol.roles import Role
from service.security.files import SecretFileError, check_directory, read_secret
from service.security.keys import is_key

CLIENTS = "clients.json"
MAX_CLIENTS = 10_000  # including revoked ones, which are kept so that their keys stay refused
_MAX_BYTES = 1 << 22  # size of so many clients with the longest names
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"


class RegistryError(SecretFileError):
    """The registry cannot be used, or a change is not allowed; the message says why."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Client(_Table):
    """One client; times are ISO 8601 in UTC."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    role: Role
    public_key: str
    created: str
    revoked: str | None = None

    @field_validator("public_key")
    @classmethod
    def _key(cls, value: str) -> str:
        if not is_key(value):
            raise ValueError("is not a key in Z85")
        return value


class _File(_Table):
    version: Literal[1] = 1
    clients: Annotated[tuple[Client, ...], Field(max_length=MAX_CLIENTS)] = ()

    @field_validator("clients")
    @classmethod
    def _distinct(cls, value: tuple[Client, ...]) -> tuple[Client, ...]:
        keys = [client.public_key for client in value]
        if len(set(keys)) < len(keys):
            raise ValueError("a public key is there twice")
        names = [client.name for client in value if client.revoked is None]
        if len(set(names)) < len(names):
            raise ValueError("two clients have the same name")
        return value


class Registry:
    """The current clients by public key."""

    def __init__(self, keys_dir: Path) -> None:
        self.path = keys_dir / CLIENTS
        self._stamp: tuple[int, ...] | None = None
        self._clients: dict[str, Client] = {}
        self._wrong: str | None = None

    def find(self, public_key: str) -> Client | None:
        """Return the client with this key, revoked or not, or None.

        Raises `RegistryError`: the file cannot be used.
        """
        self._refresh()
        return self._clients.get(public_key)

    def clients(self) -> tuple[Client, ...]:
        """Return all clients, oldest first; raises `RegistryError`."""
        self._refresh()
        return tuple(self._clients.values())

    def add(self, name: str, role: Role, public_key: str) -> Client:
        """Add a client; raises `RegistryError` if the name is in use, or the key known."""
        with self._changing() as clients:
            for other in clients:
                if other.public_key == public_key:
                    raise RegistryError(f"{name}: {_known(other)}")
                if other.name == name and other.revoked is None:
                    raise RegistryError(f"{name}: there is such a client: revoke it first, or choose another name")
            if len(clients) >= MAX_CLIENTS:
                raise RegistryError(f"{self.path}: {_full(clients)}")
            try:
                client = Client(name=name, role=role, public_key=public_key, created=_now())
            except ValidationError as error:
                raise RegistryError(f"{name!r:.80}: {describe(error, Client)}") from error
            self._write((*clients, client))
        return client

    def revoke(self, name: str) -> Client:
        """Revoke a client for good; raises `RegistryError` if there is none of this name."""
        with self._changing() as clients:
            found = next((client for client in clients if client.name == name and client.revoked is None), None)
            if found is None:
                known = ", ".join(client.name for client in clients if client.revoked is None)
                raise RegistryError(f"{name}: there is no such client; there are: {known or 'none'}")
            revoked = found.model_copy(update={"revoked": _now()})
            self._write(tuple(revoked if client is found else client for client in clients))
        return revoked

    def _refresh(self) -> None:
        """Read the file if it has changed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._clients, self._wrong = None, {}, None  # no clients yet
            return
        except OSError as error:
            raise RegistryError(f"{self.path}: cannot be read: {error.strerror}") from error
        stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)
        if stamp != self._stamp or self._wrong is not None:  # after an error the directory may have changed
            self._clients, self._wrong = {}, None
            try:
                self._clients = {client.public_key: client for client in self._read()}
            except SecretFileError as error:
                self._wrong = str(error)
            self._stamp = stamp
        if self._wrong is not None:
            raise RegistryError(self._wrong)

    def _read(self) -> tuple[Client, ...]:
        try:
            text = read_secret(self.path, max_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return ()
        check_directory(self.path.parent)
        try:
            return _File.model_validate_json(text).clients
        except ValidationError as error:
            raise RegistryError(f"{self.path}: {describe(error, _File)}") from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[Client, ...]]:
        """Lock the directory against concurrent changes, and yield the clients in the file."""
        check_directory(self.path.parent)
        handle = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self._read()
        finally:
            os.close(handle)

    def _write(self, clients: tuple[Client, ...]) -> None:
        text = _File(clients=clients).model_dump_json(indent=2)
        try:
            write_bytes(self.path, text.encode() + b"\n", mode=0o600)
            sync_folder(self.path.parent)  # otherwise a power cut could undo a revocation
        except OSError as error:
            raise RegistryError(f"{self.path}: {error.strerror}") from error


def _known(client: Client) -> str:
    if client.revoked is not None:
        return f"this key was that of {client.name!r} and is revoked, which is permanent: make new keys"
    return f"this key is that of {client.name!r} already: for another role, revoke that client and make new keys"


def _full(clients: Sequence[Client]) -> str:
    revoked = sum(client.revoked is not None for client in clients)
    first = "" if revoked else "revoke clients that are gone, then "
    return (
        f"holds {len(clients)} clients, {revoked} of them revoked, and no more: {first}take entries with a time at "
        '"revoked" out of the file, which keeps its mode 0600; their keys are unknown then, and not let in either'
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
