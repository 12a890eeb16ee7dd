"""Subscriber of an arm's frames: decodes what has arrived, and counts the lost ones."""

from collections.abc import Callable, Sequence
from typing import Any

import zmq

from drivers.frame import JointFrame
from service.io.sockets import readable
from service.protocol import messages
from service.worker.worker import FRAME_QUEUE, POLL_MS, Worker

LOG_NS = 1_000_000_000
BATCH = 256  # messages or frames after which a poll ends


def marker(role: str) -> bytes:
    """Return the topic that a consumer of this role subscribes to when it is ready for frames."""
    return b"@" + role.encode()


class FrameSubscriber:
    """Subscribes to what the acquisition of the worker's arm publishes.

    `on_frames` is called with successive frames, none missing between them, as many as have arrived; and, where the
    stream begins or starts again, with how many frames are known to be missing before them, else with None. Messages
    about the source come in order with the frames.
    """

    def __init__(self, worker: Worker, on_frames: Callable[[list[JointFrame], int | None], None]) -> None:
        self.received = self.lost = self.repeated = self.invalid = self.foreign = 0
        self.epoch = self.epochs = 0
        self.meta: dict[str, Any] = {}
        self.source = "unknown"  # last reported state of the acquisition, in order with its frames
        self.guided = False  # a hand moves the arm, in order with its frames
        self._meta_epoch = self._expected = 0
        self._fresh = True
        self._unlogged = self._log_after_ns = 0
        self._on_frames = on_frames
        self._frames: list[JointFrame] = []  # decoded, to be passed on
        self._restart: int | None = None  # of the first of them
        self._arm = worker.arm.name
        self._marker = marker(worker.role)
        self._log = worker.log
        self.socket = worker.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, FRAME_QUEUE // worker.arm.publish.block_frames)
        self.socket.setsockopt(zmq.MAXMSGSIZE, messages.MAX_MESSAGE)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        for kind in ("meta", "status"):
            self.socket.setsockopt(zmq.SUBSCRIBE, messages.topic(self._arm, kind))
        self.socket.connect(worker.runtime.frames(self._arm))

    def resume(self, epoch: int, expected: int) -> None:
        """Continue where a predecessor stopped, so that frames missed meanwhile count as lost."""
        self.epoch, self._expected = epoch, expected

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and next sequence number, for `resume`."""
        return self.epoch, self._expected

    def start(self) -> None:
        """Subscribe to the frames, then announce this to the acquisition."""
        self.socket.setsockopt(zmq.SUBSCRIBE, messages.topic(self._arm, "frame"))
        self.socket.setsockopt(zmq.SUBSCRIBE, self._marker)

    @property
    def ended(self) -> bool:
        """Whether the source has ended and all its frames have been processed."""
        return self.source == "ended" and self._meta_epoch >= self.epoch

    def poll(self, timeout_ms: int = POLL_MS) -> int:
        """Wait for messages and process about `BATCH` frames at most; return their number."""
        if not readable(self.socket) and not self.socket.poll(timeout_ms):
            return 0
        count = 0
        while count == 0 or (count < BATCH and readable(self.socket)):
            for parts in messages.messages_of(self.socket.recv_multipart()):
                self._receive(parts)
                count += 1
        self._pass_on()
        return count

    def _pass_on(self) -> None:
        if self._frames:
            frames, self._frames = self._frames, []
            self._on_frames(frames, self._restart)
            self._restart = None

    def _receive(self, parts: Sequence[bytes]) -> None:
        try:
            message = messages.decode(parts)
        except messages.WireVersionError as error:
            self.foreign += 1
            self._log_refused(error, self.foreign)
        except messages.WireError as error:
            self.invalid += 1
            self._log_refused(error, self.invalid)
        else:
            if isinstance(message, messages.FrameMessage):
                self._frame(message)
            elif isinstance(message, messages.BodyMessage):
                self._pass_on()
                self._body(message)

    def _log_refused(self, error: messages.WireError, count: int) -> None:
        if count & (count - 1) == 0:  # 1, 2, 4, 8 ...: limits the log under a flood of bad messages
            self._log.warning("message_refused", reason=str(error), count=count)

    def _frame(self, message: messages.FrameMessage) -> None:
        epoch, seq = message.envelope.epoch, message.envelope.seq
        gap = 0
        if epoch != self.epoch:
            if epoch < self.epoch:
                self.repeated += 1
                return
            self._pass_on()
            if self.epoch:
                self._log.info("source_restarted", source_epoch=epoch)
            self.epoch = epoch
            self.epochs += 1
            restarted = True
        elif seq < self._expected:
            self.repeated += 1
            return
        else:
            restarted = self._fresh
            gap = seq - self._expected
            if gap:
                self._pass_on()
                self.lost += gap
                self._unlogged += gap
        self._fresh = False
        self._expected = seq + 1
        self.received += 1
        if restarted:
            self._restart = gap
        self._frames.append(message.frame)

    def _body(self, message: messages.BodyMessage) -> None:
        self._meta_epoch = max(self._meta_epoch, message.envelope.epoch)
        if message.envelope.epoch < self._meta_epoch:
            return
        if message.kind == "meta":
            self.meta = message.body | {"clock": message.envelope.clock}
        elif message.kind == "status":
            self.source = str(message.body.get("state", "unknown"))
            guiding = (message.body.get("safety") or {}).get("guiding") or {}
            self.guided = guiding.get("outcome") in ("guiding", "stopping")

    def log_losses(self, now_ns: int) -> None:
        """Log what was lost since the last time, at most once a second."""
        if self._unlogged and now_ns >= self._log_after_ns:
            self._log.warning("frames_lost", count=self._unlogged, total=self.lost)
            self._unlogged = 0
            self._log_after_ns = now_ns + LOG_NS

    def wait_for_meta(self, worker: Worker) -> dict[str, Any]:
        """Wait for the description of the source; return an empty map if the worker is to stop first."""
        while not self.meta and not worker.stopping:
            self.poll()
        return self.meta

    def counts(self) -> dict[str, Any]:
        """Return the counters, for heartbeats and status messages."""
        return {
            "source": self.source, "source_epoch": self.epoch, "received": self.received, "lost": self.lost,
            "repeated": self.repeated, "invalid": self.invalid, "foreign": self.foreign, "epochs": self.epochs,
        }  # fmt: skip
