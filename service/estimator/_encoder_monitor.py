"""Stuck encoders of an arm: reported, and undone in the estimate."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rt_core.online import OnlineEstimator
from rt_core.online.monitors.stuck_encoder import StuckEncoderMonitor
from rt_core.types import FloatArray
from service.estimator._active_model import ReportEvent
from service.estimator._frame_consumer import FrameBlock, FrameConsumer

LOOK_S = 0.02
_SNAPSHOT_EVERY_S = 1.0
_MAX_SNAPSHOTS = 10
_MAX_AGE_S = 60.0  # of the latest snapshot, during a long suspicion
_MARGIN_S = 0.2  # before a joint stopped: frames until then are good


class EncoderMonitor(FrameConsumer):
    """Monitors the encoders of an arm; see `rt_core.online.monitors.stuck_encoder`.

    A stuck encoder is detected some seconds later; all `consumers` are then rolled back to a snapshot from before.
    `rolled_back` takes the time from which frames are wrong [ns], and returns what the event also tells.
    """

    def __init__(
        self, estimator: OnlineEstimator, report_event: ReportEvent, consumers: Sequence[FrameConsumer],
        rolled_back: Callable[[int], Mapping[str, Any]],
    ) -> None:  # fmt: skip
        self.estimator, self._report_event = estimator, report_event
        self._consumers, self._rolled_back = consumers, rolled_back
        self.names = [joint.name for joint in estimator.model.joints]
        self._monitor = StuckEncoderMonitor(estimator.model.n, estimator.bank.delay / estimator.rate_hz)
        #: Time [s], generation of the estimate, and what the consumers gave.
        self._snapshots: deque[tuple[float, int, list[Mapping[str, Any]]]] = deque(maxlen=_MAX_SNAPSHOTS)
        self._next_look_s = -np.inf
        self._origin_ns: int | None = None
        #: Whether any encoder is stuck, so that frames carry no information.
        self.stuck = False

    @property
    def stuck_joints(self) -> list[str]:
        """Names of the joints whose encoders are stuck."""
        return [self.names[j] for j in np.flatnonzero(self._monitor.stuck)]

    def limit(self, block: FrameBlock) -> int:
        """Return the number of frames up to that of the next look, which may roll back all consumers."""
        if block.guided:
            return len(block)
        return 1 if self._origin_ns is None else block.until(self._origin_ns + int(1e9 * self._next_look_s) - 1)

    def push(self, block: FrameBlock) -> None:
        """Process frames, whether or not the estimator has used them; a hand holds no joint."""
        known = None if block.joints_valid is None else np.asarray(block.joints_valid.all(axis=1))
        for k, t_ns in enumerate(() if block.guided else block.t_ns):
            if known is not None and not known[k]:
                continue
            if self._origin_ns is None:
                self._origin_ns = t_ns
            t = (t_ns - self._origin_ns) * 1e-9
            if t >= self._next_look_s:
                self._look(t, block.q[k])

    def _look(self, t: float, q: FloatArray) -> None:
        self._next_look_s = t + LOOK_S
        if not self.stuck:
            self._take_snapshot(t)
        found = self._monitor.take(t, q, self.estimator.filtered_torque, self.estimator.stationary_torque)
        self.stuck = bool(self._monitor.stuck.any())
        if found.any():
            self._on_stuck(t, self._monitor.stopped_at(found))
        elif self._monitor.recovered.any():
            joints = [self.names[j] for j in np.flatnonzero(self._monitor.recovered)]
            text = f"the position of {', '.join(joints)} changes again"
            self._report_event("encoder_moves", text, {"joints": joints})

    def _take_snapshot(self, t: float) -> None:
        """Take a snapshot, once a second while no encoder is suspicious."""
        if self._snapshots and self._snapshots[-1][1] != self.estimator.generation:
            self._snapshots.clear()  # the estimate was replaced
        if self._snapshots:
            age_s = t - self._snapshots[-1][0]
            if age_s < _SNAPSHOT_EVERY_S or (self._monitor.suspicious and age_s < _MAX_AGE_S):
                return
        self._snapshots.append((t, self.estimator.generation, [consumer.snapshot() for consumer in self._consumers]))

    def _on_stuck(self, t: float, stands_s: float) -> None:
        joints = self.stuck_joints
        good = [kept for kept in self._snapshots if kept[0] < stands_s - _MARGIN_S]
        if not good:  # it has been stuck for longer: as far back as possible, but not by minutes
            good = [kept for kept in self._snapshots if t - kept[0] <= _MAX_AGE_S][:1] or [self._snapshots[-1]]
        kept_s, _, snapshots = good[-1]
        origin_ns, from_s = self._origin_ns or 0, max(kept_s, stands_s - _MARGIN_S)
        for consumer, snapshot in zip(self._consumers, snapshots, strict=True):
            consumer.rollback(snapshot)
        more = self._rolled_back(origin_ns + round(1e9 * from_s))
        self._snapshots.clear()
        text = (
            f"the position of {', '.join(joints)} stays the same, but the torque is not that of a joint that stands: "
            "the encoder sticks, or it holds what is not known; nothing is learned meanwhile"
        )
        since = 1e-9 * origin_ns + stands_s
        self._report_event("encoder_stuck", text, {"joints": joints, "since": since, "back_s": t - kept_s, **more})

    def restart_stream(self) -> None:
        """Begin with another clock."""
        self._origin_ns = None
        self._next_look_s = -np.inf
        self._snapshots.clear()
        self._monitor.restart()

    @property
    def invalid_reason(self) -> str:
        """Why the torque of a model is not valid; empty if it is."""
        return f"the encoder of {', '.join(self.stuck_joints)} seems to stick" if self.stuck else ""

    def report(self) -> dict[str, Any]:
        """Return `encoders` of a status message."""
        return {"encoders": {"stuck": self.stuck_joints}}
