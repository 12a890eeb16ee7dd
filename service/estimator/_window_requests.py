"""The verb `set_aside`: the latest frames are written to a window file, which a job identifies from."""

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from drivers.files.recordings.format import RecordingMeta
from service.estimator._encoder_monitor import EncoderMonitor
from service.estimator._frame_buffer import MIN_SHARE, FrameBuffer, save_request
from service.protocol.control import ControlError
from service.worker.frame_subscriber import FrameSubscriber
from service.worker.worker import Handler, Worker


class WindowRequests:
    """Handler of the verb `set_aside`; a thread writes, and `reply` answers."""

    def __init__(
        self, worker: Worker, frame_subscriber: FrameSubscriber, buffer: FrameBuffer, encoders: EncoderMonitor
    ) -> None:  # fmt: skip
        self._worker, self._frame_subscriber = worker, frame_subscriber
        self._buffer, self._encoders = buffer, encoders
        self._saves: list[tuple[int, Future[dict[str, Any]]]] = []  # windows being written, by request
        self._writer = ThreadPoolExecutor(1, "window")
        self.handlers: Mapping[str, Handler] = {"set_aside": self._on_request}

    def meta(self) -> RecordingMeta:
        """Describe the frames that are kept."""
        source, rate_hz = self._frame_subscriber.meta, self._buffer.rate_hz
        names, units = tuple(source["joint_names"]), tuple(source["joint_units"])
        return RecordingMeta(self._worker.arm.name, names, units, rate_hz, str(source["clock"]), str(source["source"]))

    def _on_request(self, args: dict[str, Any]) -> None:
        if self._encoders.stuck:
            raise ControlError(
                "failed", f"{self._encoders.invalid_reason}: no frame tells what a model can be identified from"
            )
        guided_s, seconds = 1e-9 * (self._buffer.latest_ns - self._buffer.unmasked_ns), args.get("seconds")
        if (
            self._frame_subscriber.guided
            and isinstance(seconds, (int, float))
            and guided_s > (1.0 - MIN_SHARE) * seconds > 0.0
        ):
            raise ControlError(
                "failed",
                f"the arm has been guided by hand for {guided_s:.1f} s, and a model is not identified from that: end "
                f"guiding, and wait for {seconds:g} s",
            )
        asked = save_request(args, self._buffer, self._worker.config.state_dir, self.meta())
        self._saves.append((self._worker.request_id, self._writer.submit(asked.write, self._buffer)))

    def reply(self) -> None:
        """Answer the requests whose window has been written."""
        for entry in [entry for entry in self._saves if entry[1].done()]:
            self._saves.remove(entry)
            id, written = entry
            try:
                self._worker.reply(id, written.result())
            except ControlError as error:
                self._worker.refuse(id, error)
            except (OSError, MemoryError) as error:
                self._worker.refuse(id, ControlError("failed", f"the frames cannot be saved: {error!r:.200}"))
            except CancelledError:
                self._worker.refuse(id, ControlError("unavailable", "the estimator is ending"))

    def close(self) -> None:
        """Finish the window that is being written, and refuse the others."""
        self._writer.shutdown(cancel_futures=True)
        self.reply()
