"""Breakaway friction of an arm's joints, tracked beside its estimate."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.online.breakaway import BreakawayTracker, Start, StartDetector
from rt_core.online.breakaway.load import rest_torque, sliding_friction
from rt_core.types import FloatArray
from service.estimator._active_model import ReportEvent
from service.estimator._frame_consumer import FrameBlock, FrameConsumer

#: After a start, a joint is observed for so long [s], and for the estimator's delay, before the start counts.
CONFIRM_S = 1.0


class BreakawayTracking(FrameConsumer):
    """Tracks the breakaway friction of every joint whose motor turns that joint alone.

    A payload picked up at rest shows only when the arm moves, so a start waits until the motion after it is explained.

    `estimator` gives the torque that holds the links, and its standard deviation; `trusted` whether the estimate
    describes the arm at present (no change is being classified); `report_event` takes events.
    """

    prefix = "breakaway_"

    def __init__(self, estimator: OnlineEstimator, trusted: Callable[[], bool], report_event: ReportEvent) -> None:
        self.estimator, self._trusted, self._report_event = estimator, trusted, report_event
        model = estimator.model
        self.names = [joint.name for joint in model.joints]
        self._not_tracked = why_not_tracked(model)
        self._detector = StartDetector(model.n, estimator.rate_hz, self._load, self._sliding)
        self.tracker = BreakawayTracker(model.n)
        self._waiting: list[Start] = []
        self._confirm_s = CONFIRM_S + estimator.delay_s
        self._origin_ns: int | None = None
        self._now_s = 0.0
        self._gears = model.transmission
        #: Names and units for subscribers, joint by joint.
        self.meta = {
            "parameters": [f"fb{j + 1}" for j in range(model.n)],
            "units": ["N*m" if joint.kind == "revolute" else "N" for joint in model.joints],
        }

    def limit(self, block: FrameBlock) -> int:
        """Return the number of frames before the next with which the estimate is asked."""
        if block.lacking:
            return len(block)
        frames = self._detector.quiet
        if self._waiting and self._origin_ns is not None:
            due_s = self._waiting[0].t_s + self._confirm_s
            frames = min(frames, block.until(self._origin_ns + int(1e9 * due_s) - 1) - 1)
        return max(1, frames)

    def push(self, block: FrameBlock) -> None:
        """Process frames."""
        if block.lacking:
            return
        x, q_motor, tau = block.q, block.channels.get("q_motor"), block.tau
        if self._gears is not None and q_motor is not None and q_motor.shape == x.shape:
            x = (q_motor - self._gears.offset) / np.diagonal(self._gears.matrix)
        if block.masked:
            tau = np.full(tau.shape, np.nan)
        elif block.joints_valid is not None:
            tau = np.where(block.joints_valid.all(axis=1, keepdims=True), tau, np.nan)
        if self._origin_ns is None:
            self._origin_ns = block.t_ns[0]
        t_s = [(t_ns - self._origin_ns) * 1e-9 for t_ns in block.t_ns]
        for start in self._detector.push(t_s, x, block.q, tau):
            if start.joint not in self._not_tracked:
                self._waiting.append(start)
        for self._now_s in t_s:
            if self._waiting and self._now_s - self._waiting[0].t_s > self._confirm_s:
                self._take(self._waiting.pop(0), explained=self._explained)

    @property
    def _explained(self) -> bool:
        """Whether the estimate explains the torque that holds the links."""
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
        torque, std = rest_torque(e.model, e.base, e.theta, e.stated_covariance, q)
        unexplained = np.zeros(torque.size, dtype=np.bool_)
        if not self._explained:
            unexplained[:] = True
        status = np.array(e.report().status)
        unexplained[e.base.layout.joint[np.isin(status, ("invalid", "doubted"))]] = True
        return torque, np.where(unexplained, np.inf, std)

    def _sliding(self) -> FloatArray:
        e = self.estimator
        has_value = ~np.isin(e.report().status, ("unestimated", "invalid", "doubted"))
        return sliding_friction(
            e.base, np.where(has_value, e.theta, 0.0), e.stated_covariance, e.model.n, e.temperature
        )

    def _report_change(self, joint: int, before: float) -> None:
        now = self.tracker.report(joint, self._now_s)
        if now.value is None:
            return  # the new starts differ too much; `status` shows it
        unit = self.meta["units"][joint]
        text = f"breakaway friction of {self.names[joint]} changed from {before:.3g} to {now.value:.3g} {unit}"
        data = {"joint": self.names[joint], "old": before, "new": now.value, "std": now.std}
        self._report_event("breakaway_changed", text, data)

    def report(self) -> dict[str, Any]:
        """Return `breakaway` of a status message, by joint; times are of the frames' clock."""
        return {"breakaway": {name: self._joint(j) for j, name in enumerate(self.names)}}

    def _joint(self, j: int) -> dict[str, Any]:
        found = vars(self.tracker.report(j, self._now_s)) | {"unit": self.meta["units"][j]}
        if found["last_t"] is not None:
            found["last_t"] += (self._origin_ns or 0) * 1e-9
        if j in self._not_tracked:
            found["reason"] = self._not_tracked[j]
        return found

    def restart_stream(self) -> None:
        """Begin with another clock; friction values stay."""
        for start in self._waiting:
            self._take(start, explained=False)
        self._waiting.clear()
        self.tracker.restart(self._now_s)
        self._origin_ns, self._now_s = None, 0.0
        self._detector.restart()

    def reset(self) -> None:
        """Discard everything."""
        self._waiting.clear()
        self.tracker.reset()

    def snapshot(self) -> dict[str, Any]:
        """Return the state, for `rollback`."""
        return {"now_s": self._now_s, **self.state()}

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore `snapshot`, of the same clock; waiting starts are dropped."""
        self._waiting.clear()
        self.tracker.restore(snapshot)
        self.tracker.restart(-snapshot["now_s"])

    def state(self) -> dict[str, Any]:
        """Return the starts, with times before now."""
        return self.tracker.state(self._now_s)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, with a new clock."""
        self.tracker.restore(state)


def why_not_tracked(model: RobotModel) -> dict[int, str]:
    """Return the joints whose breakaway friction no start shows, with the reason."""
    if model.friction.load:
        return dict.fromkeys(range(model.n), "friction of this robot depends on the load")
    turns = model.coupling != 0.0  # motors by joints
    alone = (turns.sum(axis=1) == 1) & (turns.sum(axis=0) == 1)
    return {int(j): "its motor turns with another joint" for j in np.flatnonzero(~alone)}
