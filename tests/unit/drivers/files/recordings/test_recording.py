"""Recordings: round trip, reading by the mcap package, refusals."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mcap.reader import make_reader
from mcap.writer import Writer

from drivers.files.recordings.recording import (
    RecordingError,
    RecordingExistsError,
    RecordingFormatError,
    RecordingMeta,
    RecordingNotFoundError,
    RecordingWriter,
    Span,
    SpanError,
    read_recording,
    recording_info,
    write_recording,
)
from drivers.frame import CHANNELS, JointFrame
from tests.lab.recordings.frames import META, START_NS, frames, write

IN_PLACE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_reads_what_was_written(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path / "r.mcap", 1203))
    source = list(frames(1203))
    assert recording.samples == 1203
    assert recording.n == 2
    assert recording.robot == "arm"
    assert recording.meta == META
    assert tuple(recording.channels) == ("q", "dq", "tau")
    for name in recording.channels:
        np.testing.assert_array_equal(recording.channels[name], [getattr(f, name) for f in source])
    np.testing.assert_array_equal(recording.t_ns, [f.t_bus_ns for f in source])
    np.testing.assert_allclose(recording.t, np.arange(1203) * 1e-3, atol=1e-12)
    np.testing.assert_array_equal(recording.status_word, [f.status_word for f in source])
    assert recording.valid is None
    assert recording.duration_s == pytest.approx(1.202)


@IN_PLACE
@given(
    data=st.data(),
    shape=st.tuples(st.integers(2, 30), st.integers(1, 9)),
    present=st.sets(st.sampled_from(CHANNELS), min_size=1),
)
def test_any_values_round_trip(tmp_path: Path, data: st.DataObject, shape: tuple[int, int], present: set[str]) -> None:
    n = shape[1]
    values = {c: data.draw(hnp.arrays(np.float64, shape), label=c) for c in CHANNELS if c in present}
    meta = RecordingMeta("r", tuple(f"j{i}" for i in range(n)), ("rad",) * n, 100.0)
    path = tmp_path / "any.mcap"
    path.unlink(missing_ok=True)
    with RecordingWriter(path, meta, chunk_s=0.05) as writer:
        for k in range(shape[0]):
            writer.write(JointFrame(k, k * 10_000_000, 0, **{c: a[k] for c, a in values.items()}))
    recording = read_recording(path)
    usable = np.ones(shape, dtype=bool)
    for name, array in values.items():
        expected = np.where(np.isfinite(array), array, np.nan)
        if name in recording.channels:
            np.testing.assert_array_equal(recording.channels[name], expected)
        else:
            assert np.isnan(expected).all()
        if name not in ("temperature", "setpoint"):
            usable &= np.isfinite(array)
    np.testing.assert_array_equal(np.ones(shape, bool) if recording.valid is None else recording.valid, usable)


def test_a_slow_channel_does_not_mask_the_others(tmp_path: Path) -> None:
    path = tmp_path / "r.mcap"
    with RecordingWriter(path, META) as writer:
        for frame in frames(20):
            if frame.seq % 5 == 0:
                frame.temperature = np.array([30.0, 31.0])
            writer.write(frame)
    recording = read_recording(path)
    assert recording.valid is None
    np.testing.assert_array_equal(np.isfinite(recording.channels["temperature"][:, 0]), np.arange(20) % 5 == 0)
    assert recording.frame(1).temperature is None
    assert recording.frame(5).temperature is not None


def test_valid_of_the_frame_is_kept(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "a.mcap", META) as writer:
        for frame in frames(20):
            frame.valid = np.array([True, frame.seq != 7]) if frame.seq % 2 else None
            writer.write(frame)
    recording = read_recording(tmp_path / "a.mcap")
    np.testing.assert_array_equal(np.argwhere(~recording.valid), [[7, 1]])
    write_recording(tmp_path / "b.mcap", recording)  # from memory
    again = read_recording(tmp_path / "b.mcap")
    np.testing.assert_array_equal(again.valid, recording.valid)
    assert again.sha256 == recording.sha256


def test_the_mcap_package_reads_it(tmp_path: Path) -> None:
    path = write(tmp_path / "r.mcap", 1000)
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary.statistics.message_count == 1000
        (channel,) = summary.channels.values()
        assert (channel.topic, channel.message_encoding) == ("arm/frame", "json")
        assert channel.schema_id != 0
        schema = summary.schemas[channel.schema_id]
        assert schema.encoding == "jsonschema"
        described = json.loads(schema.data)
        assert described["type"] == "object"
        # Foxglove's schema parser takes single types only.
        for entry in described["properties"].values():
            assert isinstance(entry["type"], str)
            assert entry["type"] != "array" or isinstance(entry["items"]["type"], str)
        last = -1
        for _, _, message in reader.iter_messages():
            content = json.loads(message.data)
            assert set(content) <= set(described["properties"])
            assert set(described["required"]) <= set(content)
            assert message.log_time == message.publish_time == content["t_ns"] > last
            assert content["t"] == pytest.approx((content["t_ns"] - START_NS) * 1e-9, abs=1e-9)
            assert message.sequence == content["seq"]
            last = message.log_time
        (metadata,) = reader.iter_metadata()
        assert metadata.metadata["robot"] == "arm"
        assert json.loads(metadata.metadata["units"]) == ["rad", "m"]


def test_chunks_are_small_by_time_and_by_size(tmp_path: Path) -> None:
    def chunks(path: Path) -> list[tuple[int, int]]:
        with path.open("rb") as file:
            summary = make_reader(file).get_summary()
        return [(c.message_end_time - c.message_start_time, c.uncompressed_size) for c in summary.chunk_indexes]

    by_time = chunks(write(tmp_path / "t.mcap", 1000, chunk_s=0.1))
    assert len(by_time) == 10
    assert max(span for span, _ in by_time) <= 100_000_000
    with RecordingWriter(tmp_path / "s.mcap", META, chunk_s=100.0, chunk_bytes=10_000) as writer:
        for frame in frames(500):
            writer.write(frame)
    by_size = chunks(tmp_path / "s.mcap")
    assert len(by_size) > 5
    assert max(size for _, size in by_size) < 40_000


def test_hash_is_of_the_content(tmp_path: Path) -> None:
    first = read_recording(write(tmp_path / "a.mcap", 400, chunk_s=0.5))
    second = read_recording(write(tmp_path / "b.mcap", 400, chunk_s=0.03))
    assert (tmp_path / "a.mcap").read_bytes() != (tmp_path / "b.mcap").read_bytes()
    assert first.sha256 == second.sha256
    write_recording(tmp_path / "c.mcap", first)
    assert read_recording(tmp_path / "c.mcap").sha256 == first.sha256
    tau = first.channels["tau"].copy()
    tau[17, 1] = np.nextafter(tau[17, 1], np.inf)
    assert replace(first, channels={**first.channels, "tau": tau}).sha256 != first.sha256
    assert replace(first, meta=replace(META, robot="other")).sha256 != first.sha256
    assert first.span(Span.parse("0:0.5")).sha256 != first.sha256


def test_span_of_a_recording(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path / "r.mcap", 1001))
    first, last = recording.span(Span.parse("0:0.6")), recording.span(Span.parse("0.6:1"))
    assert first.samples + last.samples == 1001
    assert last.t[0] == pytest.approx(0.6)
    assert last.t[-1] == pytest.approx(1.0)
    part = read_recording(tmp_path / "r.mcap", Span.parse("0.1s:0.2s"))
    assert part.samples == 100
    np.testing.assert_array_equal(part.channels["q"], recording.channels["q"][100:200])
    assert recording.span(None) is recording
    with pytest.raises(SpanError, match="samples"):
        recording.span(Span.parse("0.1s:0.1005s"))


def test_info(tmp_path: Path) -> None:
    path = tmp_path / "r.mcap"
    with RecordingWriter(path, META) as writer:
        for frame in frames(1000):
            if frame.seq not in (10, 11, 500):
                writer.write(frame)
    info = recording_info(path)
    assert (info.frames, info.lost, info.gaps, info.restarts) == (997, 3, 2, 0)
    assert info.complete
    assert info.channels == ("q", "dq", "tau")
    assert info.step_median_s == pytest.approx(1e-3)
    assert info.step_max_s == pytest.approx(3e-3)
    assert info.robots == ("arm",)


# --- refusals


def test_never_overwrites(tmp_path: Path) -> None:
    path = write(tmp_path / "r.mcap", 10)
    before = path.read_bytes()
    with pytest.raises(RecordingExistsError, match="already there"):
        RecordingWriter(path, META)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [({"q": np.zeros(3)}, "q has 3 values for 2 joints"), ({"valid": np.ones(1, bool)}, "valid has 1"),
     ({"t_bus_ns": -1}, "negative")],
)  # fmt: skip
def test_frames_that_do_not_fit(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with RecordingWriter(tmp_path / "r.mcap", META) as writer:
        frame = next(frames(1))
        with pytest.raises(RecordingFormatError, match=message):
            writer.write(replace(frame, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"robot": "a/b"}, "robot name"), ({"joint_names": ("a", "a")}, "repeat"), ({"units": ("rad", "deg")}, "units"),
     ({"rate_hz": float("nan")}, "rate")],
)  # fmt: skip
def test_metadata_that_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(RecordingFormatError, match=message):
        replace(META, **change)


_FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
sys.path.insert(0, sys.argv[2])
from drivers.files.recordings.recording import RecordingWriteError, RecordingWriter
from tests.lab.recordings.frames import META, frames
writer = RecordingWriter(sys.argv[1], META, chunk_s=0.05)
try:
    for frame in frames(5000):
        writer.write(frame)
except RecordingWriteError as error:
    assert isinstance(error, OSError)
    writer.close()
    print(error)
"""


