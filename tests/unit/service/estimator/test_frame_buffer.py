"""Windows of live frames: the ring, and what of it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.format import RecordingMeta
from drivers.frame import JointFrame
from service.estimator._frame_buffer import FOLDER, MARGIN_S, FrameBuffer, save_request
from service.estimator._frame_consumer import FrameBlock
from service.operations.inputs import open_recording
from service.protocol.control import ControlError

RATE = 100.0
META = RecordingMeta("arm", ("a", "b"), ("rad", "m"), RATE, "sim", "nowhere")


def frame(k: int, **more: Any) -> JointFrame:
    values = {"q": np.array([k, -k], float), "tau": np.array([0.5 * k, 2.0])}
    return JointFrame(k, 10_000_000 * k, 7 + k, **(values | more))


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory with the folder that windows are written to."""
    (tmp_path / FOLDER).mkdir(parents=True)
    return tmp_path


def push(window: FrameBuffer, *frames: JointFrame) -> None:
    for frame in frames:
        window.push(FrameBlock.of([frame], (np.zeros((1, 2)), np.zeros((1, 2)), None, None)))


def filled(count: int, window_s: float = 2.0) -> FrameBuffer:
    window = FrameBuffer(window_s, RATE, 2, ("q", "tau", "setpoint"))
    push(window, *map(frame, range(count)))
    return window


@pytest.mark.parametrize("count", [150, 1201, 5003])
def test_the_newest_frames_come_out_in_order(state_dir: Path, count: int) -> None:
    """Before, at, and after the ring is full, whose length is 1200 frames."""
    window = filled(count)
    assert len(window) == min(count, 200)
    request = save_request({"seconds": 1.5, "path": f"{FOLDER}/a.window"}, window, state_dir, META)
    assert request.write(window)["frames"] == 150
    found = open_recording(state_dir / FOLDER / "a.window")
    numbers = np.arange(count - 150, count)
    np.testing.assert_array_equal(found.seq, numbers)
    np.testing.assert_array_equal(found.t_ns, 10_000_000 * numbers)
    np.testing.assert_array_equal(found.channels["q"], np.stack((numbers, -numbers), axis=1))
    np.testing.assert_array_equal(found.channels["tau"][:, 0], 0.5 * numbers)
    assert set(found.channels) == {"q", "tau"}
    assert found.valid is None
    assert found.meta == META


def test_what_is_missing_or_invalid_stays_so(state_dir: Path) -> None:
    window = filled(100)
    push(window, frame(100, tau=None), frame(101, valid=np.array([True, False])), frame(102))
    push(window, JointFrame(103, 10_000_000 * 102, 0, q=np.zeros(2), tau=np.zeros(2)))  # no later than the one before
    save_request({"seconds": 0.1, "path": f"{FOLDER}/a.window"}, window, state_dir, META).write(window)
    found = open_recording(state_dir / FOLDER / "a.window")
    assert found.seq.tolist() == list(range(93, 103))
    assert np.isnan(found.channels["tau"][-3]).all()
    assert found.valid[-4:].tolist() == [[True, True], [False, False], [True, False], [True, True]]


def test_frames_go_on_while_a_window_is_written() -> None:
    """Fewer than the margin holds may come meanwhile, for the next would be half written; more are noticed."""
    window = filled(1200)
    frames = window.select(2.0)
    margin = round(MARGIN_S * RATE)
    push(window, *map(frame, range(1200, 1200 + margin - 1)))
    np.testing.assert_array_equal(window.copy(frames, 0)["stamps"][:, 2], np.arange(1000, 1200))
    push(window, frame(1200 + margin - 1))
    with pytest.raises(ControlError, match="faster than they could be saved"):
        window.copy(frames, 0)


