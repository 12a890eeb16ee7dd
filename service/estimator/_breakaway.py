"""Breakaway friction of an arm's joints, beside its estimate: from frames to what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.online.breakaway import BreakawayTracker, JointBreakaway, Start, StartWatch
from rt_core.online.breakaway.load import rest_torque, sliding_friction
from rt_core.types import FloatArray
from service.estimator._active_model import Tell

_PREFIX = "breakaway_"
#: A joint that has started is watched for so long [s], and by the estimator's delay, before the start counts.
CONFIRM_S = 1.0


class BreakawayTracking:
    """Tracks the breakaway friction of every joint whose motor turns that joint alone.

    What an arm picked up at rest shows when it moves.  So a start waits until the motion after it has been explained.

    Parameters
    ----------
    estimator : OnlineEstimator
        Tells the torque that holds the links, and how well it is known.
    trusted : callable
        Whether what holds the links is at present as the estimate says: no change of the arm is being explained.
    tell : callable
        Takes events.
    """

    def __init__(self, estimator: OnlineEstimator, trusted: Callable[[], bool], tell: Tell) -> None:
        self.estimator, self._trusted, self._tell = estimator, trusted, tell
        model = estimator.model
        self.names = [joint.name for joint in model.joints]
        self._not_tracked = why_not_tracked(model)
        self._watch = StartWatch(model.n, estimator.rate_hz, self._load, self._sliding)
        self.tracker = BreakawayTracker(model.n)
        self._waiting: list[Start] = []
        self._confirm_s = CONFIRM_S + estimator.delay_s
        self._nothing = np.full(model.n, np.nan)
        self._origin_ns: int | None = None
        self._now_s = 0.0
        self._gears = model.transmission
        #: What a subscriber needs to know: names and units, joint by joint.
        self.meta = {
            "parameters": [f"fb{j + 1}" for j in range(model.n)],
            "units": ["N*m" if joint.kind == "revolute" else "N" for joint in model.joints],
        }

    def push(self, frame: JointFrame, q: FloatArray, tau: FloatArray, *, masked: bool) -> None:
        """Take a frame with joint positions and torques `q`, `tau` (n,); one that is `masked` tells nothing."""
        if self._origin_ns is None:
            self._origin_ns = frame.t_bus_ns
        self._now_s = (frame.t_bus_ns - self._origin_ns) * 1e-9
        x = q
        if self._gears is not None and frame.q_motor is not None and len(frame.q_motor) == len(q):
            x = (frame.q_motor - self._gears.offset) / np.diagonal(self._gears.matrix)
        if masked or (frame.valid is not None and not frame.valid.all()):
            tau = self._nothing
        for start in self._watch.push(self._now_s, x, q, tau):
            if start.joint not in self._not_tracked:
                self._waiting.append(start)
        if self._waiting and self._now_s - self._waiting[0].t_s > self._confirm_s:
            self._take(self._waiting.pop(0), explained=self._explained)

    @property
    def _explained(self) -> bool:
        """Whether the estimate is that of the arm as it is, as far as what holds the links goes."""
        heavy = bool(self.estimator.model.gravity.any())
        return self._trusted() and not (heavy and self.estimator.learns_change.any())

    def _take(self, start: Start, *, explained: bool) -> None:
        if not start.left_out and not explained:
            start = replace(start, left_out="not trusted")
        before = self.tracker.take(start)
        if before is not None:
            self._report_change(start.joint, before)

    def _load(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        e = self.estimator
        torque, std = rest_torque(e.model, e.base, e.theta, e.covariance, q)
        unexplained = np.zeros(torque.size, dtype=np.bool_)
        if not self._explained:
            unexplained[:] = True
        status = np.array(e.report().status)
        unexplained[e.base.layout.joint[status == "invalid"]] = True
        return torque, np.where(unexplained, np.inf, std)

    def _sliding(self) -> FloatArray:
        e = self.estimator
        believed = ~np.isin(e.report().status, ("unestimated", "invalid"))
        return sliding_friction(e.base, np.where(believed, e.theta, 0.0), e.covariance, e.model.n, e.temperature)

    def _report_change(self, joint: int, before: float) -> None:
        now = self.report(joint)
        if now.value is None:
            return  # the new starts differ too much; `status` says so
        unit = self.meta["units"][joint]
        text = f"breakaway friction of {self.names[joint]} changed from {before:.3g} to {now.value:.3g} {unit}"
        data = {"joint": self.names[joint], "old": before, "new": now.value, "std": now.std}
        self._tell("breakaway_changed", text, data)

    def report(self, joint: int) -> JointBreakaway:
        """Tell what is known of a joint."""
        return self.tracker.report(joint, self._now_s)

    def document(self) -> dict[str, Any]:
        """`breakaway` of a status message: by joint; times are of the frames' clock."""
        return {name: self._joint(j) for j, name in enumerate(self.names)}

    def _joint(self, j: int) -> dict[str, Any]:
        found = vars(self.report(j)) | {"unit": self.meta["units"][j]}
        if found["last_t"] is not None:
            found["last_t"] += (self._origin_ns or 0) * 1e-9
        if j in self._not_tracked:
            found["reason"] = self._not_tracked[j]
        return found

    def mark_gap(self) -> None:
        """Begin with another clock; what is known stays."""
        for start in self._waiting:
            self._take(start, explained=False)
        self._waiting.clear()
        self.tracker.restart(self._now_s)
        self._origin_ns, self._now_s = None, 0.0
        self._watch.restart()

    def reset(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self.tracker.reset()

    def watched(self) -> dict[str, Any]:
        """Return what starts have told, to go back to."""
        return {"now_s": self._now_s, **self.tracker.state(self._now_s)}

    def rollback(self, watched: Mapping[str, Any]) -> None:
        """Know again what was `watched` by the same clock; starts that wait are not believed."""
        self._waiting.clear()
        self.tracker.restore(watched)
        self.tracker.restart(-watched["now_s"])

    def state(self) -> dict[str, Any]:
        """Return what the state file keeps."""
        return {_PREFIX + key: value for key, value in self.tracker.state(self._now_s).items()}

    def restore(self, state: Mapping[str, Any], ignored: Callable[[str], None]) -> None:
        """Go on from a saved state; `ignored` is told why it cannot serve.  One that says nothing begins anew."""
        own = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
        if not own:
            return
        try:
            self.tracker.restore(own)
        except (ValueError, TypeError) as error:
            ignored(str(error))


def why_not_tracked(model: RobotModel) -> dict[int, str]:
    """Joints whose breakaway friction no start shows, with the reason."""
    if model.friction.load:
        return dict.fromkeys(range(model.n), "friction of this robot depends on the load")
    turns = model.coupling != 0.0  # motors by joints
    alone = (turns.sum(axis=1) == 1) & (turns.sum(axis=0) == 1)
    return {int(j): "its motor turns with another joint" for j in np.flatnonzero(~alone)}