def test_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "r.mcap"
    root = Path(__file__).parents[5]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FULL_DISK, str(path), str(root)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "cannot be written: File too large" in result.stdout
    assert result.stderr == ""
    assert path.stat().st_size <= 60_000


def foreign(path: Path, robots: tuple[str, ...] = ("arm",), **changes: object) -> Path:
    """A file written by another program with the mcap package."""
    encoding = str(changes.get("encoding", "json"))
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for robot in robots:
            meta = replace(META, robot=robot).to_metadata()
            meta.update(changes.get("meta", {}))  # type: ignore[call-overload]
            for key in changes.get("without", ()):  # type: ignore[attr-defined]
                del meta[key]
            if changes.get("metadata", True):
                writer.add_metadata("thetad.recording", meta)
            schema = writer.register_schema("s", "jsonschema", b"{}")
            channel = writer.register_channel(robot + str(changes.get("suffix", "/frame")), encoding, schema)
            for k in range(int(str(changes.get("count", 5)))):
                content: dict[str, object] = {"t": k, "t_ns": k * 1000, "seq": k, "q": [float(k), 1.0]}
                content.update(changes.get("content", {}))  # type: ignore[call-overload]
                data = changes.get("data", json.dumps(content).encode())
                writer.add_message(channel, k * 1000, data, k * 1000, k)
        writer.finish()
    return path


