"""Speed beside named peers in the same run, frame-time percentiles, latency through the daemon, statistical coverage.

make bench        or: python benchmarks/run.py [--only SECTION ...] [--quick] [--json]

Ratios are medians over short rounds that alternate between the product and its peer.  The exit code is 1 if a
target is missed.
"""

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

from benchmarks import (
    ads_blocks,
    calibration_speed,
    commission,
    coverage,
    dashboard,
    detector,
    dyn,
    elastic_arm,
    elastic_tracking,
    ethercat_cycle,
    excitation_search,
    excitation_speed,
    faults,
    jobs_dask,
    jobs_latency,
    kin,
    latency,
    least_squares_speed,
    outliers,
    temperature,
    torque_fit_speed,
    zero_force,
    zero_force_daemon,
)
from benchmarks.elastic_frames import elastic_frame_times
from benchmarks.online_speed import beside_padasip, frame_times
from benchmarks.regressor_speed import beside_pinocchio
from drivers.driver import DriverError
from rt_core.identification.methods import NETWORKS
from service.demo.hardware import RehearsalError
from service.protocol.json_values import json_values

MEMORY_GROWTH = 1.2  # of the streamed triangles' peak, for four times the samples
COST_AGREEMENT = 1e-8

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
    e = elastic_frame_times(20.0 if quick else 60.0)
    lines.append(
        f"an elastic joint beside that: {e['frame_us']:.1f} us a frame; of {e['batch_frames']} frames and update "
        f"p50 {e['batch_p50_us']:.0f}, p99 {e['batch_p99_us']:.0f} us; a report {e['report_p50_us']:.0f} us"
    )
    return {"peer": r, "frame_times": times, "elastic": e}, lines, [line] if r["ratio"] < r["target"] else []


def coverage_section(quick: bool) -> Section:
    r = coverage.pooled_coverage(quick=quick)
    return r, coverage.table(r), list(r["missed"])


def networks_section(quick: bool) -> Section:
    r = dyn.truth("space6", ("wls", *NETWORKS), 1 if quick else 5, 40.0)
    rows = [r.summary(name) for name in r.methods]
    lines = [
        f"{s['method']}, {s['seeds']} seeds: torque error {s['error_in_noise']:.3g} of the noise on another motion, "
        f"{s['seconds']:.2g} s"
        for s in rows
    ]
    best = min(s["error_in_noise"] for s in rows[1:])
    return {"methods": rows}, lines, [] if rows[0]["error_in_noise"] < best else lines[:1]


def least_squares_section(_quick: bool) -> Section:
    r = least_squares_speed.iwls_beside_scipy()
    memory = least_squares_speed.streamed_memory()
    lines = [
        f"IWLS, {r['iterations']} iterations, {r['rows']} rows x {r['columns']} columns: {r['own_ms']:.0f} ms, ten "
        f"scipy.linalg.lstsq {r['scipy_ms']:.0f} ms: {r['ratio']:.1f} times faster (target {r['target']:g}); "
        f"{r['cost_in_structured_qr']:.2f} of the structured QR it needs (target {r['cost_target']:g}), difference "
        f"{r['difference']:.1e} (target {r['difference_target']:g})",
        f"streamed into triangles: peak {memory['peak_mb'][0]:.1f} MB for {memory['rows'][0]} rows, "
        f"{memory['peak_mb'][1]:.1f} MB for {memory['rows'][1]}",
    ]
    good = r["ratio"] >= r["target"] and r["cost_in_structured_qr"] <= r["cost_target"]
    good &= r["difference"] <= r["difference_target"]
    missed = ([] if good else [lines[0]]) + ([] if memory["growth"] < MEMORY_GROWTH else [lines[1]])
    return {"iwls": r, "memory": memory}, lines, missed


def torque_fit_section(quick: bool) -> Section:
    sizes = (5000,) if quick else (5000, 25_000)
    fits = [torque_fit_speed.fitness(samples) for samples in sizes]
    lines = [
        f"one fitness of {f['parameters']} parameters, {f['samples']} samples: {f['own_us']:.1f} us; stacked regressor "
        f"in NumPy {f['stacked_us']:.0f} us, {f['stacked_ratio']:.0f} times (target {f['targets']['stacked']:g}); "
        f"NumPy Newton-Euler {f['newton_euler_us']:.0f} us, {f['newton_euler_ratio']:.0f} times (target "
        f"{f['targets']['newton_euler']:g}); costs agree to {f['largest_error']:.1e}"
        for f in fits
    ]
    missed = [
        line
        for f, line in zip(fits, lines, strict=True)
        if f["stacked_ratio"] < f["targets"]["stacked"] or f["newton_euler_ratio"] < f["targets"]["newton_euler"]
        or f["largest_error"] > COST_AGREEMENT
    ]  # fmt: skip
    h, s = torque_fit_speed.hybrid(), torque_fit_speed.separable()
    lines += [
        f"PSO-LM, 100 x 300 + 100: {h['pso_lm_s']:.2f} s, {h['ratio']:.2f} times its PSO part (target {h['target']:g})",
        f"separable fit from {s['starts']} starts: {s['own_s']:.2f} s (search {s['search_s']:.2f} s) to a cost of "
        f"{s['own_cost']:.6g}; scipy.optimize.least_squares from one: {s['scipy_s']:.2f} s to {s['scipy_cost']:.6g}: "
        f"{s['ratio']:.1f} times faster (target {s['target']:g})",
    ]
    missed += [] if h["ratio"] < h["target"] else [lines[-2]]
    lower = s["own_cost"] <= s["scipy_cost"] * (1.0 + COST_AGREEMENT)
    missed += [] if s["ratio"] >= s["target"] and lower else [lines[-1]]
    return {"fitness": fits, "pso_lm": h, "separable": s}, lines, missed


