"""The recorder process of one arm: frames into MCAP files.

Every start makes a new file, and none is overwritten; so does a restart of the source, because its clock may start
again, and a file that has become long, because an MCAP writer keeps its index in memory.
"""

import gc
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import zmq

from drivers.files.recordings.format import UNIX_OFFSET
from drivers.files.recordings.recording import RecordingError, RecordingExistsError, RecordingMeta, RecordingWriter
from drivers.frame import JointFrame
from service.config.arm_tables import RecorderConfig
from service.protocol.control import ControlError
from service.protocol.messages import BodyMessage, Envelope, encode
from service.worker.frame_subscriber import BATCH, FrameSubscriber
from service.worker.worker import Worker

TICK_NS = 50_000_000
REPORT_NS = 1_000_000_000
PAUSE_S = 0.02  # frames gather meanwhile: a process that wakes for each of them delays urgent ones
MAX_OWNER = 100
FLUSH_NS = 500_000_000  # longest time that a chunk stays open when the source pauses


class Recorder:
    """Writes one arm's frames while recording is on."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.arm = worker.arm
        self.settings = self.arm.recorder or RecorderConfig()
        self.directory = worker.config.recording_dir(self.arm)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"{self.directory}: cannot be made: {error.strerror}") from error
        self.frame_subscriber = FrameSubscriber(worker, self._on_frames)
        self.frame_subscriber.wait_for_meta(worker)
        self.recording = self.settings.enabled
        self.writer: RecordingWriter | None = None
        self.path = ""
        self.owner = ""  # name of the client that has switched recording on
        self.files = 0
        self.written = 0
        self._bytes = 0  # of files that are closed
        self.error = ""
        self._longest_ns = round(self.settings.max_minutes * 60e9)
        self._begin_ns = 0  # of the file being written, by the frames' clock
        self._ahead_ns: list[int] = []  # least CLOCK_MONOTONIC at arrival minus the frames' clock, of the last seconds
        self._lost_before = 0
        self._seq = 0
        self._next_tick_ns = self._next_report_ns = self._flush_ns = 0
        self._flushed = 0
        self.socket = worker.context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.bind(worker.runtime.results(self.arm.name, "recorder"))

    def run(self) -> None:
        """Record until stopped."""
        self.frame_subscriber.start()
        self.worker.ready(directory=str(self.directory))
        gc.collect()
        gc.freeze()
        while not self.worker.stopping:
            if self.frame_subscriber.poll() < BATCH:
                time.sleep(PAUSE_S)
            now_ns = time.monotonic_ns()
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)

    def _on_frames(self, frames: Sequence[JointFrame], restart: int | None) -> None:
        for frame in frames:
            self._on_frame(frame, restart)
            restart = None

    def _on_frame(self, frame: JointFrame, restart: int | None) -> None:
        t_ns = frame.t_bus_ns
        if restart is not None or not self._ahead_ns:
            self._ahead_ns = [frame.t_host_ns - t_ns]
        self._ahead_ns[-1] = min(self._ahead_ns[-1], frame.t_host_ns - t_ns)
        if not self.recording:
            return
        if restart is not None or abs(t_ns - self._begin_ns) >= self._longest_ns:
            self._close()
        try:
            if self.writer is None:
                self.writer = self._open(frame)
                self._begin_ns = t_ns
            self.writer.write(frame)
        except RecordingError as error:
            self._fail(error)
            return
        self.written += 1

    def _fail(self, error: RecordingError) -> None:
        """Keep the reason and stop recording: a full disk must not end the process."""
        self.error = str(error)
        self.recording = False
        self.worker.log.error("recording_failed", reason=self.error)
        self._close()

    def _open(self, frame: JointFrame) -> RecordingWriter:
        source = self.frame_subscriber.meta
        offset: dict[str, str] = {}
        if source["clock"] in ("dc", "plc", "monotonic"):  # others have a pace of their own
            # The frame that was on its way for the least time tells it.
            offset[UNIX_OFFSET] = str(min(self._ahead_ns) + time.time_ns() - time.monotonic_ns())
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        meta = RecordingMeta(
            robot=self.arm.name, joint_names=tuple(source["joint_names"]), units=tuple(source["joint_units"]),
            rate_hz=float(source["rate_hz"]), clock=str(source["clock"]), source=str(source["source"]),
            extra={
                "model": str(source["robot"]), "epoch": str(self.frame_subscriber.epoch),
                "first_seq": str(frame.seq), "part": str(self.files), **offset,
            },
        )  # fmt: skip
        self._lost_before = self.frame_subscriber.lost
        for attempt in range(1000):
            path = self.directory / f"{self.arm.name}-{stamp}{f'-{attempt}' if attempt else ''}.mcap"
            try:
                writer = RecordingWriter(path, meta, chunk_bytes=self.settings.chunk_bytes)
            except RecordingExistsError:
                continue
            self.files += 1
            self.path = str(path)
            self.worker.log.info("recording_started", path=self.path)
            return writer
        raise RecordingExistsError(f"{self.directory}: a thousand recordings of {stamp} are there already")

    def _close(self) -> None:
        if self.writer is None:
            return
        writer, self.writer = self.writer, None
        try:
            writer.close()
        except RecordingError as error:
            self.error = str(error)
            self.worker.log.error("recording_failed", reason=self.error)
        self._bytes += writer.size
        lost = self.frame_subscriber.lost - self._lost_before
        self.worker.log.info("recording_closed", path=str(writer.path), frames=writer.frames, lost=lost)

    def _tick(self, now_ns: int) -> None:
        self._next_tick_ns = now_ns + TICK_NS
        self.frame_subscriber.log_losses(now_ns)
        if self.writer is not None and now_ns >= self._flush_ns:
            self._flush_ns = now_ns + FLUSH_NS
            if self.frame_subscriber.ended:
                self._close()
            elif self.written == self._flushed:
                self._flush()
            self._flushed = self.written
        self.worker.serve({"record": self._on_record})
        if self.worker.heartbeat_due(now_ns):
            self.worker.heartbeat(now_ns, self._status())
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + REPORT_NS
            self._ahead_ns = [*self._ahead_ns[-1:], 1 << 63]
            envelope = Envelope("recorder", self.worker.epoch, self._seq, time.time_ns(), "unix", now_ns)
            self._seq += 1
            self.socket.send_multipart(
                encode(BodyMessage(self.arm.name, "status", envelope, self._status())), zmq.NOBLOCK
            )

    def _flush(self) -> None:
        if self.writer is not None:
            try:
                self.writer.flush()
            except RecordingError as error:
                self._fail(error)

    def _status(self) -> dict[str, Any]:
        state = "recording" if self.recording and self.writer is not None else "on" if self.recording else "off"
        if self.frame_subscriber.ended and self.writer is None:
            state = "drained"
        return {
            "state": state, "path": self.path, "owner": self.owner, "files": self.files, "written": self.written,
            "bytes": self._bytes + (0 if self.writer is None else self.writer.size), "error": self.error,
            **self.frame_subscriber.counts(),
        }  # fmt: skip

    def _on_record(self, args: dict[str, Any]) -> dict[str, Any]:
        action, owner = args.get("action"), args.get("owner", "")
        if action not in ("start", "stop"):
            raise ControlError("bad_argument", f"record: action {str(action)[:40]!r}: use start or stop")
        if type(owner) is not str or len(owner) > MAX_OWNER:
            raise ControlError("bad_argument", f"record: owner: expected a text of at most {MAX_OWNER} characters")
        if action == "start":
            self.recording = True
            self.owner, self.error = owner, ""
            if self.writer is None:
                self.path = ""  # the next frame begins a new file
        else:
            while self.frame_subscriber.poll(0) >= BATCH:  # frames that have arrived by now belong to it
                pass
            self.recording = False
            self.owner = ""
            self._close()
        return {"arm": args["arm"], "recording": self.recording, "path": self.path, "directory": str(self.directory)}

    def close(self) -> None:
        """Close the file, with its index."""
        self._close()


def main(worker: Worker) -> None:
    """Run the recorder of the worker's arm."""
    recorder = Recorder(worker)
    try:
        recorder.run()
    finally:
        recorder.close()
