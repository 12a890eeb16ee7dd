"""Stuck encoders of an arm: reported, and undone in the estimate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rt_core.online import OnlineEstimator
from rt_core.online.checkpoint import Checkpoint
from rt_core.online.monitors.stuck_encoder import StuckEncoderMonitor
from rt_core.types import FloatArray
from service.estimator._active_model import ReportEvent

#: Other consumers of frames are rolled back with the estimate: their snapshot, and its restoration.
TakeSnapshot = Callable[[], Mapping[str, Any]]
Rollback = Callable[[Mapping[str, Any], int], Mapping[str, Any]]

LOOK_S = 0.02
_CHECKPOINT_EVERY_S = 1.0
_MAX_CHECKPOINTS = 10
_MAX_AGE_S = 60.0  # of the latest checkpoint, during a long suspicion
_MARGIN_S = 0.2  # before a joint stopped: frames until then are good


class EncoderMonitor:
    """Monitors the encoders of an arm; see `rt_core.online.monitors.stuck_encoder`.

    A stuck encoder is detected some seconds later; the estimate is then rolled back to a checkpoint from before. What
    `take_snapshot` returns of other consumers is given to `rollback`, with the time from which frames are wrong [ns].
    """

    def __init__(
        self, estimator: OnlineEstimator, report_event: ReportEvent, take_snapshot: TakeSnapshot = dict,
        rollback: Rollback = lambda _checkpoints, _since_ns: {},
    ) -> None:  # fmt: skip
        self.estimator, self._report_event = estimator, report_event
        self._take_snapshot, self._rollback = take_snapshot, rollback
        self.names = [joint.name for joint in estimator.model.joints]
        self._monitor = StuckEncoderMonitor(estimator.model.n, estimator.bank.delay / estimator.rate_hz)
        self._checkpoints: deque[tuple[float, Checkpoint, Mapping[str, Any]]] = deque(maxlen=_MAX_CHECKPOINTS)
        self._next_look_s = -np.inf
        self._origin_ns: int | None = None
        #: Whether any encoder is stuck, so that frames carry no information.
        self.stuck = False

    @property
    def stuck_joints(self) -> list[str]:
        """Names of the joints whose encoders are stuck."""
        return [self.names[j] for j in np.flatnonzero(self._monitor.stuck)]

    def push(self, t_ns: int, q: FloatArray) -> None:
        """Process a frame, whether or not the estimator has used it."""
        if self._origin_ns is None:
            self._origin_ns = t_ns
        t = (t_ns - self._origin_ns) * 1e-9
        if t < self._next_look_s:
            return
        self._next_look_s = t + LOOK_S
        if not self.stuck:
            self._take_checkpoint(t)
        found = self._monitor.take(t, q, self.estimator.filtered_torque, self.estimator.stationary_torque)
        self.stuck = bool(self._monitor.stuck.any())
        if found.any():
            self._on_stuck(t, self._monitor.stopped_at(found))
        elif self._monitor.recovered.any():
            self._report_moving([self.names[j] for j in np.flatnonzero(self._monitor.recovered)])

    def _take_checkpoint(self, t: float) -> None:
        """Take a checkpoint, once a second while no encoder is suspicious."""
        if self._checkpoints and self._checkpoints[-1][1].generation != self.estimator.generation:
            self._checkpoints.clear()  # the estimate was replaced
        if self._checkpoints:
            age_s = t - self._checkpoints[-1][0]
            if age_s < _CHECKPOINT_EVERY_S or (self._monitor.suspicious and age_s < _MAX_AGE_S):
                return
        self._checkpoints.append((t, self.estimator.checkpoint(), self._take_snapshot()))

    def _on_stuck(self, t: float, stands_s: float) -> None:
        joints = self.stuck_joints
        good = [kept for kept in self._checkpoints if kept[0] < stands_s - _MARGIN_S]
        if not good:  # it has been stuck for longer: as far back as possible, but not by minutes
            good = [kept for kept in self._checkpoints if t - kept[0] <= _MAX_AGE_S][:1] or [self._checkpoints[-1]]
        kept_s, checkpoint, others = good[-1]
        self.estimator.rollback(checkpoint)
        origin_ns, from_s = self._origin_ns or 0, max(kept_s, stands_s - _MARGIN_S)
        more = self._rollback(others, origin_ns + round(1e9 * from_s))
        self._checkpoints.clear()
        text = (
            f"the position of {', '.join(joints)} stays the same, but the torque is not that of a joint that stands: "
            "the encoder sticks, or it holds what is not known; nothing is learned meanwhile"
        )
        since = 1e-9 * origin_ns + stands_s
        self._report_event("encoder_stuck", text, {"joints": joints, "since": since, "back_s": t - kept_s, **more})

    def _report_moving(self, joints: list[str]) -> None:
        self._report_event("encoder_moves", f"the position of {', '.join(joints)} changes again", {"joints": joints})

    def restart_stream(self) -> None:
        """Begin with another clock."""
        self._origin_ns = None
        self._next_look_s = -np.inf
        self._checkpoints.clear()
        self._monitor.restart()

    @property
    def invalid_reason(self) -> str:
        """Why the torque of a model is not valid; empty if it is."""
        return f"the encoder of {', '.join(self.stuck_joints)} seems to stick" if self.stuck else ""

    def document(self) -> dict[str, Any]:
        """Return `encoders` of a status message."""
        return {"stuck": self.stuck_joints}
