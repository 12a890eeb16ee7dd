"""Samples from a simulated PLC: blocks of the ring beside sum reads of single variables, and the driver at 1 kHz.

.venv/bin/python benchmarks/ads_blocks.py [--seconds 6] [--json]

Nine axes and blocks of 10, 50 and 100 samples.  Blocks are read one a request, head included, and become frames.  The
peers read position, velocity, torque and current of each axis, 36 variables in one request, and get numbers as the PLC
has them: pyads by name with its symbol cache, and the driver's own link by handles kept.  All read as fast as they are
answered, the same values again if need be, in short rounds that alternate.

Both ends share the machine's processors, and the simulated PLC takes its time to answer: rates are those of the two
together.  Processor time is that of the reading process alone, with all its threads.
"""

import argparse
import contextlib
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyads

from drivers.ads._connection import Attached, attach
from drivers.ads.config import AdsConfig
from drivers.ads.driver import AdsDriver
from drivers.ads.link.link import VALUE_BY_HANDLE, Link
from drivers.ads.link.program import Head
from drivers.driver import DriverError
from drivers.frame import CHANNELS, JointFrame
from service.demo.hardware import Hardware, RehearsalError, bus_configuration

ROBOT = "arm9"
ADDRESS = "127.0.0.9"  # not that of a demonstration
BLOCK_SAMPLES = (10, 50, 100)
ROUNDS = 5
FIELDS = {"fPosition": "d", "fVelocity": "d", "fTorque": "f", "fCurrent": "f"}
PEERS = {"by_name": "pyads by name", "by_handle": "by handle"}

Reader = Callable[[], int]  # makes one request; returns the samples that came


def plc_file(block_samples: int, directory: Path) -> Path:
    """The shipped PLC with another number of samples a block."""
    _, shipped = bus_configuration("ads", ROBOT)
    lines = shipped.read_text(encoding="utf-8").splitlines()
    lines[lines.index("block_samples = 10")] = f"block_samples = {block_samples}"
    path = directory / f"plc_{block_samples}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def configuration(block_samples: int) -> AdsConfig:
    """The shipped arm, only looked at, and polled once a block."""
    arm, _ = bus_configuration("ads", ROBOT)
    changes = {"host": ADDRESS, "mode": "none", "enable": False, "poll_ms": float(block_samples)}
    return AdsConfig.model_validate(arm["driver"] | changes)


def blocks_reader(attached: Attached) -> Reader:
    """Read the newest complete block, and make its frames."""
    program, decoder = attached.program, attached.decoder
    head: Head = attached.head

    def read() -> int:
        nonlocal head
        number = head.blocks - 1
        head, (raw,) = program.read([number])
        if decoder.numbers(raw) != (number, number):
            return 0  # overwritten while the peers had their turn; the head is new now
        block, received_ns = decoder.decode(raw), time.monotonic_ns()
        if not block.intact.all():
            raise DriverError(f"block {number}: a checksum is wrong")
        columns = [block.channels[name] for name in CHANNELS] + [block.status_word]
        frames = [
            JointFrame(counter, time_ns, received_ns, *values)
            for counter, time_ns, values in zip(
                block.counter.tolist(), block.dc_ns.tolist(), zip(*columns, strict=True), strict=True
            )
        ]
        return len(frames)

    return read


def names(config: AdsConfig, attached: Attached) -> list[str]:
    """Variables of the newest sample of the newest complete block."""
    sample = f"{config.variables}.stLatest.aSample[{attached.sizes.block_samples - 1}]"
    return [f"{sample}.aAxis[{place}].{field}" for place in attached.places for field in FIELDS]


def by_name_reader(connection: pyads.Connection, variables: list[str]) -> Reader:
    """Read numbers by name; symbols are looked up in the first request only."""

    def read() -> int:
        values = connection.read_list_by_name(variables)
        if str in map(type, values.values()):  # pyads gives an item's error as its value
            raise DriverError(f"sum read: {values}")
        return 1

    return read


