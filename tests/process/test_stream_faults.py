"""Frames that are lost, repeated, out of order, late or damaged on their way to the estimator and the recorder."""

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from rt_core.online import OnlineEstimator
from service.config.arm_robot import online_settings
from service.config.load import Config
from service.protocol.messages import WireError, decode
from service.worker.worker import Runtime
from tests.lab.daemon.daemons import config, replayed
from tests.lab.daemon.lone_process import LoneProcess

RATE_HZ = 1000.0
FRAMES = 8000
BURST = range(5000, 5200)  # lost at once: more than is bridged
MESSAGES = int(os.environ.get("THETAD_FUZZ", "10000"))
BETWEEN = 50  # frames from one start of the source to the next: a number that was changed spoils no more than these
JOINT = ("carriage",)
COUNTS = ("received", "lost", "repeated", "invalid", "foreign")


def motion(k: int) -> tuple[float, float]:
    """Position and force of the axis at frame `k`: inertia, friction, offset, and noise."""
    t, omega = k / RATE_HZ, 4.0
    dq = omega * np.cos(omega * t)
    noise = 0.01 * np.sin(12345.678 * k)
    return float(np.sin(omega * t)), float(-3.0 * omega**2 * np.sin(omega * t) + 2.0 * dq + np.sign(dq) + 0.5 + noise)


def settings(path: Path) -> Config:
    arm = replayed(path / "none.mcap", recorder={"directory": str(path / "recorded")})
    return config(path, arm)


def damaged(parts: list[bytes], source: random.Random) -> tuple[str, list[bytes]]:
    """The message with something in it that no frame has; and as what it is to be counted."""
    topic, content = parts
    body = msgpack.unpackb(content)
    return source.choice((
        ("invalid", [topic, content[: source.randrange(len(content))]]),
        ("invalid", [topic, source.randbytes(80)]),
        ("invalid", [topic + b"/x", content]),
        ("foreign", [topic, msgpack.packb(body | {"v": 2})]),
        ("invalid", [topic, msgpack.packb(body | {"seq": str(body["seq"])})]),
        ("invalid", [topic, msgpack.packb(body | {"q": body["q"] * 2})]),
        ("invalid", [topic, content, b"one part more"]),
    ))  # fmt: skip


class Stream:
    """Sends frames with faults, drawn by a seed; `counts` is what is to be told of them.

    `taken` are the frames in the order in which they count, with their position and force.
    """

    def __init__(self, process: LoneProcess) -> None:
        self.process = process
        self.counts: Counter[str] = Counter()
        self.taken: list[tuple[int, float, float]] = []
        self._next = 0

    def deliver(self, k: int, q: float, tau: float) -> None:
        self.process.send(self.process.frame(k, round(1e9 * k / RATE_HZ), q=q, tau=tau))
        if k < self._next:  # it was taken for lost, or has been there
            self.counts["repeated"] += 1
            return
        self.counts["received"] += 1
        self.counts["lost"] += k - self._next
        self.counts["masked"] += not np.isfinite([q, tau]).all()
        self._next = k + 1
        self.taken.append((k, q, tau))

    def run(self) -> None:
        source = random.Random("stream")
        late: dict[int, list[int]] = {}  # frames by the one that they come after
        for k in range(FRAMES):
            q, tau = motion(k)
            fault = source.random() if 0 < k < FRAMES - 1 else 1.0
            if k in BURST or fault < 0.01:
                continue
            if fault < 0.02:
                late.setdefault(k + source.choice((1, 1, 2, 30)), []).append(k)
            elif fault < 0.03:
                kind, parts = damaged(self.process.frame(k, round(1e9 * k / RATE_HZ), q=q, tau=tau), source)
                self.process.send(parts)
                self.counts[kind] += 1
            elif fault < 0.04:
                bad = source.choice((np.nan, np.inf, -np.inf))
                self.deliver(k, *((bad, tau) if source.random() < 0.5 else (q, bad)))
            else:
                self.deliver(k, q, tau)
            if 0.04 < fault < 0.05:
                self.deliver(k, q, tau)
            for other in late.pop(k, ()):
                self.deliver(other, *motion(other))


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[LoneProcess]:
    with LoneProcess("estimator", settings(folder), folder / "log") as process:
        yield process.begin(RATE_HZ, JOINT)


def test_the_estimate_is_that_of_the_frames_that_count(process: LoneProcess, tmp_path: Path) -> None:
    """What is lost, late, repeated, damaged or no number is counted, and has not the least influence."""
    stream = Stream(process)
    stream.run()
    told = {key: stream.counts[key] for key in COUNTS}
    assert min(told.values()) > 5
    assert process.await_beat(lambda beat: beat["received"] == told["received"]).items() >= told.items()
    snapshot = process.request("snapshot")

    robot = load_robot("emps")
    alone = OnlineEstimator(robot.model, online_settings(settings(tmp_path).arm[0], robot, "test"), RATE_HZ)
    alone.restart_stream(0)
    for k, q, tau in stream.taken:
        alone.step(round(1e9 * k / RATE_HZ), k, np.array([q]), np.array([tau]))
    np.testing.assert_array_equal(snapshot["theta"], alone.theta)
    assert snapshot["masked"] == stream.counts["masked"] > 5
    assert snapshot["lost"] == stream.counts["lost"]
    assert snapshot["meta"]["parameters"] == ["fv1", "fc1", "off1", "m1"]
    np.testing.assert_allclose(snapshot["theta"], (2.0, 1.0, 0.5, 3.0), atol=0.1)


