"""Estimates over time with the events of an arm, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rt_core.types import BoolArray, FloatArray
from service.protocol.messages import BodyMessage, EstimateMessage

#: Estimates that are kept; beyond them every other one is dropped, and half as many are taken from then on.
MAX = 4000


@dataclass(frozen=True)
class TrendEvent:
    """An event at a time [s] of the estimates' own clock."""

    t: float
    event: str
    text: str


@dataclass
class Trend:
    """Estimates of one arm, thinned evenly, and its events."""

    names: list[str] = field(default_factory=list)  # of the p parameters, as units
    units: list[str] = field(default_factory=list)
    events: list[TrendEvent] = field(default_factory=list)
    restarts: int = 0  # how often estimates of other parameters began; earlier ones are dropped
    joints: dict[str, Trend] = field(default_factory=dict)  # springs and friction of elastic joints, without events
    breakaway: Trend | None = None  # breakaway friction of all joints; None before the first value
    _rows: list[tuple[float, FloatArray, FloatArray, BoolArray]] = field(default_factory=list)
    _hash: str = ""
    _stride: int = 1
    _count: int = 0

    def __len__(self) -> int:
        return len(self._rows)

    def estimate(self, message: EstimateMessage) -> None:
        """Add an estimate; one of other parameters begins anew."""
        t = message.envelope.t_ns * 1e-9
        if self._rows and message.hash != self._hash:
            if len(message.theta) == len(self._rows[-1][1]):
                self.events.append(
                    TrendEvent(t, "other settings", "the model or the settings of the estimator changed")
                )
            else:
                self.restarts += 1
                self._rows, self._stride, self._count = [], 1, 0
        self._hash = message.hash
        known = np.array([status == "estimated" for status in message.status], dtype=np.bool_)
        self._take(t, message.theta.copy(), message.std.copy(), known)

    def _take(self, t: float, theta: FloatArray, std: FloatArray, known: BoolArray) -> None:
        self._count += 1
        if (self._count - 1) % self._stride:
            return
        self._rows.append((t, theta, std, known))
        if len(self._rows) > MAX:
            self._rows = self._rows[::2]
            self._stride *= 2

    def body(self, message: BodyMessage) -> None:
        """Add the names of the parameters, or an event."""
        if message.kind == "meta":
            self.names = [str(name) for name in message.body.get("parameters", [])]
            self.units = [str(unit) for unit in message.body.get("units", [])]
        elif message.kind == "event":
            values = str(message.body.get("event", "")), str(message.body.get("text", ""))
            self.events.append(TrendEvent(message.envelope.t_ns * 1e-9, *values))
        elif message.kind == "status" and message.envelope.src == "estimator":
            self._breakaway(message.envelope.t_ns * 1e-9, message.body.get("breakaway", {}))
        elif message.kind == "elastic":
            for joint, entry in message.body.get("joints", {}).items():
                self.joints.setdefault(joint, Trend())._spring(message.envelope.t_ns * 1e-9, entry["parameters"])

    def _breakaway(self, t: float, joints: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the breakaway friction of all joints at `t` [s], once one has a value and the estimator a time."""
        if not joints or t == 0.0:
            return
        if self.breakaway is None:
            if all(entry["value"] is None for entry in joints.values()):
                return
            self.breakaway = Trend()
        values = {f"breakaway friction of {joint}": entry for joint, entry in joints.items()}
        self.breakaway._add_parameters(t, values, ("estimated",))

    def _spring(self, t: float, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the estimate of an elastic joint at `t` [s]."""
        self._add_parameters(t, parameters, ("determined", "weak"))

    def _add_parameters(self, t: float, parameters: Mapping[str, Mapping[str, Any]], good: tuple[str, ...]) -> None:
        """Add parameters by name at `t` [s], known where their status is `good`; other names begin anew."""
        if list(parameters) != self.names:
            self._rows, self._stride, self._count = [], 1, 0
        self.names = list(parameters)
        self.units = [str(p["unit"]) for p in parameters.values()]
        numbers = np.array([(p["value"], p["std"]) for p in parameters.values()], dtype=np.float64)  # null is NaN
        known = np.array([p["status"] in good for p in parameters.values()], dtype=np.bool_)
        self._take(t, numbers[:, 0], numbers[:, 1], known)

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """Return times (N,) [s], values (N, p), standard deviations (N, p), and where they are estimated (N, p)."""
        if not self._rows:
            nothing = np.zeros((0, len(self.names)))
            return np.zeros(0), nothing, nothing, nothing.astype(np.bool_)
        t, theta, std, known = zip(*self._rows, strict=True)
        return np.array(t), np.array(theta), np.array(std), np.array(known)
