"""Recordings that were cut off or damaged: nothing but clear errors, and no complete chunk is lost."""

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.summary import Summary
from mcap.writer import Writer

from drivers.files.recordings import recording as recordings
from drivers.files.recordings.format import METADATA_NAME, with_digest
from tests.lab.recordings.frames import META, write

ROOT = Path(__file__).parents[2]
FRAMES = 200
IN_PLACE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole") / "r.mcap", FRAMES, chunk_s=0.02)


def frames_before(whole: Path, length: int) -> int:
    """Frames in chunks that end within the first `length` bytes, by the index of the mcap package."""
    with whole.open("rb") as file:
        summary = make_reader(file).get_summary()
    ends = [
        (c.message_end_time, c.message_start_time)
        for c in summary.chunk_indexes
        if c.chunk_start_offset + c.chunk_length <= length
    ]
    return sum((end - start) // 1_000_000 + 1 for end, start in ends)


_WRITE_FOR_EVER = """
import itertools, sys
sys.path.insert(0, sys.argv[2])
from drivers.files.recordings.recording import RecordingWriter
from tests.lab.recordings.frames import META, frames
with RecordingWriter(sys.argv[1], META, chunk_s=0.05) as writer:
    for k, frame in enumerate(frames(10_000_000)):
        writer.write(frame)
        if k % 1000 == 20:
            print(k, flush=True)
"""


def test_kill_loses_at_most_the_last_chunk(tmp_path: Path) -> None:
    path = tmp_path / "r.mcap"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE_FOR_EVER, str(path), str(ROOT)], stdout=subprocess.PIPE, text=True
    ) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        lines += process.stdout.readlines()
    written = int([line for line in lines if line.endswith("\n")][-1]) + 1
    with pytest.raises(recordings.RecordingTruncatedError, match=r"thetad recordings recover .*r\.mcap"):
        recordings.read_recording(path)
    info = recordings.recording_info(path)
    assert not info.complete
    result = recordings.recover(path, tmp_path / "saved.mcap")
    assert not result.was_complete
    assert result.frames == info.frames >= written - 50
    saved = recordings.read_recording(tmp_path / "saved.mcap")
    assert saved.samples == result.frames
    reference = recordings.read_recording(write(tmp_path / "reference.mcap", result.frames))
    assert saved.sha256 == reference.sha256


@IN_PLACE
@given(length=st.integers(0, 10**6))
@example(length=0)
@example(length=1)
@example(length=10**6)
def test_any_prefix_reads_or_is_refused_and_recovers(tmp_path: Path, whole: Path, length: int) -> None:
    data = whole.read_bytes()
    length = len(data) if length == 10**6 else length % len(data)
    cut, saved = tmp_path / "cut.mcap", tmp_path / "saved.mcap"
    cut.write_bytes(data[:length])
    saved.unlink(missing_ok=True)
    expected = frames_before(whole, length)
    if length == len(data):
        assert recordings.read_recording(cut).samples == FRAMES
    else:
        with pytest.raises(recordings.RecordingFormatError if length == 0 else recordings.RecordingTruncatedError):
            recordings.read_recording(cut)
    if expected == 0:
        with pytest.raises(recordings.RecordingFormatError):
            recordings.recover(cut, saved)
        assert not saved.exists()
        return
    result = recordings.recover(cut, saved)
    assert (result.frames, result.bytes_read) == (expected, length)
    assert (result.bytes_dropped > 0) == (length < len(data)) or not result.was_complete
    np.testing.assert_array_equal(
        recordings.read_recording(saved).channels["q"], recordings.read_recording(whole).channels["q"][:expected]
    )


