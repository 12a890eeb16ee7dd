"""What takes the part of a daemon: an arm with a turning and a sliding joint, on real sockets, in the wire format."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import zmq

from drivers.frame import JointFrame
from service.protocol.messages import (
    BodyMessage,
    Envelope,
    EstimateMessage,
    FrameMessage,
    Message,
    TorqueMessage,
    encode,
)
from tests.lab.closing import Closing

DEADLINE_S = 30.0
CYCLE_NS = 1_000_000
START_NS = 800_000_000_000_000_000
JOINTS = ("turn", "slide")
PARAMETERS = ("Ia1", "fv1", "m2")
UNITS = ("kg*m^2", "N*m*s/rad", "kg")
STATUS = ("estimated", "unestimated", "stale")
HASH = "0123abcd"


class Arm:
    """The messages of an arm, after each other; `epoch` is that of a start of both of its processes."""

    def __init__(self, name: str = "demo", epoch: int = 1, joints: Sequence[str] = JOINTS) -> None:
        self.name, self.epoch, self.joints = name, epoch, tuple(joints)
        self._n = len(self.joints)
        self._random = np.random.default_rng(epoch)

    def envelope(self, src: str, seq: int, t_ns: int = START_NS) -> Envelope:
        return Envelope(src, self.epoch, seq, t_ns, "dc", time.monotonic_ns())

    def body(self, kind: str, src: str, **body: Any) -> BodyMessage:
        return BodyMessage(self.name, kind, self.envelope(src, 0), body)

    def meta(self) -> list[Message]:
        """The names, of both processes."""
        units = ["rad", "m"] * self._n
        source = {"arm": self.name, "robot": "test", "joint_names": list(self.joints), "joint_units": units[: self._n]}
        source |= {"channels": ["q", "dq", "current", "tau"], "rate_hz": 1000.0, "source": "test", "lossless": False}
        named = {"joints": list(self.joints), "parameters": list(PARAMETERS), "units": list(UNITS), "hash": HASH}
        return [self.body("meta", "acquisition", **source), self.body("meta", "estimator", **source, **named)]

    def status(self) -> list[Message]:
        return [self.body("status", src, state="running") for src in ("acquisition", "estimator")]

    def frame(self, k: int, valid: Sequence[bool] | None = None) -> FrameMessage:
        """Frame `k` of 1 kHz."""
        t_ns = START_NS + k * CYCLE_NS
        frame = JointFrame(k, t_ns, time.monotonic_ns(), valid=None if valid is None else np.array(valid))
        frame.q, frame.dq, frame.current, frame.tau = self._random.normal(size=(4, self._n))
        return FrameMessage(self.name, self.envelope("acquisition", k, t_ns), frame)

    def torque(self, k: int) -> TorqueMessage:
        measured, predicted = self._random.normal(size=(2, self._n))
        envelope = self.envelope("estimator", k, START_NS + k * CYCLE_NS)
        return TorqueMessage(self.name, envelope, measured, predicted, measured - predicted)

    def estimate(self, k: int) -> EstimateMessage:
        return EstimateMessage(
            self.name,
            self.envelope("estimator", k, START_NS + k * CYCLE_NS),
            theta=self._random.normal(size=3), validated=np.array([0.5, np.nan, 2.0]),
            std=self._random.uniform(0.1, 1.0, size=3), status=STATUS, excited=np.array([True, False, False]),
            lam=np.full(self._n, 0.999), innovation=np.full(self._n, np.nan), sigma=np.full(self._n, 0.1),
            delay_s=0.05, frames=k, used=k, masked=0, lost=0, resets=0, hash=HASH,
        )  # fmt: skip

    def event(self, kind: str, text: str) -> BodyMessage:
        return self.body("event", "estimator", event=kind, text=text, data={"model": "m1"})


class Publisher(Closing):
    """The two sockets that a daemon publishes on; frames and what the acquisition says go out on the first.

    Of `ports`, 0 is any free one.
    """

    def __init__(self, ports: tuple[int, int] = (0, 0)) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        found = []
        for port in ports:
            socket = self._context.socket(zmq.XPUB)
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # each subscriber is to be heard, not only the first of a topic
            socket.setsockopt(zmq.SNDHWM, 0)  # nothing is lost here
            socket.bind(f"tcp://127.0.0.1:{port or '*'}")
            found.append(int(socket.getsockopt(zmq.LAST_ENDPOINT).rsplit(b":", 1)[1]))  # type: ignore[union-attr]
            self._sockets.append(socket)
        self.ports = found[0], found[1]

    @property
    def endpoints(self) -> tuple[str, str]:
        """Of frames and estimates."""
        return f"tcp://127.0.0.1:{self.ports[0]}", f"tcp://127.0.0.1:{self.ports[1]}"

    def await_subscriber(self) -> None:
        """Wait until one more has subscribed on both sockets."""
        for socket in self._sockets:
            assert socket.poll(int(DEADLINE_S * 1000)), "no subscriber"
            while socket.poll(0):
                socket.recv()

    def send(self, *messages: Message) -> None:
        for message in messages:
            here = self._sockets[0 if message.envelope.src == "acquisition" else 1]
            here.send_multipart(encode(message))

    def send_bytes(self, *parts: bytes) -> None:
        """Send a message of frames as it is."""
        self._sockets[0].send_multipart(list(parts))

    def close(self) -> None:
        self._context.destroy(linger=1000)
