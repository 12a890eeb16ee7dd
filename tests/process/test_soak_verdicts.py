"""Verdicts of the daemon's soak: growth, losses and ends without a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak_clients import EDGES, percentiles
from benchmarks.soak_counts import Ledger, Totals, ends
from benchmarks.soak_faults import BEFORE_S, SPARED, Fault, Faults, windows
from benchmarks.soak_readings import Life, describe, not_flat
from benchmarks.soak_recordings import Recordings
from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
from drivers.frame import JointFrame

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_a_command() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "service_soak.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", timeout=60)
    assert "--plot" in done.stdout


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
    assert growing["core"] == pytest.approx(0.2)
    leaking = describe([life(1, 0.0, 0.0, files=20), life(2, 400.0, 0.0, files=40)])
    assert not_flat({"files": leaking}) == ["files: 40 open files, 20 after the warm-up"]
    short = describe([life(1, 0.0, 1000.0, seconds=90.0)])
    assert short["slope_mb_h"] is None  # nobody can tell


@pytest.mark.parametrize("half", [0, 1])
def test_processes_are_ended_in_one_half_and_live_through_the_other(tmp_path: Path, half: int) -> None:
    """Real processes, each with the name of one of a daemon's; of those that are spared none is ended or hung."""
    names = ("arm/acquisition", "arm/estimator", "arm/recorder", "gateway", "jobs", "web")
    started = {name: subprocess.Popen(["sleep", "600"]) for name in names}
    found = {name: {"pid": process.pid, "state": "ready"} for name, process in started.items()}
    targets = set()
    try:
        faults = Faults(1, {}, tmp_path, {}, spacing_s=0.0, patience_s=0.0)
        faults.spared = SPARED[half]
        for end in (faults._kill, faults._hang) * 30:
            targets.add(end(found).target.rpartition("/")[2])
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    assert targets == set(SPARED[1 - half])
    assert sorted(role for half in SPARED for role in half) == sorted(name.rpartition("/")[2] for name in names)


def test_losses_are_told_apart_by_faults() -> None:
    fault = Fault("kill", "arm/estimator", ("arm/estimator",), at_s=10.0)
    assert fault.explains("arm/estimator", 499.0, 500.0)  # it is not over
    fault.until_s = 20.0
    seen = [fault.explains("arm/estimator", t - 1.0, t) for t in (9.0, 10.0, 25.0, 30.0)]
    assert seen == [False, True, True, False]
    assert fault.explains("arm/estimator", 15.0, 40.0)  # who looks seldom cannot tell when it was
    assert not fault.explains("arm/recorder", 14.0, 15.0)
    ledger = Ledger()
    for pid, lost, explained in (
        (1, 0, False),
        (1, 3, False),
        (1, 3, True),
        (2, 7, True),
        (2, 9, True),
        (2, 10, False),
    ):
        ledger.look("reader", pid, lost, explained)
    assert (dict(ledger.explained), dict(ledger.unexplained)) == ({"reader": 9}, {"reader": 4})


def test_counts_of_processes_that_are_replaced_are_added_up() -> None:
    totals = Totals()
    for pid, count in ((1, 10), (1, 30), (2, 5), (2, 7)):
        totals.take("arm/acquisition", pid, count)
    totals.take("arm/recorder", 3, 1)
    assert totals.told() == {"arm/acquisition": 37, "arm/recorder": 1}


def test_an_end_that_no_fault_explains_is_noticed() -> None:
    def ended(name: str, pid: int, reason: str, last_error: str) -> str:
        return json.dumps(
            {"event": "process_ended", "name": name, "pid": pid, "reason": reason, "last_error": last_error}
        )

    faults = [Fault("kill", "gateway", (), 0.0, pid=7), Fault("pause", "web", (), 1.0)]
    log = [json.dumps({"event": "frames_lost", "count": 3}), ended("gateway", 7, "SIGKILL", "SIGKILL")]
    assert ends(log, faults) == ({"frames_lost": 1, "process_ended": 1}, [])
    log += [ended("web", 8, "SIGKILL", "silent for more than 10 s"), ended("gateway", 7, "exit code 1", "it broke")]
    log += ["Fatal Python error: Aborted"]
    assert ends(log, faults)[1] == [
        "web ended without a fault: silent for more than 10 s (SIGKILL)",
        "gateway ended without a fault: it broke (exit code 1)",
        "in the log: Fatal Python error: Aborted",
    ]


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
    assert [problem.rpartition(" (")[0] for problem in unexplained(found)] == [
        "3.mcap lacks 1 frames without a fault"
    ] * 2
    kill = Fault("kill", "arm/recorder", ("arm/recorder",), 10.24, 10.26)
    assert unexplained(found, kill) == []  # the first is so little before it that the chunk was not complete
    late = Fault("kill", "arm/recorder", ("arm/recorder",), 10.21 + BEFORE_S, 20.0)
    assert len(unexplained(found, late)) == 1
    early = Fault("kill", "arm/recorder", ("arm/recorder",), 1.0, 2.0)
    assert len(unexplained(found, early)) == 2
    assert len(unexplained(found, Fault("kill", "other/recorder", ("other/recorder",), 10.24, 10.26))) == 2
    data = (tmp_path / "3.mcap").read_bytes()
    (tmp_path / "4.mcap").write_bytes(data[: len(data) // 2])
    found.work_off(last=True)
    assert found.told()["torn"] == 1


def test_a_source_that_starts_anew_without_a_fault_is_noticed(tmp_path: Path) -> None:
    found = Recordings(tmp_path)
    recording(tmp_path / "1.mcap", 1, range(100))
    recording(tmp_path / "2.mcap", 2, range(5, 100))
    found.work_off(last=True)
    assert found.told()["missing"] == 5
    assert len(unexplained(found)) == 1
    whole = Fault("kill", "arm/acquisition", ("arm/recorder",), 11.0, 16.0)
    assert unexplained(found, whole) == []
    assert len(unexplained(found, Fault("kill", "arm/acquisition", ("arm/recorder",), 11.0, 14.0))) == 1
    two = [Fault("kill", "arm/acquisition", ("arm/recorder",), t, t + 0.5) for t in (11.0, 18.0)]
    assert unexplained(found, *two) == []  # the second comes within what the first explains
    found.end(2, 150, 30.0)
    assert unexplained(found, whole) != []


def test_percentiles_of_latencies() -> None:
    seconds = np.random.default_rng(0).lognormal(-6.0, 1.0, 100_000)
    bins = np.zeros(EDGES.size + 1, dtype=np.int64)
    np.add.at(bins, np.searchsorted(EDGES, seconds), 1)
    told = percentiles(bins, float(seconds.max()))
    for name, percent in (("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)):
        assert told[name] == pytest.approx(np.percentile(seconds, percent), rel=0.02)
    assert told["max"] == seconds.max()