def mutated(parts: list[bytes], source: random.Random) -> list[bytes]:
    """Some bytes changed, cut out or put in, in the topic behind what is subscribed to, or in the map."""
    data = bytearray(parts[1])
    for _ in range(source.choice((1, 1, 1, 2, 5, 20))):
        place = source.randrange(len(data)) if data else 0
        how = source.randrange(4)
        if how == 0 and data:
            data[place] = source.randrange(256)
        elif how == 1 and data:
            data[place] ^= 1 << source.randrange(8)
        elif how == 2:
            del data[place : place + source.randrange(1, 9)]
        else:
            data[place:place] = source.randbytes(source.randrange(1, 9))
    if source.random() < 0.02:
        data = bytearray(source.randbytes(source.randrange(300)))
    kinds = (parts[0],) * 8 + (parts[0] + source.randbytes(2), parts[0].replace(b"frame", b"meta"))
    more = [source.randbytes(5)] if source.random() < 0.02 else []
    return [source.choice(kinds), bytes(data), *more]


def from_later(parts: list[bytes], epoch: int) -> bool:
    """Whether this is still a message, but of a later start of its source: all others would count as late then."""
    with contextlib.suppress(WireError):
        return decode(parts).envelope.epoch > epoch
    return False


def settled(process: LoneProcess) -> dict[str, Any]:
    """What it has counted when everything that was sent has been worked off."""
    before, now = {}, process.await_beat(lambda beat: True)
    while any(before.get(key) != now[key] for key in COUNTS):
        before, now = now, process.await_beat(lambda beat: True)
    return now


def test_frames_with_any_bytes_changed_do_not_end_the_estimator(process: LoneProcess) -> None:
    """What can still be read as a frame counts as one; and then frames of a later start are estimated from."""
    source = random.Random("mutations")
    before = process.request("snapshot")
    for k in range(MESSAGES):
        epoch, seq = 2 + k // BETWEEN, k % BETWEEN
        q, tau = motion(k)
        parts = mutated(process.frame(seq, 10**6 * k, epoch=epoch, q=q, tau=tau), source)
        if not from_later(parts, epoch):
            process.send(parts)
        if k % 1000 == 999:  # it has room for 20,000
            process.request("snapshot")
    counts = settled(process)
    assert counts["invalid"] > MESSAGES // 10
    for k in range(3000):
        q, tau = motion(k)
        process.send(process.frame(k, round(1e9 * k / RATE_HZ), epoch=counts["source_epoch"] + 1, q=q, tau=tau))
    process.await_beat(lambda beat: beat["received"] == counts["received"] + 3000)
    after = process.request("snapshot")
    assert np.isfinite(after["theta"]).all()
    assert after["used"] > before["used"]
    assert process.process.poll() is None


@pytest.mark.slow
def test_the_time_without_a_source_is_no_latency(process: LoneProcess) -> None:
    """A frame of before has renewed the estimate, and the first one after the outage has it published."""
    epoch = settled(process)["source_epoch"]
    with zmq.Context() as context, context.socket(zmq.SUB) as results:
        results.rcvtimeo = 20_000
        results.subscribe(f"{process.arm}/stats".encode())
        results.connect(Runtime(process._folder).results(process.arm, "estimator"))

        def slow() -> int:
            """Latencies above a second, by statistics that are made from now on."""
            while results.poll(0):
                results.recv()
            for _ in range(2):  # the first may have been on its way
                message = decode(results.recv_multipart())
            told = message.body["latency"]
            return sum(n for n, low in zip(told["counts"][1:], told["bounds_us"], strict=True) if low >= 1e6)

        before = slow()
        for lap, frames in enumerate((600, 610, 600), 1):  # of two updates one is published: one lap ends between
            time.sleep(1.2)
            for k in range(frames):
                q, tau = motion(k)
                process.send(process.frame(k, round(1e9 * k / RATE_HZ), epoch=epoch + lap, q=q, tau=tau))
            settled(process)
        assert slow() == before


def test_the_recorder_writes_each_frame_once_and_in_order(tmp_path: Path) -> None:
    began_ns = time.time_ns()
    with LoneProcess("recorder", settings(tmp_path), tmp_path / "log") as process:
        process.clock = "dc"
        stream = Stream(process.begin(RATE_HZ, JOINT))
        stream.run()
        told = {key: stream.counts[key] for key in COUNTS}
        assert process.await_beat(lambda beat: beat["received"] == told["received"]).items() >= told.items()
    (path,) = (tmp_path / "recorded").glob("*.mcap")
    recording = read_recording(path)
    np.testing.assert_array_equal(recording.seq, [k for k, _, _ in stream.taken])
    assert began_ns <= recording.unix_offset_ns + int(recording.t_ns[0]) <= time.time_ns()
    wanted = np.array([(q, tau) for _, q, tau in stream.taken])
    finite = np.isfinite(wanted).all(axis=1)
    found = np.stack([recording.channels[name][:, 0] for name in ("q", "tau")], axis=1)
    np.testing.assert_array_equal(found[finite], wanted[finite])
    np.testing.assert_array_equal(recording.valid[:, 0], finite)  # what is no number is not used later either
