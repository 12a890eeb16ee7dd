"""Speed beside named peers in the same run, frame-time percentiles, latency through the daemon, statistical coverage.

make bench        or: python benchmarks/run.py [--only SECTION ...] [--quick] [--json]

Ratios are medians over short rounds that alternate between the product and its peer.  The exit code is 1 if a
target is missed.
"""

from __future__ import annotations

import os

# Before NumPy: several BLAS threads on small matrices would slow the peers as well as us.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import latency
from benchmarks.coverage import pooled_coverage
from benchmarks.online_speed import beside_padasip, frame_times
from benchmarks.regressor_speed import beside_pinocchio

Section = tuple[dict[str, Any] | list[dict[str, Any]], list[str], list[str]]  # result, lines, problems


def regressor_section(quick: bool) -> Section:
    results = [beside_pinocchio(robot) for robot in (("arm9",) if quick else ("space6", "arm7", "arm9"))]
    lines = [
        f"regressor, {r['joints']} joints, {r['columns']} columns: {r['own_ns']:.0f} ns a sample, "
        f"Pinocchio from Python {r['pinocchio_ns']:.0f} ns: {r['ratio']:.1f} times faster (target {r['target']:g})"
        for r in results
    ]
    return results, lines, [line for r, line in zip(results, lines, strict=True) if r["ratio"] < r["target"]]


def online_section(quick: bool) -> Section:
    r = beside_padasip()
    line = (
        f"online frame, {r['joints']} joints, {r['parameters']} parameters, update at every frame: "
        f"{r['frame_us']:.1f} us, padasip FilterRLS {r['padasip_us']:.0f} us: {r['ratio']:.1f} times faster "
        f"(target {r['target']:g})"
    )
    frames = 20_000 if quick else 100_000
    times = [frame_times(frames=frames, update_hz=rate) for rate in (1000.0, 100.0)]
    lines = [line] + [
        f"frame times over {t['frames']} frames, update at {t['update_hz']:g} Hz: p50 {t['p50_us']:.1f}, "
        f"p99 {t['p99_us']:.1f}, p99.9 {t['p99.9_us']:.1f}, max {t['max_us']:.0f} us"
        for t in times
    ]
    return {"peer": r, "frame_times": times}, lines, [line] if r["ratio"] < r["target"] else []


def coverage_section(quick: bool) -> Section:
    r = pooled_coverage(seeds=3 if quick else 20)
    lines = [
        f"95 % intervals, {r['robot']}, {r['seeds']} seeds of {r['seconds']:g} s: {name} holds {100 * r[name]:.1f} % "
        f"of the true parameters (worst seed {100 * r['worst_seed'][name]:.0f} %; target {100 * r['target']:g} %)"
        for name in ("online", "batch")
    ]
    return r, lines, [line for name, line in zip(("online", "batch"), lines, strict=True) if r[name] < r["target"]]


def latency_section(quick: bool) -> Section:
    r = latency.run(15.0 if quick else 60.0)
    return r, latency.table(r).splitlines(), list(r["problems"])


SECTIONS: dict[str, Callable[[bool], Section]] = {
    "regressor": regressor_section,
    "online": online_section,
    "coverage": coverage_section,
    "latency": latency_section,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(SECTIONS), default=tuple(SECTIONS), help="some sections")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, seeds and seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    problems: list[str] = []
    for name in arguments.only:
        results[name], lines, missed = SECTIONS[name](arguments.quick)
        problems += missed
        for line in lines:
            print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    results["missed"] = problems
    if arguments.json:
        sys.stdout.write(json.dumps(results) + "\n")
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