def by_handle_reader(link: Link, variables: list[str]) -> Reader:
    """Read numbers by handle, unpacked at once: about the least that a sum read takes in Python."""
    numbers = struct.Struct("<" + "".join(FIELDS.values()) * (len(variables) // len(FIELDS)))
    sizes = [struct.calcsize(kind) for kind in FIELDS.values()] * (len(variables) // len(FIELDS))
    places = [(VALUE_BY_HANDLE, link.handle(name), size) for name, size in zip(variables, sizes, strict=True)]

    def read() -> int:
        numbers.unpack(b"".join(link.sum_read(places, "variables")))
        return 1

    return read


def trial(read: Reader, seconds: float) -> dict[str, float]:
    """Requests and samples a second, and processor time of this process a sample [us]."""
    requests = samples = 0
    cpu, begin = time.process_time(), time.monotonic()
    while (wall := time.monotonic() - begin) < seconds:
        samples += read()
        requests += 1
    cpu = time.process_time() - cpu
    if not samples:
        raise DriverError(f"no sample within {seconds:g} s: choose more seconds, or free the machine")
    return {"requests_s": requests / wall, "samples_s": samples / wall, "cpu_us": 1e6 * cpu / samples}


def saturated(config: AdsConfig, seconds: float) -> dict[str, Any]:
    """Blocks beside the peers; medians over rounds, also of the ratios of a round."""
    with contextlib.ExitStack() as stack:
        link = Link(config.target)
        stack.callback(link.close)
        attached = attach(link, config)
        # Opened and closed within the link's life: closing removes the route that both use.
        connection = pyads.Connection(config.net_id, config.port, ADDRESS)
        connection.open()
        stack.callback(connection.close)
        variables = names(config, attached)
        readers = {
            "blocks": blocks_reader(attached),
            "by_name": by_name_reader(connection, variables),
            "by_handle": by_handle_reader(link, variables),
        }
        for read in readers.values():
            read()
        rounds = [
            {name: trial(read, seconds / (ROUNDS * len(readers))) for name, read in readers.items()}
            for _ in range(ROUNDS)
        ]
        block_ms = attached.block_ns * 1e-6
    result: dict[str, Any] = {"block_ms": block_ms, "variables": len(variables)}
    for name in readers:
        result[name] = {key: statistics.median(each[name][key] for each in rounds) for key in rounds[0][name]}
    for peer in PEERS:
        result[peer]["blocks_samples_ratio"] = statistics.median(
            each["blocks"]["samples_s"] / each[peer]["samples_s"] for each in rounds
        )
        result[peer]["cpu_ratio"] = statistics.median(
            each[peer]["cpu_us"] / each["blocks"]["cpu_us"] for each in rounds
        )
    return result


def real_time(config: AdsConfig, seconds: float) -> dict[str, Any]:
    """The driver at the PLC's rate; samples lost and repeated by the PLC's own time, which lies on the task's grid."""
    with AdsDriver(config) as driver:
        cycle_ns = round(1e9 / driver.info.rate_hz)
        times = [driver.read().t_bus_ns]
        cpu, begin = time.process_time(), time.monotonic()
        while time.monotonic() - begin < seconds:
            times.append(driver.read().t_bus_ns)
        cpu, wall = time.process_time() - cpu, time.monotonic() - begin
        age = driver.report()["timing"]["age"]
    cycles = {round((t - times[0]) / cycle_ns) for t in times}
    return {
        "samples": len(times), "seconds": wall, "cpu_us": 1e6 * cpu / (len(times) - 1), "core": cpu / wall,
        "lost": max(cycles) - min(cycles) + 1 - len(cycles), "repeated": len(times) - len(cycles),
        "age_p50_us": age["p50_us"],
    }  # fmt: skip


def run(seconds: float = 6.0) -> dict[str, Any]:
    """All sizes of blocks, each `seconds` as fast as possible and `seconds` in real time.

    `problems` lists in sentences where the driver lost or repeated samples.
    """
    cases = []
    with tempfile.TemporaryDirectory(prefix="thetad-ads-") as directory:
        for size in BLOCK_SAMPLES:
            config = configuration(size)
            with Hardware("plc", str(plc_file(size, Path(directory))), "--address", ADDRESS):
                cases.append(
                    {"axes": len(config.axis), "block_samples": size, **saturated(config, seconds)}
                    | {"real_time": real_time(config, seconds)}
                )
    problems = [
        f"ADS, blocks of {case['block_samples']}: the driver lost {case['real_time']['lost']} samples and repeated "
        f"{case['real_time']['repeated']} of {case['real_time']['samples']}"
        for case in cases
        if case["real_time"]["lost"] or case["real_time"]["repeated"]
    ]
    return {"cases": cases, "problems": problems}


def table(result: dict[str, Any]) -> list[str]:
    """Lines to read."""
    lines = []
    for case in result["cases"]:
        own, live = case["blocks"], case["real_time"]
        lines.append(
            f"ADS, {case['axes']} axes, blocks of {case['block_samples']} samples ({case['block_ms']:g} ms): "
            f"{own['requests_s']:.0f} blocks/s, {own['samples_s']:.0f} samples/s, {own['cpu_us']:.1f} us of processor "
            "time a sample"
        )
        for peer, label in PEERS.items():
            sums = case[peer]
            lines.append(
                f"  sum reads of {case['variables']} variables, {label}: {sums['requests_s']:.0f} samples/s, "
                f"{sums['cpu_us']:.0f} us a sample: blocks {sums['blocks_samples_ratio']:.1f} times the samples/s, "
                f"1/{sums['cpu_ratio']:.1f} of the processor time"
            )
        lines.append(
            f"  driver in real time: {live['samples']} samples in {live['seconds']:.1f} s, {live['cpu_us']:.1f} us a "
            f"sample ({100.0 * live['core']:.1f} % of a core), {live['lost']} lost, {live['repeated']} repeated, "
            f"age of a block's last sample p50 {1e-3 * live['age_p50_us']:.1f} ms"
        )
    return lines


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        result = run(arguments.seconds)
    except (RehearsalError, DriverError) as error:
        print(f"ads_blocks: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result) if arguments.json else "\n".join(table(result)))
    for problem in result["problems"]:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
