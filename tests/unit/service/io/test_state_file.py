"""State files: written whole, checked when read."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.io.state_file import StateError, StateWriter, load_state, save_state, set_aside
from service.supervisor.directories import DirectoryError, StateLock

STATE = {"theta": np.arange(6.0).reshape(2, 3), "frames": 12, "mask": np.array([True, False]), "note": "x", "lam": 0.5}


@given(
    hnp.arrays(hnp.floating_dtypes(sizes=64) | hnp.integer_dtypes(sizes=64), hnp.array_shapes(min_dims=0, min_side=0))
)
def test_arrays_come_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "array.state"
    save_state(path, {"a": array}, "owner")
    found = load_state(path, "owner")["a"]
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype, found.tobytes()) == (array.shape, array.dtype, array.tobytes())


def test_a_state_survives_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    save_state(path, STATE, "owner")
    save_state(path, STATE, "owner")
    with pytest.raises(StateError, match="another model"):
        load_state(path, "someone else")
    found = load_state(path, "owner")
    assert found.keys() == STATE.keys()
    np.testing.assert_array_equal(found["theta"], STATE["theta"])
    assert (found["frames"], found["note"], found["lam"]) == (12, "x", 0.5)
    found["theta"][0, 0] = 1.0  # writable
    assert [item.name for item in tmp_path.iterdir()] == ["a.state"]


@given(st.data())
def test_any_damage_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.state"
    save_state(path, STATE, "owner")
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(content[:at])
    else:
        change = data.draw(st.integers(1, 255))
        path.write_bytes(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
    with pytest.raises(StateError):
        load_state(path, "owner")


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.write_bytes(b"x")]
)
def test_what_is_no_state_is_set_aside_and_never_written_through(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path, beside, other = tmp_path / "a.state", tmp_path / "a.state.new", tmp_path / "other"
    make(path)
    with pytest.raises(StateError, match=r"is not a file|not a state file"):
        load_state(path, "owner")
    other.write_bytes(b"of somebody else")
    beside.symlink_to(other)
    save_state(set_aside(path).with_name("a.state"), STATE, "owner")
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(DirectoryError, match="symbolic links"):
        StateLock(tmp_path)
    assert other.read_bytes() == b"of somebody else"
    assert not path.is_symlink()
    assert load_state(path, "owner")["frames"] == 12
    os.mkfifo(beside)
    save_state(path, STATE, "owner")  # which nobody reads from


def test_a_writer_does_not_lose_what_came_while_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it is busy, so that it is asked again; what is saved at the end comes last."""
    path, on_disk, sync = tmp_path / "a.state", threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        assert on_disk.wait(30.0)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    writer = StateWriter(path, "owner")
    asked = []

    def state(frames: int) -> dict[str, int]:
        asked.append(frames)
        return {"frames": frames}

    assert writer.begin(lambda: state(1))
    assert not writer.begin(lambda: state(2))
    assert asked == [1]
    on_disk.set()
    writer.save(state(3))
    assert load_state(path, "owner")["frames"] == 3
    assert writer.begin(lambda: state(4))
    writer.close()
    assert load_state(path, "owner")["frames"] == 4
    assert writer.error == ""


def test_a_writer_says_what_could_not_be_saved(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    writer = StateWriter(folder / "a.state", "owner")
    writer.save(STATE)
    assert "No such file" in writer.error
    folder.mkdir()
    writer.save(STATE)
    assert writer.error == ""
    writer.close()
    assert load_state(folder / "a.state", "owner").keys() == STATE.keys()
