"""Permissions and rate limits of clients, checked for every request against the current registry."""

import time
from collections import Counter
from collections.abc import Callable

from service.io.log import Log
from service.protocol.control import STOPPING, UNLIMITED, VERBS, ControlError
from service.protocol.roles import allows
from service.security.registry import Client, Registry, RegistryError


class Access:
    """Check of requests by clients with known public keys; `refused` counts those "denied" and "too_many".

    A client may make `per_s` requests a second on average, with bursts of up to two seconds' worth; `clock` returns
    monotonic time [s].
    """

    def __init__(self, registry: Registry, per_s: float, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry, self._per_s, self._log, self._clock = registry, per_s, log, clock
        self._trouble = ""  # last logged problem with the registry
        self.refused: Counter[str] = Counter()
        self._left: dict[str, tuple[float, float]] = {}  # by key: requests left, and the time of that count
        self._known: dict[str, Client] = {}  # by key: last known entry

    def client(self, key: str, verb: str = "") -> Client:
        """Return the client with this key; raises `ControlError` of type "denied" if it has been revoked.

        If the registry cannot be used, a `verb` that stops an arm is checked against the last known entry.
        """
        try:
            client = self.registry.find(key)
        except RegistryError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                self._log.error("registry_unusable", reason=self._trouble)
            if verb in STOPPING and key in self._known:
                return self._known[key]
            raise self._refuse("denied", "the registry of clients cannot be used; the daemon's log says why") from error
        self._trouble = ""
        if client is None or client.revoked is not None:
            self._left.pop(key, None)
            self._known.pop(key, None)
            raise self._refuse("denied", "this key has been revoked")
        self._known[key] = client
        return client

    def count(self, client: Client, verb: str) -> None:
        """Count a request, unless it is in `UNLIMITED`; raises `ControlError` of type "too_many"."""
        if verb in UNLIMITED:
            return
        now, most = self._clock(), 2.0 * self._per_s
        left, since = self._left.get(client.public_key, (most, now))
        left = min(most, left + (now - since) * self._per_s)
        granted = left >= 1.0  # refused requests are free, otherwise a client that is too fast would never be served
        self._left[client.public_key] = (left - 1.0 if granted else left, now)
        if not granted:
            raise self._refuse(
                "too_many", f"more than {self._per_s:g} requests a second: ask less often, or set daemon.requests_per_s"
            )

    def check(self, client: Client, verb: str) -> None:
        """Raise `ControlError` of type "denied" unless the client's role allows a known verb."""
        needed = VERBS[verb].role
        if not allows(client.role, needed):
            raise self._refuse("denied", f"{verb}: needs the role {needed}, and {client.name} has {client.role}")

    def _refuse(self, type: str, message: str) -> ControlError:
        self.refused[type] += 1
        return ControlError(type, message)
