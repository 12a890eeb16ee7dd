"""A window of live frames is read as a file of the recorder with the same frames would be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, RecordingError, RecordingMeta, RecordingWriter
from drivers.frame import JointFrame
from service.io.state_file import save_state
from service.operations.inputs import WINDOW_OWNER, open_recording, window_state

META = RecordingMeta("arm", ("lift", "elbow"), ("m", "rad"), 500.0, "dc", "cell 3")
COUNT = 40


def frames(valid: bool) -> list[JointFrame]:
    """Frames with a gap, a value that is missing, one channel that comes now and then."""
    rng = np.random.default_rng(4)
    found = []
    for k in range(COUNT):
        seq = 70 + k + (k > 20)
        frame = JointFrame(seq, 10**15 + 2_000_000 * (seq - 70), 5_000 + k)
        frame.q, frame.dq, frame.tau = (rng.normal(size=2) for _ in range(3))
        if k % 8 == 0:
            frame.temperature = rng.normal(size=2)
        if k == 11:
            frame.tau[1] = np.nan
        if valid and k == 30:
            frame.valid = np.array([False, True])
        found.append(frame)
    return found


def window(given: list[JointFrame], meta: RecordingMeta = META, **changes: Any) -> dict[str, Any]:
    """The window of these frames."""
    nothing = np.full(meta.n, np.nan)
    channels = {
        name: np.array([nothing if getattr(f, name) is None else getattr(f, name) for f in given])
        for name in ("q", "dq", "tau", "temperature")
    }
    valid = None
    if any(f.valid is not None for f in given):
        valid = np.array([[True, True] if f.valid is None else f.valid for f in given])
    t_ns, seq, host = (np.array([getattr(f, name) for f in given]) for name in ("t_bus_ns", "seq", "t_host_ns"))
    return dict(window_state(meta, t_ns, seq, channels, t_host_ns=host, valid=valid)) | changes


def assert_same(a: Recording, b: Recording) -> None:
    assert a.meta == b.meta
    assert a.metadata == b.metadata
    for name in ("t", "t_ns", "seq", "valid"):
        assert getattr(a, name).dtype == getattr(b, name).dtype
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert list(a.channels) == list(b.channels)
    for name, array in a.channels.items():
        np.testing.assert_array_equal(array, b.channels[name])
    assert a.sha256 == b.sha256


@pytest.mark.parametrize("valid", [True, False])
def test_a_window_is_the_recording_of_its_frames(tmp_path: Path, valid: bool) -> None:
    given = frames(valid)
    with RecordingWriter(tmp_path / "file.mcap", META) as writer:
        for frame in given:
            writer.write(frame)
    save_state(tmp_path / "live.window", window(given), WINDOW_OWNER)
    recorded, live = open_recording(tmp_path / "file.mcap"), open_recording(tmp_path / "live.window")
    assert_same(live, recorded)
    assert not live.valid[11, 1]
    assert live.valid[30, 0] != valid
    # a file kept by its content has no suffix
    (tmp_path / "live.window").rename(tmp_path / "0123")
    (tmp_path / "file.mcap").rename(tmp_path / "4567")
    assert_same(open_recording(tmp_path / "0123"), open_recording(tmp_path / "4567"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q": np.zeros((COUNT, 3))}, "q is not one value for each of 40 frames and 2 joints"),
        ({"seq": np.zeros(3, dtype=np.int64)}, "seq has 3 values for 40 frames"),
        ({"t_bus_ns": np.zeros(COUNT)}, "t_bus_ns is not one whole number a frame"),
        ({"t_bus_ns": np.zeros(COUNT, dtype=np.int64)}, "time stamps do not increase at 39 of 40 frames"),
        ({"valid": np.ones((COUNT, 2))}, "valid is not one value"),
        ({"units": "deg\nrad"}, "units"),
        ({"rate_hz": 0.0}, "rate 0.0 Hz"),
    ],
)
def test_a_window_that_contradicts_itself(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / "live.window"
    save_state(path, window(frames(True), **changes), WINDOW_OWNER)
    with pytest.raises(RecordingError) as caught:
        open_recording(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_strangers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "live.window"
    whole = window(frames(True))
    save_state(path, whole, "another")
    with pytest.raises(RecordingError, match="belongs to another"):
        open_recording(path)
    del whole["robot"]
    save_state(path, whole, WINDOW_OWNER)
    with pytest.raises(RecordingError, match="without 'robot'"):
        open_recording(path)
    path.write_text("t,q\n")
    with pytest.raises(RecordingError, match="not a state file"):
        open_recording(path)