@IN_PLACE
@given(position=st.floats(0.0, 1.0, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_taken_for_data(tmp_path: Path, whole: Path, position: float, bit: int) -> None:
    data = bytearray(whole.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    damaged, saved = tmp_path / "damaged.mcap", tmp_path / "saved.mcap"
    damaged.write_bytes(data)
    saved.unlink(missing_ok=True)
    original = recordings.read_recording(whole).channels["q"]
    try:
        recording = recordings.read_recording(damaged)
    except recordings.RecordingError:
        pass
    else:
        np.testing.assert_array_equal(recording.channels["q"], original[: recording.samples])
    try:
        result = recordings.recover(damaged, saved)
    except recordings.RecordingError:
        return
    kept = {row.tobytes() for row in original}
    try:
        rows = recordings.read_recording(saved).channels["q"]
    except recordings.RecordingError:
        return
    assert result.frames >= len(rows)
    assert all(row.tobytes() in kept for row in rows)


def test_two_hundred_flipped_bits(tmp_path: Path, whole: Path) -> None:
    """Each is refused with one line, in frames, metadata and index alike."""
    rng, damaged = np.random.default_rng(27), tmp_path / "damaged.mcap"
    for _ in range(200):
        data = bytearray(whole.read_bytes())
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(data)
        with pytest.raises(recordings.RecordingFormatError) as caught:
            recordings.read_recording(damaged)
        assert str(damaged) in str(caught.value)
        assert "\n" not in str(caught.value)


def unchecked(path: Path) -> tuple[bytearray, Summary]:
    """A recording without any checksum, as other programs write it."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4096, enable_crcs=False)
        writer.start()
        writer.add_metadata(METADATA_NAME, with_digest(META.to_metadata()))
        schema = writer.register_schema("s", "jsonschema", b"{}")
        channel = writer.register_channel(META.topic, "json", schema)
        for k in range(200):
            content = json.dumps({"t": k, "t_ns": k * 1000, "seq": k, "q": [float(k), 1.0]}).encode()
            writer.add_message(channel, k * 1000, content, k * 1000, k)
        writer.finish()
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    return bytearray(path.read_bytes()), summary


def number(old: int, new: int) -> Callable[[bytearray, Summary], None]:
    """Return the edit of the last place with this 8-byte number: in the index."""

    def edit(data: bytearray, _: Summary) -> None:
        place = data.rindex(struct.pack("<Q", old))
        data[place : place + 8] = struct.pack("<Q", new)

    return edit


def hidden(code: int) -> Callable[[bytearray, Summary], None]:
    """Return the edit that gives the second chunk another opcode."""
    return lambda data, summary: data.__setitem__(summary.chunk_indexes[1].chunk_start_offset, code)


TAMPERED: dict[str, tuple[Callable[[bytearray, Summary], None], str]] = {
    "chunk skipped": (hidden(0x86), r"statistics say \d chunks, it holds \d"),
    "opcode unknown": (hidden(0x46), "opcode 0x46, which does not belong there"),
    "opcode misplaced": (hidden(0x08), "opcode 0x08, which does not belong there"),
    "index of other times": (number(199_000, 198_000), "other times"),
    "chunk index elsewhere": (
        lambda data, summary: number(
            summary.chunk_indexes[0].chunk_start_offset, summary.chunk_indexes[0].chunk_start_offset + 1
        )(data, summary),
        "disagree at byte",
    ),
    "another rate": (lambda data, _: data.__setitem__(data.index(b"000.0") + 1, ord("4")), "metadata of .* is wrong"),
    "no end of data": (lambda data, _: data.__setitem__(data.rindex(b"\x0f\x04" + bytes(11)), 0x8F), "opcode 0x0b"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_file_that_contradicts_its_index(tmp_path: Path, name: str) -> None:
    edit, words = TAMPERED[name]
    path = tmp_path / "r.mcap"
    data, summary = unchecked(path)
    assert recordings.read_recording(path).samples == 200
    edit(data, summary)
    path.write_bytes(data)
    with pytest.raises(recordings.RecordingFormatError, match=rf"contradicts itself: .*{words}.*recordings recover"):
        recordings.read_recording(path)
    assert not recordings.recording_info(path).complete


@pytest.mark.parametrize("victim", [0, 3])
def test_a_damaged_chunk_costs_that_chunk_only(tmp_path: Path, whole: Path, victim: int) -> None:
    with whole.open("rb") as file:
        summary = make_reader(file).get_summary()
    data, damaged, saved = bytearray(whole.read_bytes()), tmp_path / "damaged.mcap", tmp_path / "saved.mcap"
    chunk = summary.chunk_indexes[victim]
    data[chunk.chunk_start_offset + chunk.chunk_length - 5] ^= 0xFF
    damaged.write_bytes(data)
    damaged.chmod(0o600)
    with pytest.raises(recordings.RecordingFormatError, match=r"damaged.*recordings recover"):
        recordings.read_recording(damaged)
    result = recordings.recover(damaged, saved)
    assert (result.frames, result.bytes_dropped) == (FRAMES - 20, chunk.chunk_length)
    assert "damaged" in result.damage
    assert (result.metadata_verified, recordings.read_recording(saved).notes) == (True, ())
    assert saved.stat().st_mode & 0o777 == 0o600  # no more open than the original


@pytest.mark.parametrize("cut", [0, 1])
def test_metadata_that_changed_are_not_proven_by_a_recovery(tmp_path: Path, whole: Path, cut: int) -> None:
    data, path = bytearray(whole.read_bytes()), tmp_path / "0.mcap"
    data[data.index(META.joint_names[0].encode())] ^= 1
    path.write_bytes(data[: len(data) - cut])
    for k in range(2):  # nor by a second one
        result = recordings.recover(path, tmp_path / f"{k + 1}.mcap")
        path = tmp_path / f"{k + 1}.mcap"
        assert not result.metadata_verified
    assert "metadata unverified" in recordings.recording_info(path).notes[0]


def test_target_and_source_are_checked(tmp_path: Path, whole: Path) -> None:
    taken = tmp_path / "taken.mcap"
    taken.write_bytes(b"precious")
    with pytest.raises(recordings.RecordingExistsError):
        recordings.recover(whole, taken)
    assert taken.read_bytes() == b"precious"
    result = recordings.recover(whole, taken, replace=True)
    assert (result.was_complete, result.bytes_dropped) == (True, 0)
    assert recordings.read_recording(taken).sha256 == recordings.read_recording(whole).sha256
    with pytest.raises(recordings.RecordingNotFoundError):
        recordings.recover(tmp_path / "none.mcap", tmp_path / "out.mcap")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.mcap"]
