"""Threads of the gateway between real sockets: what they pass on, and that the mirror listens only for somebody."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import zmq

from service.gateway.process import Forwarder, FrameForwarder, ThrottledForwarder
from service.worker.worker import FRAME_QUEUE

DEADLINE_MS = 60_000
FRAMES = 1000
MIRROR = partial(ThrottledForwarder, rate_hz=2.0)


class Bench:
    """A source, the mirror at a slow rate or another forwarder, and a plotter."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], folder: Path,
        make: Callable[..., Forwarder] = MIRROR,
    ) -> None:  # fmt: skip
        source = f"ipc://{folder / 's'}"
        self.source = context.socket(zmq.XPUB)
        self.source.setsockopt(zmq.SNDHWM, 0)
        self.source.bind(source)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.mirror = make("mirror", 0, [source])
        self.mirror.open(self.context, "127.0.0.1", FRAME_QUEUE, None)
        self.plotter = context.socket(zmq.SUB)
        self.plotter.setsockopt(zmq.RCVHWM, 0)
        self.plotter.subscribe(b"")
        self.thread = threading.Thread(target=self.mirror.run, name="mirror")
        self.thread.start()

    def told(self) -> bytes:
        """What the mirror subscribes to, or takes back, next."""
        assert self.source.poll(DEADLINE_MS)
        return self.source.recv()

    def received(self) -> list[bytes]:
        assert self.plotter.poll(DEADLINE_MS)
        return self.plotter.recv_multipart()

    def look(self) -> None:
        """Connect the plotter, and wait until the mirror has heard of it."""
        self.plotter.connect(f"tcp://127.0.0.1:{self.mirror.port}")
        while not self.mirror.connections():
            assert self.mirror.monitor.poll(DEADLINE_MS)

    def close(self) -> None:
        self.mirror.stop_counting()
        self.context.term()
        self.thread.join()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with zmq.Context() as context:
        bench = Bench(context, tmp_path)
        try:
            yield bench
        finally:
            bench.close()
            context.destroy(linger=0)


def test_it_subscribes_only_while_somebody_is_connected(bench: Bench) -> None:
    assert bench.told() == b"\x01"  # as it was opened
    assert bench.told() == b"\x00"
    bench.look()
    assert bench.told() == b"\x01"
    bench.plotter.close()
    while bench.mirror.connections():
        assert bench.mirror.monitor.poll(DEADLINE_MS)
    assert bench.told() == b"\x00"


def test_the_newest_frame_of_each_arm_and_everything_that_comes_seldom(bench: Bench) -> None:
    bench.look()
    while bench.told() != b"\x01":
        pass
    sent = [[b"a/meta", b"1"], [b"a/status", b"2"], [b"a/status", b"3"], [b"b/event", b"4"], [b"a/elastic", b"5"]]
    heard: list[list[bytes]] = []
    while not heard:  # until the plotter's subscription has arrived as well
        bench.source.send_multipart([b"a/stats", b"first"])
        if bench.plotter.poll(100):
            heard.append(bench.plotter.recv_multipart())
    for k in range(FRAMES):
        for topic in (b"a/frame", b"a/torque"):
            bench.source.send_multipart([topic, b"%d" % k])
        if k % 2:
            bench.source.send_multipart([b"b/frames", b"%d" % (k - 1), b"%d" % k])
    for parts in sent:
        bench.source.send_multipart(parts)
    last = {(topic, b"%d" % (FRAMES - 1)) for topic in (b"a/frame", b"b/frame", b"a/torque")}
    got: list[tuple[bytes, ...]] = []
    while not last <= set(got) or len([each for each in got if each[0][2:] not in (b"frame", b"torque")]) < len(sent):
        parts = bench.received()
        if parts[0] != b"a/stats":
            got.append(tuple(parts))
    assert [list(each) for each in got if each[0][2:] not in (b"frame", b"torque")] == sent
    for topic in (b"a/frame", b"b/frame", b"a/torque"):
        numbers = [int(each[1]) for each in got if each[0] == topic]
        assert numbers == sorted(set(numbers))
        assert len(numbers) < FRAMES / 10


def test_each_frame_of_a_block_is_published_by_itself(tmp_path: Path) -> None:
    with zmq.Context() as context:
        bench = Bench(context, tmp_path, FrameForwarder)
        try:
            bench.look()
            while not bench.plotter.poll(100):  # until its subscription has arrived
                bench.source.send_multipart([b"a/meta", b"0"])
            for parts in ([b"a/frames", b"1", b"2"], [b"b/frame", b"3"], [b"a/status", b"4"]):
                bench.source.send_multipart(parts)
            got = [bench.received()]
            while got[-1] != [b"a/status", b"4"]:
                got.append(bench.received())
            told = [parts for parts in got if parts != [b"a/meta", b"0"]]
            assert told == [[b"a/frame", b"1"], [b"a/frame", b"2"], [b"b/frame", b"3"], [b"a/status", b"4"]]
        finally:
            bench.close()
            context.destroy(linger=0)
