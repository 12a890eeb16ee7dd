"""Convert a daemon's messages to what a viewer shows: named, bounded, at a lower rate, without invalid numbers."""

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from drivers.files.recordings.format import RecordingMeta
from drivers.files.recordings.joint_states import joint_states_of, timestamp
from drivers.frame import CHANNELS
from rt_core.statistics import NORMAL_QUANTILE_95
from service.bridge._schemas import Stream, arm_streams, frame_streams, generic_stream
from service.protocol import messages
from service.protocol.json_values import json_values

#: Levels of Foxglove's log, and the events that are logged as warnings.
_INFO, _WARNING = 2, 3
_WARNINGS = (
    "drift", "invalid", "temperature_missing", "temperature_outside", "change", "sensor_fault", "ambiguous",
    "encoder_stuck",
)  # fmt: skip


class Decimation:
    """Rate limit of `rate_hz` messages a second for each stream; `left_out` counts those held back, of all streams."""

    def __init__(self, rate_hz: float) -> None:
        self.left_out = 0
        self._period_ns = round(1e9 / rate_hz)
        self._due: dict[Hashable, tuple[int, int]] = {}  # boot counter and time of the next message of each stream

    def passes(self, stream: Hashable, epoch: int, t_ns: int) -> bool:
        """Return whether to pass a message of this time on; always for the first after a restart or a step back."""
        period = self._period_ns
        known, due = self._due.get(stream, (epoch, t_ns))
        if known != epoch or t_ns < due - 2 * period:
            due = t_ns
        if t_ns < due - period // 32:  # tolerates rounding and small jitter, which must not cost a whole cycle
            self.left_out += 1
            return False
        self._due[stream] = epoch, due + period if t_ns < due + period else t_ns + period
        return True


@dataclass(frozen=True)
class ViewerMessage:
    """One message for a viewer: its topic, and a map of JSON values."""

    topic: str
    content: dict[str, Any]


@dataclass
class _Arm:
    """State of one arm; names are valid until their sender restarts."""

    frames: RecordingMeta | None = None
    frames_epoch: int = 0
    names: dict[str, Any] = field(default_factory=dict)
    names_epoch: int = 0
    others: set[str] = field(default_factory=set)  # topics of messages that are passed on unchanged