def test_a_window_is_so_many_seconds_and_not_so_many_frames() -> None:
    """Frames 0 to 299, a pause of 3 s within the same epoch, and 120 more."""
    window = filled(300, 4.0)
    push(window, *map(frame, range(600, 720)))
    assert window.select(1.0) == range(320, 420)
    assert window.select(1.2) == range(300, 420)
    assert window.select(1.3) == range(300, 420)  # 92 % of the frames of 1.3 s
    with pytest.raises(ControlError, match=r"of the last 1\.4 s only 1\.2 s of frames are there"):
        window.select(1.4)
    with pytest.raises(ControlError, match=r"of the last 4 s only 1\.2 s of frames are there"):
        window.select(4.0)


@pytest.mark.parametrize(
    ("args", "type", "word"),
    [
        ({"seconds": True, "path": "x"}, "bad_argument", "seconds"),
        ({"seconds": float("nan"), "path": "x"}, "bad_argument", "seconds"),
        ({"seconds": 1.0}, "bad_argument", "path"),
        *(
            ({"seconds": 1.0, "path": path}, "bad_argument", "is not jobs/windows/NAME.window below the state")
            for path in ("/etc/x.window", f"{FOLDER}/link/x.window", f"{FOLDER}/../queue.window", f"{FOLDER}/q.sqlite")
        ),
        ({"seconds": 1.0, "path": "a\0b"}, "bad_argument", "path"),
        ({"seconds": 1.0, "path": f"{FOLDER}/{'x' * 300}.window"}, "bad_argument", "File name too long"),
        ({"seconds": 1.0, "path": f"{FOLDER}/there.window"}, "failed", "there already"),
        ({"seconds": 0.01, "path": f"{FOLDER}/x.window"}, "bad_argument", "two frames"),
        ({"seconds": 3.0, "path": f"{FOLDER}/x.window"}, "failed", r"the last 2\.0 s of frames are there, not 3 s"),
    ],
)
def test_what_cannot_be_set_aside(state_dir: Path, args: dict[str, Any], type: str, word: str) -> None:
    folder = state_dir / FOLDER
    (folder / "link").symlink_to(state_dir)
    (folder / "there.window").touch()
    with pytest.raises(ControlError, match=word) as caught:
        save_request(args, filled(500), state_dir, META)
    assert caught.value.type == type
    assert sorted(path.name for path in folder.iterdir()) == ["link", "there.window"]


def test_a_restarted_source_empties_the_window() -> None:
    window = filled(300)
    window.restart_stream()
    with pytest.raises(ControlError, match=r"the last 0\.0 s of frames are there"):
        window.select(0.5)
    push(window, *map(frame, range(50)))  # a new clock, earlier than the old
    assert len(window.select(0.5)) == 50


def test_no_window_and_one_too_large_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    none = FrameBuffer(0.0, RATE, 2, ("q", "tau"))
    push(none, frame(0))
    with pytest.raises(ControlError, match="set window_s"):
        none.select(1.0)
    monkeypatch.setattr("service.estimator._frame_buffer.MAX_BYTES", 20_000)
    with pytest.raises(ControlError, match=r"too many for one file: at most 3 s"):
        filled(900, 9.0).select(9.0)  # frames of 58 bytes, of which 274 fit beside the head of the file


def test_frames_from_some_time_on_are_forgotten() -> None:
    window = filled(100)
    first_ns = frame(60).t_bus_ns
    window.drop_since(first_ns)
    assert len(window) == 60
    push(window, frame(60))  # another at the same time takes its place
    assert len(window) == 61
    window.drop_since(0)
    assert len(window) == 0
    push(window, frame(0))
    assert len(window) == 1


def test_frames_that_are_given_up_while_they_are_copied_are_not_written(state_dir: Path) -> None:
    window = filled(300)
    request = save_request({"seconds": 1.5, "path": f"{FOLDER}/c.window"}, window, state_dir, META)
    window.drop_since(frame(290).t_bus_ns)
    push(window, *map(frame, range(300, 340)))
    with pytest.raises(ControlError, match="discarded"):
        request.write(window)
    assert not request.path.exists()
    again = save_request({"seconds": 1.5, "path": f"{FOLDER}/c.window"}, window, state_dir, META)
    assert again.write(window)["frames"] >= 100
