"""The replay driver: contract, pace, gaps, loops, bad recordings."""

import time
from pathlib import Path

import numpy as np
import pytest

from drivers.driver import Driver, DriverConfigError
from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, Span, read_recording
from drivers.frame import JointFrame
from drivers.replay import LOOP_PAUSE_S, ReplayDriver
from tests.lab.driver_contract import DriverContract, drain

META = RecordingMeta("arm", ("shoulder", "elbow", "slide"), ("rad", "rad", "m"), 1000.0)


def write(
    path: Path, count: int, step_ns: int = 1_000_000, seq: list[int] | None = None, rate_hz: float = 1000.0
) -> Path:
    rng = np.random.default_rng(7)
    meta = RecordingMeta(META.robot, META.joint_names, META.units, rate_hz)
    with RecordingWriter(path, meta) as writer:
        for k in range(count):
            writer.write(
                JointFrame(
                    seq=k if seq is None else seq[k], t_bus_ns=5_000_000_000 + k * step_ns, t_host_ns=1 + k,
                    q=rng.normal(size=3), tau=rng.normal(size=3), temperature=np.full(3, 31.5) if k % 10 == 0 else None,
                    valid=np.array([True, k % 4 != 0, True]),
                )
            )  # fmt: skip
    return path


class TestReplayContract(DriverContract):
    def make(self, tmp_path: Path) -> Driver:
        return ReplayDriver(write(tmp_path / "r.mcap", 200), speed="max")

    def make_slow(self, tmp_path: Path) -> Driver:
        return ReplayDriver(write(tmp_path / "slow.mcap", 20, 250_000_000, rate_hz=4.0))


def test_frames_are_those_of_the_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "r.mcap", 50)
    recording = read_recording(path)
    with ReplayDriver(path, speed="max") as driver:
        assert driver.info.clock == "recording"
        assert driver.info.source == "replay"
        assert driver.info.lossless
        frames = list(drain(driver))
    np.testing.assert_array_equal([f.q for f in frames], recording.channels["q"])
    np.testing.assert_array_equal([f.t_bus_ns for f in frames], recording.t_ns)
    np.testing.assert_array_equal([f.valid for f in frames], recording.valid)
    assert [f.seq for f in frames] == list(range(50))
    assert [f.temperature is not None for f in frames] == [k % 10 == 0 for k in range(50)]


def test_pace_follows_absolute_deadlines(tmp_path: Path) -> None:
    speed = 2.0
    path = write(tmp_path / "r.mcap", 40, step_ns=5_000_000, rate_hz=200.0)
    with ReplayDriver(path, speed=speed) as driver:
        before_ns = time.monotonic_ns()  # the first frame is due now at the earliest, however late it is read
        first = driver.read()
        time.sleep(0.03)  # a reader that is busy for a while must not delay the frames after it
        rest = list(drain(driver))
    due = np.arange(1, 40) * 5e-3 / speed
    received_ns = np.array([f.t_host_ns for f in rest])
    # not early: the first frame is stamped a moment after its own deadline
    assert np.min((received_ns - before_ns) * 1e-9 - due) >= -1e-4
    assert np.min(((received_ns - first.t_host_ns) * 1e-9 - due)[-10:]) < 0.02


def test_lost_cycles_and_restarts_of_the_count(tmp_path: Path) -> None:
    path = write(tmp_path / "r.mcap", 6, seq=[100, 101, 105, 0, 1, 3])
    with ReplayDriver(path, speed="max") as driver:
        assert [f.seq for f in drain(driver)] == [0, 1, 5, 6, 7, 9]


def test_loop_goes_on_with_a_visible_gap(tmp_path: Path) -> None:
    path = write(tmp_path / "r.mcap", 10)
    with ReplayDriver(path, speed="max", loop=True) as driver:
        frames = [driver.read() for _ in range(35)]
    seq = np.array([f.seq for f in frames])
    t_ns = np.array([f.t_bus_ns for f in frames])
    seams = np.flatnonzero(np.diff(seq) != 1)
    np.testing.assert_array_equal(seams, [9, 19, 29])
    np.testing.assert_allclose(np.diff(t_ns)[seams] * 1e-9, LOOP_PAUSE_S)
    np.testing.assert_allclose(np.diff(seq)[seams], LOOP_PAUSE_S * 1000.0)
    np.testing.assert_array_equal(frames[10].q, frames[0].q)


@pytest.mark.parametrize("speed", [0.0, float("nan"), float("inf"), "fast", True])
def test_bad_speed(tmp_path: Path, speed: object) -> None:
    with pytest.raises(DriverConfigError, match="speed"):
        ReplayDriver(tmp_path / "r.mcap", speed=speed)  # type: ignore[arg-type]


def test_truncated_recording_names_the_remedy(tmp_path: Path) -> None:
    whole = write(tmp_path / "r.mcap", 100).read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole[:-40])
    with pytest.raises(DriverConfigError, match="thetad recordings recover"):
        ReplayDriver(cut).open()


def test_absent_recording_and_span_outside(tmp_path: Path) -> None:
    with pytest.raises(DriverConfigError, match="no such file"):
        ReplayDriver(tmp_path / "none.mcap").open()
    path = write(tmp_path / "r.mcap", 100)
    with pytest.raises(DriverConfigError, match="the recording ends at"):
        ReplayDriver(path, span=Span.parse("5s:6s")).open()