class MessageConverter:
    """Converter of a daemon's messages to what a viewer shows.

    Frames, torques and estimates of each arm are shown at `rate_hz` at most, on their own clock.  `counts` are messages
    by kind; `early`: received before the names they need; `unusable`: content contradicts them.  `fresh` are streams
    that are new or have a new schema; the caller removes them once they are advertised.
    """

    def __init__(self, rate_hz: float) -> None:
        self.counts: Counter[str] = Counter()
        self.fresh: list[Stream] = []
        self._decimation = Decimation(rate_hz)
        self._arms: dict[str, _Arm] = {}

    @property
    def arms(self) -> list[str]:
        """The arms of which messages were received."""
        return list(self._arms)

    @property
    def left_out(self) -> int:
        """Messages held back because of `rate_hz`."""
        return self._decimation.left_out

    def take(self, message: messages.Message) -> list[ViewerMessage]:
        """Return the messages to show for one message of the daemon."""
        try:
            return self._take(message)
        except (LookupError, TypeError, ValueError):  # from another version: must not end the bridge for all others
            self.counts["unusable"] += 1
            return []

    def _take(self, message: messages.Message) -> list[ViewerMessage]:
        arm = self._arms.get(message.arm)
        if arm is None:
            arm = self._arms[message.arm] = _Arm()
            self.fresh += arm_streams(message.arm)
        if isinstance(message, messages.FrameMessage):
            self.counts["frame"] += 1
            return self._frame(message, arm)
        if isinstance(message, messages.EstimateMessage):
            self.counts["estimate"] += 1
            return self._estimate(message, arm)
        if isinstance(message, messages.TorqueMessage):
            self.counts["torque"] += 1
            return self._torque(message)
        self.counts[message.kind] += 1
        if message.kind == "meta":
            self._meta(message, arm)
        elif message.kind == "event":
            return _event(message)
        elif message.kind in ("status", "elastic"):
            return self._generic(message, arm)
        return []

    def _meta(self, message: messages.BodyMessage, arm: _Arm) -> None:
        body, envelope = message.body, message.envelope
        if envelope.src == "estimator":
            arm.names, arm.names_epoch = body, envelope.epoch
            return
        if envelope.src != "acquisition":
            return
        names, units = tuple(body["joint_names"]), tuple(body["joint_units"])
        meta = RecordingMeta(message.arm, names, units, body["rate_hz"], envelope.clock)
        arm.frames_epoch = envelope.epoch
        if meta != arm.frames:
            arm.frames = meta
            self.fresh += frame_streams(meta)

    def _frame(self, message: messages.FrameMessage, arm: _Arm) -> list[ViewerMessage]:
        meta, envelope, frame = arm.frames, message.envelope, message.frame
        if meta is None or arm.frames_epoch != envelope.epoch:
            self.counts["early"] += 1
            return []
        if not self._passes(message, "frame"):
            return []
        content = _when(envelope)
        content["t_host_ns"] = frame.t_host_ns
        for name in (*CHANNELS, "status_word", "valid"):
            values = getattr(frame, name)
            if values is not None:
                content[name] = json_values(values)
        states = joint_states_of(frame, meta.joint_names)
        return [ViewerMessage(meta.topic, content), ViewerMessage(f"{message.arm}/joint_states", states)]

    def _torque(self, message: messages.TorqueMessage) -> list[ViewerMessage]:
        if not self._passes(message, "torque"):
            return []
        content = {name: json_values(getattr(message, name)) for name in ("measured", "predicted", "residual")}
        return [ViewerMessage(f"{message.arm}/torque", _when(message.envelope) | content)]

    def _estimate(self, message: messages.EstimateMessage, arm: _Arm) -> list[ViewerMessage]:
        if arm.names_epoch != message.envelope.epoch or arm.names.get("hash") != message.hash:
            self.counts["early"] += 1
            return []
        if not self._passes(message, "estimate"):
            return []
        names = arm.names
        parameters = [
            _parameter(message, k, name, unit)
            for k, (name, unit) in enumerate(zip(names["parameters"], names["units"], strict=True))
        ]
        joints = [
            {"name": name, "lam": message.lam[j], "innovation": message.innovation[j], "sigma": message.sigma[j]}
            for j, name in enumerate(names["joints"])
        ]
        counts = {name: getattr(message, name) for name in ("frames", "used", "masked", "lost", "resets")}
        content = json_values({"parameters": parameters, "joints": joints, "delay_s": message.delay_s, **counts})
        content = _when(message.envelope) | content | {"hash": message.hash}
        return [ViewerMessage(f"{message.arm}/estimate", content)]

    def _generic(self, message: messages.BodyMessage, arm: _Arm) -> list[ViewerMessage]:
        stream = generic_stream(message.arm, message.kind, message.envelope.src)
        if stream.topic not in arm.others:
            arm.others.add(stream.topic)
            self.fresh.append(stream)
        return [ViewerMessage(stream.topic, _when(message.envelope) | json_values(message.body))]

    def _passes(self, message: messages.Message, kind: str) -> bool:
        envelope = message.envelope
        return self._decimation.passes((message.arm, kind), envelope.epoch, envelope.t_ns)


def _when(envelope: messages.Envelope) -> dict[str, Any]:
    return {"t": envelope.t_ns * 1e-9, "t_ns": envelope.t_ns, "seq": envelope.seq}


def _parameter(message: messages.EstimateMessage, k: int, name: str, unit: str) -> dict[str, Any]:
    """Return one parameter, without numbers if the data do not support it."""
    value, std = float(message.theta[k]), float(message.std[k])
    if message.status[k] not in messages.STATUSES_WITH_VALUE:
        value = std = math.nan
    return {
        "name": name, "unit": unit, "value": value, "lower": value - NORMAL_QUANTILE_95 * std,
        "upper": value + NORMAL_QUANTILE_95 * std, "std": std, "validated": message.validated[k],
        "status": message.status[k], "excited": bool(message.excited[k]),
    }  # fmt: skip


def _event(message: messages.BodyMessage) -> list[ViewerMessage]:
    """Return an event twice: with all its data, and as a line of Foxglove's log."""
    envelope, body = message.envelope, json_values(message.body)
    line = {
        "timestamp": timestamp(envelope.t_ns), "level": _WARNING if body["event"] in _WARNINGS else _INFO,
        "message": body["text"], "name": f"{message.arm} {body['event']}", "file": envelope.src, "line": 0,
    }  # fmt: skip
    return [ViewerMessage(f"{message.arm}/event", _when(envelope) | body), ViewerMessage(f"{message.arm}/log", line)]
