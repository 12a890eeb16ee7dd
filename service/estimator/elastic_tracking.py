"""Online estimates of an arm's elastic joints, beside its rigid model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rt_core.model.robot import RobotModel
from service.config.load import ArmConfig, ConfigError
from service.estimator._frame_consumer import FrameBlock, FrameConsumer

if TYPE_CHECKING:
    from service.estimator._elastic_tracker import ElasticTracker

_NEVER = -(1 << 62)


class ElasticTracking(FrameConsumer):
    """All elastic joints of an arm that are estimated, each a consumer of its own; none without a configuration.

    Each is published `hz` times a second, one after the other: all at once would delay the frames.
    """

    def __init__(self, trackers: Sequence[ElasticTracker], hz: float) -> None:
        self.trackers = tuple(trackers)
        self._from_active = [tracker for tracker in trackers if tracker.spring.model is None]
        self._every_ns = round(1e9 / (hz * max(1, len(self.trackers))))
        self._next_ns = _NEVER
        self._turn = 0

    def warm_up(self) -> None:
        """Compile every kernel."""
        for tracker in self.trackers[:1]:  # the kernels are the same for all
            tracker.warm_up()

    def limit(self, block: FrameBlock) -> int:
        """Return the number of frames up to the one with which a message is due."""
        return block.until(self._next_ns) if self._begun else len(block)

    def due(self, t_ns: int) -> dict[str, Any] | None:
        """Return the body of the message due at `t_ns` of the frames' clock, None if none is."""
        if not self._begun or t_ns < self._next_ns:
            return None
        self._next_ns = max(self._next_ns + self._every_ns, t_ns + self._every_ns // 2)
        self._turn = (self._turn + 1) % len(self._begun)
        tracker = self._begun[self._turn]
        return {"joints": {tracker.joint: tracker.document()}}

    def documents(self) -> dict[str, Any]:
        """Return the estimate of each joint, with all frames that have arrived."""
        for tracker in self._begun:
            tracker.take()
        return {tracker.joint: tracker.document() for tracker in self._begun}

    @property
    def _begun(self) -> list[ElasticTracker]:
        return [tracker for tracker in self.trackers if tracker.estimator is not None]

    def prepared(self, springs: Sequence[Mapping[str, Any]] | None) -> Callable[[], object]:
        """Return what begins with the springs of a model that becomes active, where no file is configured.

        Without springs the estimates end: a roll-back to a model with rigid joints must not fail. Raises `ConfigError`
        if the model's joints are elastic and those of the arm rigid, or a joint has no start in the model.
        """
        known: Sequence[Any] = [None] * len(self._from_active)
        if springs:
            from service.operations.elastic.file import known_springs  # imports the off-line fits, as below

            known = known_springs(springs, [tracker.joint for tracker in self._from_active] if self.trackers else None)
        steps = [tracker.prepared(found) for tracker, found in zip(self._from_active, known, strict=True)]
        return lambda: [step() for step in steps]

    def restart_stream(self) -> None:
        """Publish with the first frame of another clock."""
        self._next_ns = _NEVER


def elastic_tracking(
    arm: ArmConfig, model: RobotModel, channels: Sequence[str], rate_hz: float, where: str
) -> ElasticTracking:
    """Make the estimates that `[[arm.elastic]]` describes, for frames with these channels.

    Raises `ConfigError`: a joint is unknown, the frames do not show a spring, or a file cannot be used; `where` names
    the tables.
    """
    trackers = []
    for k, spring in enumerate(arm.elastic):
        # it imports the off-line fits: only arms with springs need them
        from service.estimator._elastic_tracker import ElasticTracker

        try:
            trackers.append(ElasticTracker(spring, model, channels, rate_hz))
        except ConfigError as error:
            raise ConfigError(f"{where}[{k}].{error}") from error
    return ElasticTracking(trackers, arm.publish.elastic_hz)
