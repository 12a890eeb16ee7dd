"""Frames that the acquisition gathers for one message."""

from pathlib import Path

import pytest
import zmq

from drivers.files.recordings.recording import read_recording
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
