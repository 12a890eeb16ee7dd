"""Cache of a daemon's state: the latest message of each kind, and its time.

The supervisor sends the daemon's status twice a second; the arms' processes publish theirs. No process is queried, so
that HTTP requests cost the 1 kHz loop nothing.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from service.protocol.messages import BodyMessage, EstimateMessage, Message, WireError, decode
from service.protocol.worker_messages import Status
from service.web._history import History
from service.worker.worker import process_name


@dataclass
class Arm:
    """One arm; times are CLOCK_MONOTONIC [ns], 0 before the first."""

    name: str
    status: dict[str, dict[str, Any]] = field(default_factory=dict)  # bodies of the latest messages, by sending process
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    meta: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent_ns: dict[tuple[str, str], int] = field(default_factory=dict)  # of the latest of these, by kind and process
    frames: int = 0  # published by the acquisition, as of its last heartbeat
    used: int = 0  # processed by the estimator, likewise; frames without position or torque are not
    frames_ns: int = 0  # time of the last change of `frames`
    used_ns: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # received messages, by kind
    history: History = field(default_factory=History)
    _decoded: dict[str, Message] = field(default_factory=dict)
    _undecoded: dict[str, list[bytes]] = field(default_factory=dict)  # decoded on demand

    @property
    def estimate(self) -> EstimateMessage | None:
        """The latest estimate; None before the first."""
        message = self.latest("estimate")
        return message if isinstance(message, EstimateMessage) else None

    def latest(self, kind: str) -> Message | None:
        """Return the latest "estimate", "torque" or "frame"; None before the first."""
        parts = self._undecoded.pop(kind, None)
        if parts is not None:
            with contextlib.suppress(WireError):
                self._decoded[kind] = decode(parts)
        return self._decoded.get(kind)

    def take(self, kind: str, parts: list[bytes]) -> None:
        """Store a message; raises `WireError`."""
        if kind == "frames":  # of several in one message the last is the latest
            kind, parts = "frame", [parts[0][:-1], parts[-1]]
        if kind in ("estimate", "torque", "frame"):
            self.seen[kind] += 1
            self._undecoded[kind] = parts
            return
        message = decode(parts)
        if isinstance(message, BodyMessage) and kind in ("status", "stats", "meta"):
            found: dict[str, dict[str, Any]] = getattr(self, kind)
            found[message.envelope.src] = message.body
            self.sent_ns[kind, message.envelope.src] = message.envelope.t_host_ns
            self.seen[kind] += 1


class Cache:
    """State of the daemon: its last `status`, at first an empty one of the time of construction, and the `arms`.

    `refused` counts messages that could not be decoded.
    """

    def __init__(self, arms: tuple[str, ...], now_ns: int) -> None:
        self.arms = {name: Arm(name, frames_ns=now_ns, used_ns=now_ns) for name in arms}
        self.status = Status(now_ns)
        self.refused = 0

    def keep(self, now_ns: int, time_s: float) -> None:
        """Write the present into the history of each arm, as of a Unix time [s]."""
        for arm in self.arms.values():
            if (meta := arm.meta.get("estimator")) is not None:
                arm.history.add(meta, [arm.latest(kind) for kind in ("estimate", "torque", "frame")], now_ns, time_s)

    def on_status(self, status: Status) -> None:
        """Store the daemon's status, with its own time, because this process may have been late to read it."""
        self.status = status
        for arm in self.arms.values():
            frames = self.info(arm.name, "acquisition").get("frames", 0)
            if frames != arm.frames:
                arm.frames, arm.frames_ns = frames, status.monotonic_ns
            estimator = self.info(arm.name, "estimator")
            used = estimator.get("received", 0) - estimator.get("unusable", 0)
            if used != arm.used:
                arm.used, arm.used_ns = used, status.monotonic_ns

    def on_message(self, parts: list[bytes]) -> None:
        """Store a message published by a process of an arm."""
        try:
            name, _, kind = parts[0].decode("ascii", "replace").partition("/")
            if name in self.arms:
                self.arms[name].take(kind, parts)
        except WireError:
            self.refused += 1

    def process(self, arm: str | None, role: str) -> dict[str, Any] | None:
        """Return the entry of a process of an arm or of the daemon; None if unknown."""
        name = process_name(role, arm)
        return next((process for process in self.status.processes if process["name"] == name), None)

    def info(self, arm: str, role: str) -> dict[str, Any]:
        """Return the facts in the last heartbeat of an arm's process; empty without one."""
        process = self.process(arm, role)
        return {} if process is None else process["info"]

    def silence_s(self, now_ns: int) -> float:
        """Return the time since the supervisor's last status [s]."""
        return (now_ns - self.status.monotonic_ns) * 1e-9