def outliers_section(quick: bool) -> Section:
    r = outliers.beside_wls_and_rls(quick=quick)
    lines = [
        f"torque with 2 % outliers, {r['robot']}, {r['seeds']} seeds: iwls {r['rms_nm']['iwls']:.4f} N*m rms against "
        f"the noise-free torque; {name} {r['rms_nm'][name]:.4f}: {100 * r['reduction'][name]:.1f} % lower (target "
        f"{100 * target:g} %)"
        for name, target in r["targets"].items()
    ]
    return r, lines, [x for (n, t), x in zip(r["targets"].items(), lines, strict=True) if r["reduction"][n] < t]


def excitation_section(quick: bool) -> Section:
    robots = ("arm9",) if quick else ("ur10", "arm7", "arm9")
    # The target is for all limits, collisions among them; without, the peer has less to do in Python.
    whole = [excitation_speed.beside_pinocchio(robot, collisions=True) for robot in robots]
    part = [excitation_speed.beside_pinocchio(robot) for robot in robots]
    lines = excitation_speed.table(whole) + excitation_speed.table(part)
    return {"all_limits": whole, "without_collisions": part}, lines, excitation_speed.missed(whole)


def excitation_search_section(quick: bool) -> Section:
    r = excitation_search.run(2, 3.0, 20) if quick else excitation_search.run()
    return r, excitation_search.table(r), excitation_search.missed(r)


def dyn_section(quick: bool) -> Section:
    r = dyn.torque_fit(seeds=2 if quick else 20)
    return r, dyn.table(r), list(r["problems"])


def kin_section(quick: bool) -> Section:
    r = kin.run(3, 4) if quick else kin.run()
    return r, kin.table(r), list(r["problems"])


def calibration_section(quick: bool) -> Section:
    r = calibration_speed.run(quick)
    return r, calibration_speed.table(r), list(r["problems"])


def figaroh_section(quick: bool) -> Section:
    from benchmarks import figaroh_accuracy, figaroh_speed

    accuracy = figaroh_accuracy.beside_figaroh(seeds=2 if quick else 5)
    speed = figaroh_speed.beside_figaroh()
    lines, missed = [], []
    for cell in accuracy["cells"]:
        lines.append(
            f"{accuracy['robot']}, {cell['noise']} noise, {cell['signals']} signals: worst joint's NRMSE "
            f"{100 * cell['own']:.3f} % (plain iwls {100 * cell['iwls']:.3f}), figaroh tuned "
            f"{100 * cell['tuned']:.3f} %, as in its example {100 * cell['example']:.2g} %; below the tuned one in "
            f"{cell['seeds_below']['tuned']} of {accuracy['seeds']} seeds"
        )
        if cell["own"] >= cell["tuned"]:
            missed.append(lines[-1])
    lines.append(
        f"base parameters and fit, {speed['rows']} rows: {speed['own_ms']:.0f} ms, figaroh "
        f"{speed['figaroh_ms']:.0f} ms: {speed['ratio']:.1f} times faster (target {speed['target']:g})"
    )
    missed += [] if speed["ratio"] >= speed["target"] else [lines[-1]]
    return {"accuracy": accuracy, "speed": speed}, lines, missed


def latency_section(quick: bool) -> Section:
    r = latency.run(15.0 if quick else 60.0)
    return r, latency.table(r).splitlines(), list(r["problems"])


def dashboard_section(quick: bool) -> Section:
    r = dashboard.run(8.0 if quick else 20.0)
    return r, dashboard.table(r), list(r["problems"])


def jobs_section(quick: bool) -> Section:
    r = jobs_latency.run(1, 12, 15.0) if quick else jobs_latency.run()
    return r, jobs_latency.table(r), list(r["problems"])


def dask_section(quick: bool) -> Section:
    r = jobs_dask.run(16 if quick else 64)
    return r, jobs_dask.table(r), list(r["problems"])


def ads_section(quick: bool) -> Section:
    try:
        r = ads_blocks.run(2.0 if quick else 6.0)
    except (RehearsalError, DriverError) as error:
        return {"failed": str(error)}, [], [f"ADS: {error}"]
    return r, ads_blocks.table(r), list(r["problems"])


def ethercat_section(quick: bool) -> Section:
    """Last of all: it moves this process to a network namespace of its own."""
    try:
        r = ethercat_cycle.run(5.0 if quick else 20.0)
    except RehearsalError as error:
        return {"skipped": str(error)}, [f"EtherCAT: skipped: {error}"], []
    return r, ethercat_cycle.table(r), []


SECTIONS: dict[str, Callable[[bool], Section]] = {
    "regressor": regressor_section,
    "online": online_section,
    "least_squares": least_squares_section,
    "torque_fit": torque_fit_section,
    "outliers": outliers_section,
    "dyn": dyn_section,
    "kin": kin_section,
    "calibration": calibration_section,
    "excitation": excitation_section,
    "excitation_search": excitation_search_section,
    "figaroh": figaroh_section,
    "networks": networks_section,
    "coverage": coverage_section,
    "latency": latency_section,
    "dashboard": dashboard_section,
    "jobs": jobs_section,
    "dask": dask_section,
    "ads": ads_section,
    "commission": commission.run,
    "zero_force": zero_force.run,
    "zero_force_daemon": zero_force_daemon.run,
    "temperature": temperature.run,
    "detector": detector.run_all,
    "faults": faults.run,
    "elastic": elastic_tracking.run,
    "elastic_arm": elastic_arm.run,
    "ethercat": ethercat_section,
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
        sys.stdout.write(json.dumps(json_values(results)) + "\n")
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
