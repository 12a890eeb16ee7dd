"""What the web process knows of a daemon: the newest message of each kind, and when it came.

The supervisor hands it the daemon's status twice a second; the arms' processes publish theirs.  Nobody is asked for
anything, so that no number of requests by HTTP costs the 1 kHz path anything.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from service.protocol.messages import BodyMessage, EstimateMessage, Message, TorqueMessage, WireError, decode
from service.worker.worker import process_name


@dataclass
class Arm:
    """One arm; times are CLOCK_MONOTONIC [ns], 0 before the first.

    Attributes
    ----------
    status, stats, meta : dict
        Bodies of the newest messages, by the process that sent them.
    sent_ns : dict
        When the newest of these was sent, by its kind and the process.
    frames, used : int
        That the acquisition had published, and the estimator had worked off, by their last heartbeats; frames that
        lack position or torque are not worked off.
    frames_ns, used_ns : int
        When these counts last changed.
    seen : Counter
        Messages that have come, by kind.
    """

    name: str
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    meta: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    frames: int = 0
    used: int = 0
    frames_ns: int = 0
    used_ns: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    _decoded: dict[str, Message] = field(default_factory=dict)
    _undecoded: dict[str, list[bytes]] = field(default_factory=dict)  # what nobody has wanted to see yet

    @property
    def estimate(self) -> EstimateMessage | None:
        """The newest estimate; None before the first."""
        message = self._newest("estimate")
        return message if isinstance(message, EstimateMessage) else None

    @property
    def torque(self) -> TorqueMessage | None:
        """The newest torque, which is heard only while somebody looks at the arm; None before the first."""
        message = self._newest("torque")
        return message if isinstance(message, TorqueMessage) else None

    def _newest(self, kind: str) -> Message | None:
        parts = self._undecoded.pop(kind, None)
        if parts is not None:
            with contextlib.suppress(WireError):
                self._decoded[kind] = decode(parts)
        return self._decoded.get(kind)

    def take(self, kind: str, parts: list[bytes]) -> None:
        """Take a message; raises `WireError`."""
        if kind in ("estimate", "torque"):
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
    """Everything known of the daemon.

    Attributes
    ----------
    arms : dict of str to Arm
    daemon : dict
        The supervisor's answer to `status`, as it was last.
    told_ns : int
        When the supervisor sent it, by its own word; from the start on.
    stopping : bool
        Whether the daemon is about to end; it says nothing more then.
    refused : int
        Messages that could not be read.
    """

    def __init__(self, arms: tuple[str, ...], now_ns: int) -> None:
        self.arms = {name: Arm(name, frames_ns=now_ns, used_ns=now_ns) for name in arms}
        self.daemon: dict[str, Any] = {}
        self.told_ns = now_ns
        self.stopping = False
        self.refused = 0

    def on_status(self, status: dict[str, Any]) -> None:
        """Take the daemon's status, which is as old as it says: this process may have been kept from reading it."""
        self.daemon, self.told_ns, self.stopping = status, status["monotonic_ns"], status["stopping"]
        for arm in self.arms.values():
            frames = self.info(arm.name, "acquisition").get("frames", 0)
            if frames != arm.frames:
                arm.frames, arm.frames_ns = frames, self.told_ns
            estimator = self.info(arm.name, "estimator")
            used = estimator.get("received", 0) - estimator.get("unusable", 0)
            if used != arm.used:
                arm.used, arm.used_ns = used, self.told_ns

    def on_message(self, parts: list[bytes]) -> None:
        """Take what a process of an arm has published."""
        try:
            name, _, kind = parts[0].decode("ascii", "replace").partition("/")
            if name in self.arms:
                self.arms[name].take(kind, parts)
        except WireError:
            self.refused += 1

    @property
    def processes(self) -> list[dict[str, Any]]:
        """Entries of the daemon's processes, as in the answer to `status`."""
        found: list[dict[str, Any]] = self.daemon.get("processes", [])
        return found

    def process(self, arm: str | None, role: str) -> dict[str, Any] | None:
        """Entry of a process, of an arm or of all; None if there is none, or nothing has been told yet."""
        name = process_name(role, arm)
        return next((process for process in self.processes if process["name"] == name), None)

    def info(self, arm: str, role: str) -> dict[str, Any]:
        """Return what a process of an arm said with its last heartbeat; empty without one."""
        process = self.process(arm, role)
        return {} if process is None else process["info"]

    def silence_s(self, now_ns: int) -> float:
        """Time since the supervisor was last heard [s]."""
        return (now_ns - self.told_ns) * 1e-9
