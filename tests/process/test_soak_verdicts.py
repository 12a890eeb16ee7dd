"""How the daemon's soak and the demonstration judge themselves, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak_readings import Life, describe, not_flat
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
