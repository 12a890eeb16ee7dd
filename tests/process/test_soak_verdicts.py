"""How the daemon's soak and the demonstration judge themselves, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak_faults import BEFORE_S, Fault, windows
from benchmarks.soak_readings import Life, describe, not_flat
from benchmarks.soak_recordings import Recordings
from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
from drivers.frame import JointFrame
from service.demo.demo import coverage
from tests.lab.command_line import thetad


def life(pid: int, begin_s: float, slope_mb_h: float, files: int = 20, seconds: float = 400.0) -> Life:
    """A process that begins with 100 MB, is 30 MB larger after its first minute, and then grows."""
    noise = np.random.default_rng(pid)
    rows = []
    for t in np.arange(0.0, seconds, 5.0):
        memory = 100.0 + 30.0 * min(t, 50.0) / 50.0 + slope_mb_h * t / 3600.0 + 0.1 * noise.standard_normal()
        rows.append((begin_s + t, float(memory), files, 5, 0.2 * t))
    return Life(pid, rows)


def test_a_process_that_grows_is_noticed_over_its_restarts() -> None:
    steady = describe([life(k, 400.0 * k, 0.0) for k in range(5)])
    assert (steady["lives"], steady["told_s"]) == (5, pytest.approx(5 * 335.0, abs=30.0))
    assert not_flat({"steady": steady}) == []
    growing = describe([life(k, 400.0 * k, 30.0) for k in range(5)])
    assert growing["slope_mb_h"] == pytest.approx(30.0, rel=0.1)
    (problem,) = not_flat({"leak": growing})
    assert problem.startswith("leak: memory grows by 30.")
    assert not_flat({"gateway": growing}) == []  # its queues fill and empty
    assert not_flat({"gateway": {**growing, "memory_most_mb": 1000.0}}) == ["gateway: takes 1000 MB"]
    leaking = describe([life(1, 0.0, 0.0, files=20), life(2, 400.0, 0.0, files=40)])
    assert not_flat({"files": leaking}) == ["files: 40 open files, 20 after the warm-up"]
    assert describe([life(1, 0.0, 1000.0, seconds=90.0)])["slope_mb_h"] is None  # nobody can tell


def recording(path: Path, epoch: int, seqs: range, left_out: int | None = None) -> None:
    """Frames of which each is received a millisecond after the one before, and epoch 2 ten seconds after epoch 1."""
    meta = RecordingMeta("arm", ("joint",), ("m",), 1000.0, extra={"epoch": str(epoch)})
    with RecordingWriter(path, meta) as writer:
        for seq in seqs:
            if seq != left_out:
                t_ns = seq * 10**6
                writer.write(JointFrame(seq, t_ns, epoch * 10**10 + t_ns, q=np.zeros(1)))


def unexplained(found: Recordings, *faults: Fault) -> list[str]:
    found.problems.clear()
    found.judge(windows(faults, "arm/recorder"))
    return found.problems


def test_a_recording_that_lacks_a_frame_without_a_fault_is_noticed(tmp_path: Path) -> None:
    found = Recordings(tmp_path)
    recording(tmp_path / "1.mcap", 1, range(100))
    recording(tmp_path / "2.mcap", 1, range(100, 200))
    found.work_off(last=True)
    found.end(1, 200, 10.3)
    assert (found.told()["frames"], found.told()["missing"], unexplained(found)) == (200, 0, [])
    recording(tmp_path / "3.mcap", 1, range(201, 300), left_out=250)
    found.work_off(last=True)
    assert (found.told()["missing"], found.told()["holes"]) == (2, 2)
    said = [problem.rpartition(" (")[0] for problem in unexplained(found)]
    assert said == ["3.mcap lacks 1 frames without a fault"] * 2
    # of the first, the first frame is so little before it that the chunk was not complete
    for begin, end, count in ((10.24, 10.26, 0), (10.21 + BEFORE_S, 20.0, 1), (1.0, 2.0, 2)):
        assert len(unexplained(found, Fault("kill", "arm/recorder", ("arm/recorder",), begin, end))) == count
    assert len(unexplained(found, Fault("kill", "other/recorder", ("other/recorder",), 10.24, 10.26))) == 2
    data = (tmp_path / "3.mcap").read_bytes()
    (tmp_path / "4.mcap").write_bytes(data[: len(data) // 2])
    found.work_off(last=True)
    assert found.told()["torn"] == 1


def test_coverage_counts_values_within_their_intervals() -> None:
    truth = np.array([1.0, -2.0, 0.0, 5.0])
    std = np.array([0.1, 0.1, 0.1, 0.0])
    off = (0.0, 1.95 * std, -1.97 * std, [0.1, 0.3, 0.1, 1e-9], np.nan)
    assert [coverage(truth, truth + np.array(each), std) for each in off] == [1.0, 1.0, 0.25, 0.5, 0.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--excite", "5"), "--excite: '5' is no number from 10"),
        (("--validate", "1e9"), "--validate: '1e9' is no number"),
        (("--excite", "nan"), "--excite: 'nan' is no number"),
        (("--seed", "-1"), "--seed"),
        (("--robot", "franka_panda"), "inertial"),  # an arm without link figures cannot be simulated
    ],
)
def test_wrong_options(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    thetad("demo", "--output", tmp_path / "out", *options).refused(words)
