"""Elastic joints of an arm, estimated beside its rigid model: who is told when, and what is saved of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from service.config.load import ArmConfig, ConfigError

if TYPE_CHECKING:
    from service.estimator._elastic_tracker import ElasticTracker

_NEVER = -(1 << 62)


class ElasticTracking:
    """All elastic joints of an arm that are estimated; none where the configuration names none.

    Each is told `hz` times a second, one after the other: to tell all at once would hold up the frames.
    """

    def __init__(self, trackers: Sequence[ElasticTracker], hz: float) -> None:
        self.trackers = tuple(trackers)
        self._every_ns = round(1e9 / (hz * max(1, len(self.trackers))))
        self._next_ns = _NEVER
        self._turn = 0

    def warm_up(self) -> None:
        """Compile every kernel."""
        for tracker in self.trackers[:1]:  # they are the same for all
            tracker.warm_up()

    def push(self, frame: JointFrame, *, masked: bool) -> None:
        """Take a frame."""
        for tracker in self.trackers:
            tracker.push(frame, masked=masked)

    def due(self, t_ns: int) -> dict[str, Any] | None:
        """Return the body of a message that is due at `t_ns` of the frames' clock, None if none is."""
        if not self.trackers or t_ns < self._next_ns:
            return None
        self._next_ns = max(self._next_ns + self._every_ns, t_ns + self._every_ns // 2)
        self._turn = (self._turn + 1) % len(self.trackers)
        tracker = self.trackers[self._turn]
        return {"joints": {tracker.joint: tracker.document()}}

    def documents(self) -> dict[str, Any]:
        """Return what is known of each joint, with all frames that have come."""
        for tracker in self.trackers:
            tracker.take()
        return {tracker.joint: tracker.document() for tracker in self.trackers}

    def mark_gap(self) -> None:
        """Let the filters start anew, with a new clock; parameters stay."""
        self._next_ns = _NEVER
        for tracker in self.trackers:
            tracker.mark_gap()

    def reset(self) -> None:
        """Forget everything but the files' values."""
        for tracker in self.trackers:
            tracker.reset()

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return what the state file keeps of all joints."""
        return {
            f"{_prefix(tracker.joint)}{name}": value
            for tracker in self.trackers
            for name, value in tracker.estimator.state().items()
        }

    def restore(self, state: Mapping[str, Any], ignored: Callable[[str, str], None]) -> None:
        """Go on from a saved state, joint by joint; `ignored` is told joint and reason where that of one cannot serve.

        A joint that the state says nothing of begins with its file.
        """
        for tracker in self.trackers:
            prefix = _prefix(tracker.joint)
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            if not own:
                continue
            try:
                tracker.estimator.restore(own)
            except (ValueError, TypeError) as error:
                ignored(tracker.joint, str(error))

    def rollback(self, state: Mapping[str, Any]) -> None:
        """Be again what `state` has returned; frames that have been gathered are left out."""
        for tracker in self.trackers:
            prefix = _prefix(tracker.joint)
            tracker.drop()
            tracker.estimator.restore(
                {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            )


def _prefix(joint: str) -> str:
    return f"elastic {joint} "


def elastic_tracking(
    arm: ArmConfig, model: RobotModel, channels: Sequence[str], rate_hz: float, where: str
) -> ElasticTracking:
    """Make the estimates that `[[arm.elastic]]` asks for, of frames with these channels.

    Raises
    ------
    ConfigError
        A joint is unknown, the frames do not show a spring, or a file cannot serve; `where` is the place of the tables.
    """
    trackers = []
    for k, spring in enumerate(arm.elastic):
        from service.estimator._elastic_tracker import (
            make_tracker,  # brings the off-line fits: only arms with springs need them
        )

        try:
            trackers.append(make_tracker(spring, model, channels, rate_hz))
        except ConfigError as error:
            raise ConfigError(f"{where}[{k}].{error}") from error
    return ElasticTracking(trackers, arm.publish.elastic_hz)
