"""What a soak reads of processes over time, which may be replaced by others: does their memory stay flat?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import psutil

from benchmarks.soak_faults import Fault
from rt_core.types import FloatArray

EVERY_S = 5.0
LIMIT_MB_H = 2.0
RESOLUTION_MB = 1.5
SPARE_FILES = 6  # connections and files that are open just then
SPARE_THREADS = 2  # pools that are made when they are first needed
WARM_UP_S = 60.0  # of each process: the window of frames fills, clients connect
MIN_S = 60.0  # of a life after its warm-up, for its memory to say something
TOLD_S = 120.0  # of lives after their warm-up, all together, for a slope
JUDGED_S = 1200.0  # for a slope to be more than a queue that fills and empties
#: In these queues fill and empty all the time: frames that wait for two subscribers, 8 kB each, bound them.
QUEUES = ("gateway", "client sleeper", "client slow")
QUEUES_MB = 450.0


@dataclass
class Life:
    """One process from its start to its end: times [s] since the soak began, memory [MB], files, threads, CPU [s]."""

    pid: int
    rows: list[tuple[float, float, int, int, float]] = field(default_factory=list)

    @property
    def settled(self) -> FloatArray:
        """Rows after the warm-up, (m, 5)."""
        rows = np.array(self.rows, dtype=np.float64).reshape(-1, 5)
        return rows[rows[:, 0] >= rows[0, 0] + WARM_UP_S] if rows.size else rows


class Readings:
    """Lives of processes, by name."""

    def __init__(self) -> None:
        self.lives: dict[str, list[Life]] = defaultdict(list)

    def take(self, elapsed_s: float, pids: Mapping[str, int]) -> None:
        """Read all processes; one that has just gone is left out."""
        for name, pid in pids.items():
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    memory_mb = process.memory_info().rss / 1e6
                    row = elapsed_s, memory_mb, process.num_fds(), process.num_threads(), sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
            lives = self.lives[name]
            if not lives or lives[-1].pid != pid:
                lives.append(Life(pid))
            lives[-1].rows.append(row)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Describe each process, over all of its lives."""
        return {name: describe(lives) for name, lives in self.lives.items()}


def describe(lives: Sequence[Life]) -> dict[str, Any]:
    """Memory, files, threads and share of a core of a process that may have been restarted.

    The slope of the memory is the median of the slopes between all pairs of readings of the same life (Theil-Sen, which
    a single step hardly moves but in the middle of a life), None if the lives are too short to tell.  Files and threads
    are those after the first warm-up and at the end; None where no life has outlasted its warm-up.
    """
    slopes: list[FloatArray] = []
    told_s = 0.0
    for life in lives:
        rows = life.settled
        if len(rows) < 3 or rows[-1, 0] - rows[0, 0] < MIN_S:
            continue
        told_s += rows[-1, 0] - rows[0, 0]
        first, second = np.triu_indices(len(rows), 1)
        span_s = rows[second, 0] - rows[first, 0]
        far = span_s >= MIN_S / 2.0
        slopes.append(((rows[second, 1] - rows[first, 1])[far]) / span_s[far])
    every = np.concatenate([np.array(life.rows, dtype=np.float64) for life in lives])
    settled = [rows for life in lives if len(rows := life.settled)]
    warm = bool(settled)
    settled = settled or [every]
    spent_s = sum(life.rows[-1][4] - life.rows[0][4] for life in lives)
    lasted_s = sum(life.rows[-1][0] - life.rows[0][0] for life in lives)
    slope = float(np.median(np.concatenate(slopes))) if told_s >= TOLD_S else None
    return {
        "lives": len(lives),
        "memory_mb": float(settled[0][0, 1]),
        "memory_end_mb": float(settled[-1][-1, 1]),
        "memory_most_mb": float(every[:, 1].max()),
        "told_s": told_s,
        "slope_mb_h": None if slope is None else 3600.0 * slope,
        "growth_mb": None if slope is None else slope * told_s,
        "files": int(settled[0][0, 2]) if warm else None,
        "files_end": int(np.median(settled[-1][-3:, 2])),
        "threads": int(settled[0][0, 3]) if warm else None,
        "threads_end": int(np.median(settled[-1][-3:, 3])),
        "core": spent_s / lasted_s if lasted_s > 0.0 else 0.0,
    }


def not_flat(processes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which processes grow."""
    problems = []
    for name, told in processes.items():
        if name in QUEUES:
            if told["memory_most_mb"] > QUEUES_MB:
                problems.append(f"{name}: takes {told['memory_most_mb']:.0f} MB")
        elif told["told_s"] >= JUDGED_S and told["slope_mb_h"] > LIMIT_MB_H and told["growth_mb"] > RESOLUTION_MB:
            problems.append(f"{name}: memory grows by {told['slope_mb_h']:.1f} MB/h")
        if told["files"] is not None and told["files_end"] > told["files"] + SPARE_FILES:
            problems.append(f"{name}: {told['files_end']} open files, {told['files']} after the warm-up")
        if told["threads"] is not None and told["threads_end"] > told["threads"] + SPARE_THREADS:
            problems.append(f"{name}: {told['threads_end']} threads, {told['threads']} after the warm-up")
    return problems


def draw(
    path: Path, readings: Readings, latencies: Mapping[str, FloatArray], faults: Iterable[Fault], began_s: float
) -> None:
    """Draw memory and latencies over time, with a line for each fault.

    `latencies` are rows of time [s, CLOCK_MONOTONIC], median and largest [s] of a second, by client.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(12.0, 9.0), layout="constrained")
    for number, (name, lives) in enumerate(sorted(readings.lives.items())):
        for life in lives:
            rows = np.array(life.rows, dtype=np.float64)
            label = name if life is lives[0] else None
            above.plot(rows[:, 0] / 60.0, rows[:, 1], color=f"C{number % 10}", lw=1.0, label=label)
    for number, (name, rows) in enumerate(latencies.items()):
        if len(rows):
            minutes = (rows[:, 0] - began_s) / 60.0
            below.semilogy(minutes, 1e3 * rows[:, 1], color=f"C{number}", lw=0.8, label=f"{name}, median of a second")
            below.semilogy(minutes, 1e3 * rows[:, 2], ".", color=f"C{number}", ms=2.0, label=f"{name}, largest")
    for fault in faults:
        for axes in (above, below):
            axes.axvline((fault.at_s - began_s) / 60.0, color="0.85", lw=0.5, zorder=0)
    above.set_ylabel("memory [MB]")
    below.set_ylabel("latency [ms]")
    below.set_xlabel("time [min]; grey: faults")
    above.legend(fontsize=7, ncols=3)
    below.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