def test_several_robots(tmp_path: Path) -> None:
    path = foreign(tmp_path / "r.mcap", ("left", "right"))
    with pytest.raises(RecordingFormatError, match=r"several robots \(left, right\)"):
        read_recording(path)
    assert read_recording(path, robot="right").robot == "right"
    assert read_recording(path, robot="right").samples == 5
    assert recording_info(path, robot="left").robots == ("left", "right")
    with pytest.raises(RecordingFormatError, match="no robot 'middle'"):
        read_recording(path, robot="middle")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta": {"format": "2"}}, "version '2'; this thetad reads version 1"),
        ({"without": ["joints"]}, "lacks 'joints'"), ({"meta": {"joints": "[1, 2]"}}, "not a list of strings"),
        ({"meta": {"rate_hz": "-5"}}, "rate"), ({"metadata": False}, "no metadata record"),
        ({"suffix": "/other"}, "without a channel"), ({"encoding": "protobuf"}, "encoded as 'protobuf'"),
        ({"count": 0}, "without a channel|no complete frame"), ({"count": 1}, "single frame"),
        ({"data": b"\xff\x00"}, "not as its schema says"), ({"data": b"{}"}, "lacks 't_ns'"),
        ({"content": {"q": [1.0]}}, "does not have 2 numbers"),
        ({"content": {"t_ns": 10**30}}, "not as its schema says"),
        ({"content": {"t_ns": 7}}, "time stamps do not increase at 4 of 5 frames, first at frame 1"),
    ],
)  # fmt: skip
def test_files_that_are_no_recording(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = foreign(tmp_path / "r.mcap", **changes)  # type: ignore[arg-type]
    with pytest.raises(RecordingFormatError, match=message) as caught:
        read_recording(path)
    assert str(path) in str(caught.value)


def test_shuffled_time_stamps(tmp_path: Path) -> None:
    path = tmp_path / "r.mcap"
    shuffled = list(frames(100))
    shuffled[40], shuffled[60] = shuffled[60], shuffled[40]
    with RecordingWriter(path, META) as writer:
        for frame in shuffled:
            writer.write(frame)
    with pytest.raises(RecordingFormatError, match="do not increase at 2 of 100 frames, first at frame 41"):
        read_recording(path)
    assert recording_info(path).time_reversals == 2


def test_absent_empty_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(RecordingNotFoundError, match="no such file"):
        read_recording(tmp_path / "none.mcap")
    (tmp_path / "empty.mcap").write_bytes(b"")
    with pytest.raises(RecordingFormatError, match="is empty"):
        read_recording(tmp_path / "empty.mcap")
    (tmp_path / "log.csv").write_text("t,q\n0,1\n")
    with pytest.raises(RecordingFormatError, match=r"not an MCAP file.*thetad import"):
        read_recording(tmp_path / "log.csv")
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path)
