"""The EtherCAT cycle on this machine: driver and simulated drives on a virtual cable, beside a loop that does nothing.

sudo .venv/bin/python benchmarks/ethercat_cycle.py [--seconds 20] [--json]

Nine drives at 1 kHz and 2 kHz and 24 drives at 1 kHz follow a motion.  Both ends share the machine's processors, which
a real segment does not: what is lost here is lost by the two together.  On a virtual machine the host
takes processors away as well (`stolen`): cycles lost to it say nothing about the loop.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drivers.driver import DriverTimeoutError
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.driver import EthercatDriver
from service.config.arm_tables import RealtimeConfig
from service.demo.hardware import RehearsalError, empty_loop, own_network, simulated_drives
from service.worker.realtime import apply_realtime
from sim_backend.ethercat.link import MASTER_END

PRIORITY, DRIVES_PRIORITY = 80, 50
ENABLE_S = 5.0
CASES = ((9, 1000), (9, 2000), (24, 1000))
REALTIME = RealtimeConfig(priority=PRIORITY)


def robot_file(joints: int) -> str:
    """Description of a chain of short links, its axes in turn upright and across."""
    lines = ["format = 1", f'name = "chain{joints}"', 'kinematics = "mdh"', 'gravity = "microgravity"']
    for k in range(joints):
        lines += [
            "[[joint]]", f'name = "joint_{k + 1}"', "a = 0.1", f"alpha_deg = {90 if k % 2 else -90}", "d = 0.0",
            "lower = -1.0", "upper = 1.0", "velocity = 1.0", "effort = 120", "mass = 0.1", "com = [0.05, 0.0, 0.0]",
            "inertia = [0.0001, 0.0, 0.0002, 0.0, 0.0, 0.0002]", "armature = 1.0", "viscous = 5.0", "coulomb = 3.0",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def configuration(joints: int, cycle_hz: int) -> EthercatConfig:
    """Generic drives, as `configs/ethercat_arm9.toml` has them."""
    device = {
        "vendor_id": 0xE5A,
        "product_code": 0x1001,
        "rx": {"1600": ["6040:00:16 controlword", "607A:00:32 target_position", "6060:00:8 mode", "0000:00:8"]},
        "tx": {"1A00": ["6041:00:16 statusword", "6064:00:32 position", "606C:00:32 velocity", "6077:00:16 torque"]},
        "counts_per_rev": 1_048_576,
    }
    drives = [{"joint": f"joint_{k + 1}", "device": "servo", "gear_ratio": 101.0} for k in range(joints)]
    table = {
        "interface": MASTER_END, "cycle_hz": cycle_hz, "enable": True, "bridge_cycles": 8, "drive": drives,
        "device": {"servo": device},
    }  # fmt: skip
    return EthercatConfig.model_validate(table)


def cycle(config: EthercatConfig, seconds: float, results: Any) -> None:
    """Run the driver's loop, all joints swinging, and put its report into `results`."""
    import numpy as np

    apply_realtime(REALTIME)
    n = len(config.drive)
    with EthercatDriver(config) as driver:
        frames, moved = 0, 0
        while frames < (seconds + ENABLE_S) * config.cycle_hz:
            try:
                frame = driver.read()
            except DriverTimeoutError:
                continue
            frames += 1
            if not driver.enabled or frame.q is None:
                moved = 0
                start = frame.q
                continue
            moved += 1
            t = moved / config.cycle_hz
            target = start + 0.1 * (1.0 - np.cos(2.0 * np.pi * 0.5 * t)) * np.where(np.arange(n) % 2, 1.0, -1.0)
            driver.command(target)
        results.put(driver.report() | {"enabled_at_the_end": driver.enabled})


def processor_time() -> tuple[float, float]:
    """Return the time of all processors since the start, and what of it the host took [ticks]."""
    fields = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[7]


def measure(joints: int, cycle_hz: int, seconds: float, directory: Path) -> dict[str, Any]:
    """Run one case."""
    robot, segment = directory / f"chain{joints}.toml", directory / f"chain{joints}_segment.toml"
    robot.write_text(robot_file(joints), encoding="utf-8")
    drives = "".join(f'[[drive]]\njoint = "joint_{k + 1}"\n' for k in range(joints))
    segment.write_text(f'robot = "{robot.name}"\n{drives}', encoding="utf-8")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with simulated_drives(segment, DRIVES_PRIORITY):
        all_before, stolen_before = processor_time()
        loop = context.Process(target=cycle, args=(configuration(joints, cycle_hz), seconds, results))
        loop.start()
        report = results.get(timeout=seconds + 120.0)
        loop.join()
        all_after, stolen_after = processor_time()
    cycles = report["frames"] + report["overruns"] + report["lost_cycles"]
    return {
        "drives": joints, "cycle_hz": cycle_hz, "cycles": cycles, "overruns": report["overruns"],
        "lost_cycles": report["lost_cycles"], "wkc_errors": report["wkc_errors"],
        "stolen": (stolen_after - stolen_before) / (all_after - all_before),
        "enabled_at_the_end": report["enabled_at_the_end"], "timing": report["timing"],
    }  # fmt: skip


def run(seconds: float = 20.0) -> dict[str, Any]:
    """All cases, and the empty loop."""
    own_network()
    with tempfile.TemporaryDirectory(prefix="thetad-cycle-") as name:
        cases = [measure(joints, rate, seconds, Path(name)) for joints, rate in CASES]
    return {"empty_loop_us": empty_loop(REALTIME, seconds), "cases": cases}


def table(result: dict[str, Any]) -> list[str]:
    """Lines to read."""
    empty = result["empty_loop_us"]
    lines = [f"empty loop at 1 kHz: period p50 {empty['p50_us']:.0f}, p99 {empty['p99_us']:.0f}, "
             f"p99.9 {empty['p999_us']:.0f}, max {empty['max_us']:.0f} us"]  # fmt: skip
    for case in result["cases"]:
        timing = case["timing"]
        missed = 100.0 * (case["overruns"] + case["lost_cycles"]) / case["cycles"]
        lines.append(
            f"{case['drives']} drives at {case['cycle_hz']} Hz: of {case['cycles']} cycles {case['overruns']} skipped, "
            f"{case['lost_cycles']} unanswered ({missed:.2f} %), {case['wkc_errors']} not complete; "
            f"{100.0 * case['stolen']:.1f} % of the processors' time stolen by the host; "
            + "; ".join(
                f"{name.replace('_', ' ')} p50 {timing[name]['p50_us']:.0f}, p99 {timing[name]['p99_us']:.0f}, "
                f"max {timing[name]['max_us']:.0f} us"
                for name in ("round_trip", "execution", "period")
            )
            + ("" if case["enabled_at_the_end"] else "; the drives dropped out")
        )
    return lines


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        result = run(arguments.seconds)
    except RehearsalError as error:
        print(f"ethercat_cycle: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result) if arguments.json else "\n".join(table(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
