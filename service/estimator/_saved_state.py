"""The state file of an arm's estimator: restored at the start, saved every few seconds and at the end."""

from collections.abc import Sequence
from typing import Any

from service.estimator._frame_consumer import FrameConsumer, part, prefixed
from service.io.state_file import FILE_NAME, StateWriter, load_state, set_aside
from service.worker.frame_subscriber import FrameSubscriber
from service.worker.worker import Worker


class SavedState:
    """Saves and restores the state of all consumers; `owner` is the hash of the estimator."""

    def __init__(
        self, worker: Worker, owner: str, consumers: Sequence[FrameConsumer], frame_subscriber: FrameSubscriber
    ) -> None:  # fmt: skip
        directory = worker.config.state_dir / worker.arm.name
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        self._settings, self._log = worker.arm.state, worker.log
        self._consumers, self._frame_subscriber = consumers, frame_subscriber
        self.writer = StateWriter(self.path, owner)
        self._failed = ""  # as logged last
        self.next_ns = 0  # when the next state is saved; 0 where a restart must not bring back the one before

    def resume(self) -> bool:
        """Restore the saved state; return False without one that can be used."""
        if not self.path.exists():
            return False
        if not self._settings.resume:
            self._log.info("state_ignored", path=str(self.path))
            return False
        try:
            state = load_state(self.path, self.writer.owner)
            position = int(state.pop("feed_epoch")), int(state.pop("feed_expected"))
            for consumer in sorted(self._consumers, key=lambda consumer: not consumer.required):
                self._restore(consumer, part(consumer.prefix, state))
        except (OSError, ValueError, TypeError, KeyError) as error:
            for consumer in self._consumers:
                consumer.reset()
            try:
                kept_as = str(set_aside(self.path))
            except OSError as problem:  # the arm does without it, and saving says what is wrong
                kept_as = f"cannot be renamed: {problem.strerror}"
            self._log.warning("state_set_aside", reason=str(error), kept_as=kept_as)
            return False
        self._frame_subscriber.resume(*position)
        self._log.info("state_resumed", path=str(self.path), source_epoch=position[0], next_seq=position[1])
        return True

    def _restore(self, consumer: FrameConsumer, own: dict[str, Any]) -> None:
        try:
            if own or consumer.required:
                consumer.restore(own)
        except (ValueError, TypeError) as error:
            if consumer.required:
                raise
            name, *joint = consumer.prefix.rstrip("_ ").split(" ", 1)
            self._log.warning(f"{name}_state_ignored", **({"joint": joint[0]} if joint else {}), reason=str(error))

    def save_if_due(self, now_ns: int) -> None:
        """Begin to save at the configured intervals; while a state is being written, at a later call."""
        if now_ns >= self.next_ns and self.writer.begin(self._content):
            self.next_ns = now_ns + int(self._settings.every_s * 1e9)
            self._log_failure()

    def save(self) -> None:
        """Save now; `writer.error` says why it could not be."""
        self.writer.save(self._content())
        self._log_failure()

    def _content(self) -> dict[str, Any]:
        epoch, expected = self._frame_subscriber.position
        content = {"feed_epoch": epoch, "feed_expected": expected}
        for consumer in self._consumers:
            content |= prefixed(consumer.prefix, consumer.state())
        return content

    def _log_failure(self) -> None:
        failed, self._failed = self._failed, self.writer.error
        if self._failed and self._failed != failed:
            self._log.error("state_not_saved", reason=self._failed)

    def close(self) -> None:
        """Finish writing."""
        self.writer.close()
