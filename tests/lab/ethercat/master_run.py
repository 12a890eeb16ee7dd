"""pysoem against a segment in another process, all in the network namespace of this one; prints one JSON object.

unshare --net python -m tests.lab.ethercat.master_run {line|ring} COUNT CYCLES
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pysoem

from sim_backend.ethercat.link import Link

PERIOD_NS = 1_000_000
TIMEOUT_US = 50_000
FIRST, SECOND = Link(), Link("thetad2", "thetad3")


def start(master: pysoem.Master) -> dict[str, Any]:
    """Scan, map, synchronise, go to OP."""
    found: dict[str, Any] = {"scanned": master.config_init()}
    slaves = master.slaves
    found["identities"] = [(slave.man, slave.id, slave.rev) for slave in slaves]
    master.config_map()
    found["safeop"] = master.state_check(pysoem.SAFEOP_STATE, 1_000_000) == pysoem.SAFEOP_STATE
    before: list[int] = []
    for _ in range(20):  # SOEM takes a receive time that it could not read in 2 ms for zero: twice alike counts
        found["dc"] = master.config_dc()
        found["delays"] = numbers(master, 0x0928)
        if before and max(abs(a - b) for a, b in zip(found["delays"], before, strict=True)) <= 5:
            break
        before = found["delays"]
    for slave in slaves:
        slave.dc_sync(True, PERIOD_NS, 0)
    found["serials"] = [int.from_bytes(slave.sdo_read(0x1018, 4), "little") for slave in slaves]
    exchange(master, 1)
    master.state = pysoem.OP_STATE
    master.write_state()
    return found


def numbers(master: pysoem.Master, register: int) -> list[int]:
    """Read four bytes of each slave."""
    return [int.from_bytes(slave._fprd(register, 4, TIMEOUT_US), "little") for slave in master.slaves]


def exchange(master: pysoem.Master, cycles: int) -> tuple[dict[int, int], list[int], list[float]]:
    """Exchange process data; returns how often each working counter came, bus times [ns], round trips [us]."""
    counters: Counter[int] = Counter()
    times: list[int] = []
    trips: list[float] = []
    due = time.monotonic_ns()
    for _ in range(cycles):
        due = max(due + PERIOD_NS, time.monotonic_ns())
        time.sleep(max(0.0, (due - time.monotonic_ns()) * 1e-9))
        begin = time.perf_counter_ns()
        master.send_processdata()
        counter = master.receive_processdata(TIMEOUT_US)
        trips.append((time.perf_counter_ns() - begin) / 1000)
        counters[counter] += 1
        if counter > 0:
            times.append(master.dc_time)
    return dict(counters), times, trips


def line(count: int, cycles: int, _signal: Callable[[int], None]) -> dict[str, Any]:
    """Drive a line to OP and exchange process data."""
    master = pysoem.Master()
    master.open(FIRST.master)
    try:
        found = start(master)
        counters, times, trips = exchange(master, cycles)
        found["op"] = master.state_check(pysoem.OP_STATE, 1_000_000) == pysoem.OP_STATE
        master.read_state()
        found["states"] = [(slave.state, slave.al_status) for slave in master.slaves]
        found["counters"], found["expected"] = counters, master.expected_wkc
        found["times_rise"] = all(a < b for a, b in pairwise(times))
        found["differences"] = [number & 0x7FFFFFFF for number in numbers(master, 0x092C)]
        trips.sort()
        found["trips_us"] = [trips[len(trips) * p // 100] for p in (50, 99)]
        master.state = pysoem.INIT_STATE
        master.write_state()
    finally:
        master.close()
    return found


def ring(count: int, cycles: int, send: Callable[[int], None]) -> dict[str, Any]:
    """Drive a ring to OP, cut it, mend it; process data go on."""
    master = pysoem.Master()
    master.open(FIRST.master, SECOND.master)
    try:
        found = start(master)
        exchange(master, cycles)
        found["op"] = master.state_check(pysoem.OP_STATE, 1_000_000) == pysoem.OP_STATE
        found["intact"] = exchange(master, cycles)[0]
        send(signal.SIGUSR1)
        found["cut"] = exchange(master, cycles)[0]
        send(signal.SIGUSR2)
        found["mended"] = exchange(master, cycles)[0]
        master.read_state()
        found["states"] = [(slave.state, slave.al_status) for slave in master.slaves]
        found["expected"] = master.expected_wkc
    finally:
        master.close()
    return found


def main() -> int:
    """Make the cables, start the segment, run the master, stop the segment."""
    kind, count, cycles = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    links = [FIRST, SECOND][: 2 if kind == "ring" else 1]
    for link in links:
        link.up()
    ends = [link.segment for link in links]
    command = [sys.executable, "-m", "tests.lab.ethercat.segment_process", str(count), *ends]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        ready = server.stdout.readline().strip()
        assert ready == "ready", ready
        found = (ring if kind == "ring" else line)(count, cycles, server.send_signal)
    finally:
        server.terminate()
        rest, _ = server.communicate(timeout=20)
    found["server"] = (server.returncode, rest.split())
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
