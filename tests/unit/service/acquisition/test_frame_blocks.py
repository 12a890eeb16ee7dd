"""Frames that the acquisition gathers for one message."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from drivers.driver import DriverError, DriverTimeoutError
from drivers.files.recordings.recording import read_recording
from drivers.frame import JointFrame
from drivers.replay import ReplayDriver
from service.acquisition.process import Acquisition
from service.protocol.messages import decode, messages_of
from service.worker.worker import Runtime, Worker
from tests.lab.daemon.daemons import config, make_recording, replayed


@pytest.mark.parametrize(
    ("block_ms", "rate_hz", "sizes"),
    [(5.0, 1000.0, [5, 5, 3, 1, 5, 5]), (5.0, 400.0, [2] * 6 + [1, 1] + [2] * 5), (0.0, 1000.0, [1] * 24)],
)
def test_a_block_ends_with_its_time_and_before_other_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_ms: float, rate_hz: float, sizes: list[int]
) -> None:
    recording = make_recording(tmp_path / "motion.mcap", rate_hz=rate_hz)
    settings = config(tmp_path, replayed(recording, publish={"block_ms": block_ms}))
    Runtime(tmp_path).config.write_text(settings.model_dump_json(), encoding="utf-8")
    monkeypatch.setattr("service.worker.worker.configure", lambda level: None)  # of all tests of this process
    worker = Worker("acquisition", "axis", tmp_path)
    acquisition = Acquisition(worker)
    listener = worker.context.socket(zmq.SUB)
    try:
        listener.subscribe(b"axis/frame")
        listener.connect(Runtime(tmp_path).frames("axis"))
        assert acquisition.socket.poll(10_000)
        got, seqs = [], []
        for k, frame in zip(range(24), read_recording(recording).frames(), strict=False):
            frame.t_host_ns = frame.t_bus_ns + (1 if k % 2 else -1) * round(1e5)  # the machine is late now and then
            acquisition._publish_frame(frame)
            if k in (12, 13):
                acquisition._report(0)  # which others of the stream's messages come with
        acquisition._send_block()
        while sum(got) < 24:
            assert listener.poll(10_000)
            parts = listener.recv_multipart()
            got.append(len(parts) - 1)
            seqs += [decode(one).envelope.seq for one in messages_of(parts)]
        assert got == sizes
        assert seqs == list(range(24))
        assert acquisition.frames == 24
    finally:
        acquisition.close()
        worker.context.destroy(linger=0)


class _Lots(ReplayDriver):
    """Delivers 4 frames at once and pauses for 40 ms; fails after 10."""

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        self.count = getattr(self, "count", 0)
        if self.count == 10:
            raise DriverError("it failed")
        if self.count and self.count % 4 == 0 and time.monotonic() < self.next_s:
            if timeout_s < self.next_s - time.monotonic():
                time.sleep(timeout_s)
                raise DriverTimeoutError("none yet")
            time.sleep(max(self.next_s - time.monotonic(), 0.0))
        if self.count % 4 == 0:
            self.next_s = time.monotonic() + 0.04
        self.count += 1
        frame = super().read(timeout_s)
        frame.t_host_ns = time.monotonic_ns()
        return frame


def test_frames_wait_for_no_pause_and_are_not_lost_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = make_recording(tmp_path / "motion.mcap", rate_hz=1000.0)
    settings = config(tmp_path, replayed(recording, publish={"block_ms": 5.0}))
    Runtime(tmp_path).config.write_text(settings.model_dump_json(), encoding="utf-8")
    monkeypatch.setattr("service.worker.worker.configure", lambda level: None)
    monkeypatch.setattr("service.acquisition.process.make_driver", lambda arm, model: _Lots(recording, speed="max"))
    worker = Worker("acquisition", "axis", tmp_path)
    acquisition = Acquisition(worker)
    acquisition.state, acquisition.info = "running", replace(acquisition.info, lossless=False)
    listener = worker.context.socket(zmq.SUB)
    try:
        listener.subscribe(b"axis/frame")
        listener.connect(Runtime(tmp_path).frames("axis"))
        assert acquisition.socket.poll(10_000)
        with pytest.raises(DriverError, match="it failed"):
            acquisition.run()
        acquisition.close()
        got: list[list[int]] = []
        while sum(map(len, got)) < 10:
            assert listener.poll(10_000)
            got.append([decode(one).envelope.seq for one in messages_of(listener.recv_multipart())])
        assert [seq for seqs in got for seq in seqs] == list(range(10))
        assert {3, 7, 9} <= {seqs[-1] for seqs in got}  # none waits for the next four
        assert acquisition.timeouts == 0
    finally:
        worker.context.destroy(linger=0)
