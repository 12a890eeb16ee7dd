"""Online estimates of an arm's elastic joints, beside its rigid model."""

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

    Each is published `hz` times a second, one after the other: all at once would delay the frames.
    """

    def __init__(self, trackers: Sequence[ElasticTracker], hz: float) -> None:
        self.trackers = tuple(trackers)
        self._every_ns = round(1e9 / (hz * max(1, len(self.trackers))))
        self._next_ns = _NEVER
        self._turn = 0

    def warm_up(self) -> None:
        """Compile every kernel."""
        for tracker in self.trackers[:1]:  # the kernels are the same for all
            tracker.warm_up()

    def push(self, frame: JointFrame, *, masked: bool) -> None:
        """Process a frame."""
        for tracker in self.trackers:
            tracker.push(frame, masked=masked)

    def due(self, t_ns: int) -> dict[str, Any] | None:
        """Return the body of the message due at `t_ns` of the frames' clock, None if none is."""
        if not self.trackers or t_ns < self._next_ns:
            return None
        self._next_ns = max(self._next_ns + self._every_ns, t_ns + self._every_ns // 2)
        self._turn = (self._turn + 1) % len(self.trackers)
        tracker = self.trackers[self._turn]
        return {"joints": {tracker.joint: tracker.document()}}

    def documents(self) -> dict[str, Any]:
        """Return the estimate of each joint, with all frames that have arrived."""
        for tracker in self.trackers:
            tracker.take()
        return {tracker.joint: tracker.document() for tracker in self.trackers}

    def restart_stream(self) -> None:
        """Restart the filters with a new clock; parameters stay."""
        self._next_ns = _NEVER
        for tracker in self.trackers:
            tracker.restart_stream()

    def reset(self) -> None:
        """Discard everything but the files' values."""
        for tracker in self.trackers:
            tracker.reset()

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return the content of the state file for all joints."""
        return {
            f"{_prefix(tracker.joint)}{name}": value
            for tracker in self.trackers
            for name, value in tracker.estimator.state().items()
        }

    def restore(self, state: Mapping[str, Any], ignored: Callable[[str, str], None]) -> None:
        """Restore a saved state, joint by joint; `ignored` gets joint and reason where it cannot be used.

        A joint without a saved state begins with its file.
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
        """Restore what `state` has returned; collected frames are dropped."""
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
    """Make the estimates that `[[arm.elastic]]` describes, for frames with these channels.

    Raises
    ------
    ConfigError
        A joint is unknown, the frames do not show a spring, or a file cannot be used; `where` names the tables.
    """
    trackers = []
    for k, spring in enumerate(arm.elastic):
        from service.estimator._elastic_tracker import (
            make_tracker,  # imports the off-line fits: only arms with springs need them
        )

        try:
            trackers.append(make_tracker(spring, model, channels, rate_hz))
        except ConfigError as error:
            raise ConfigError(f"{where}[{k}].{error}") from error
    return ElasticTracking(trackers, arm.publish.elastic_hz)
