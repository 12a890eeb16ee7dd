"""Daemons to attack, with and without keys, whose arm replays a recording for ever."""

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.client import ClientKey, Control, Subscriber
from service.protocol.roles import Role
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, KeyPair, client_key, new_pair, write_pair
from service.security.registry import Registry, RegistryError
from tests.lab.command_line import ROOT
from tests.lab.daemon.daemons import make_recording, replayed
from tests.lab.daemon.shared import Site, site

PORTS = ("frames", "estimates", "mirror", "control")
#: Tokens of HTTP clients by role.
TOKENS = {"read": "r" * 20, "operate": "o" * 20, "motion": "m" * 20}
SECONDS = 10.0  # of the recording
PAUSE = 999  # numbers of frames that are left out between two laps
LIMIT_MB = 160.0
PATIENCE_S = 20.0  # libzmq by itself hangs up after 30 s


def http(path: Path) -> dict[str, Any]:
    """Settings of HTTP with these tokens."""
    tokens = path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("".join(f"{role} {token}\n" for role, token in TOKENS.items()))
    return {"http": True, "http_port": 0, "http_token_file": str(tokens), "http_role": "motion"}


def arm(path: Path) -> dict[str, Any]:
    """An arm whose description is a longer text than any message but a reply may hold; its recorder is off."""
    text = (ROOT / "configs/robots/emps.toml").read_text(encoding="utf-8")
    robot = path / "wordy.toml"
    robot.write_text(text.replace('description = "', 'description = "' + 40_000 * "word "), encoding="utf-8")
    recorder = {"enabled": False, "directory": str(path / "recorded")}
    recording = make_recording(path / "rec.mcap", seconds=SECONDS)
    return replayed(recording, robot=str(robot), loop=True, recorder=recorder, window_s=2.0)


@contextlib.contextmanager
def plain(path: Path) -> Iterator[Site]:
    """Without keys, with tokens for HTTP."""
    whole = {"runtime_dir": str(path / "r"), "mirror_port": 0, "memory_mb": LIMIT_MB}
    with site(path, arm(path), **whole, **http(path)) as found:
        yield found


@dataclass
class KeyedSite(Site):
    """A daemon that requires keys."""

    server: KeyPair = field(default_factory=new_pair)

    def __post_init__(self) -> None:
        self.admin = client_key(self.key("root"))

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    @property
    def registry(self) -> Registry:
        return Registry(self.keys)

    def key(self, name: str, role: Role = "admin") -> Path:
        """Write the file of a new client."""
        pair, path = new_pair(), self.path / f"{name}.key"
        path.unlink(missing_ok=True)
        with contextlib.suppress(RegistryError):  # there is one where the test is repeated
            self.registry.revoke(name)
        self.registry.add(name, role, pair.public)
        write_pair(path, pair, "test", self.server.public)
        return path

    def stranger(self) -> ClientKey:
        """Return a key that the daemon does not admit."""
        return ClientKey(new_pair(), self.server.public)

    def control_by(self, key: Path | ClientKey | None) -> Control:
        return Control(self.endpoints["control"], key)

    def subscribe(self, key: Path | ClientKey | None, port: str = "estimates", what: str = "estimate") -> Subscriber:
        return Subscriber(self.endpoints[port], [f"axis/{what}"], key=key)


@contextlib.contextmanager
def keyed(path: Path, **more: Any) -> Iterator[KeyedSite]:
    """With keys, and tokens for HTTP unless `more` says otherwise."""
    server, keys = new_pair(), path / "keys"
    make_directory(keys)
    write_pair(keys / SERVER_KEY, server, "test")
    whole = {"runtime_dir": str(path / "r"), "mirror_port": 0, "require_keys": True, "keys_dir": str(keys)}
    settings = {**whole, "requests_per_s": 1e6, **http(path), **more}
    with site(path, arm(path), **settings) as found:
        yield KeyedSite(found.daemon, path, server=server)


def hung_up_on(endpoints: Iterable[str], beginnings: Iterable[bytes]) -> float:
    """Connect to each endpoint with each beginning of a handshake; return the time until all have been ended [s]."""
    began = time.monotonic()
    words = list(beginnings)
    with contextlib.ExitStack() as stack:
        connections = []
        for endpoint in endpoints:
            host, _, port = endpoint.removeprefix("tcp://").partition(":")
            for word in words:
                raw = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
                raw.sendall(word)
                connections.append(raw)
        for raw in connections:
            with contextlib.suppress(ConnectionError):  # which is an end as well
                while raw.recv(65536):
                    pass
    return time.monotonic() - began
