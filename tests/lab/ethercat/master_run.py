"""pysoem against a segment in another process, all in the network namespace of this one; prints one JSON object.

unshare --net python -m tests.lab.ethercat.master_run COUNT CYCLES
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pysoem

from sim_backend.ethercat.link import Link

PERIOD_NS = 1_000_000
TIMEOUT_US = 50_000
LINK = Link()


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


def exchange(master: pysoem.Master, cycles: int) -> tuple[dict[int, int], list[int]]:
    """Exchange process data; returns how often each working counter came, and bus times [ns]."""
    counters: Counter[int] = Counter()
    times: list[int] = []
    due = time.monotonic_ns()
    for _ in range(cycles):
        due = max(due + PERIOD_NS, time.monotonic_ns())
        time.sleep(max(0.0, (due - time.monotonic_ns()) * 1e-9))
        master.send_processdata()
        counter = master.receive_processdata(TIMEOUT_US)
        counters[counter] += 1
        if counter > 0:
            times.append(master.dc_time)
    return dict(counters), times


def line(cycles: int) -> dict[str, Any]:
    """Drive a line to OP and exchange process data."""
    master = pysoem.Master()
    master.open(LINK.master)
    try:
        found = start(master)
        counters, times = exchange(master, cycles)
        found["op"] = master.state_check(pysoem.OP_STATE, 1_000_000) == pysoem.OP_STATE
        master.read_state()
        found["states"] = [(slave.state, slave.al_status) for slave in master.slaves]
        found["counters"], found["expected"] = counters, master.expected_wkc
        found["times_rise"] = all(a < b for a, b in pairwise(times))
        found["differences"] = [number & 0x7FFFFFFF for number in numbers(master, 0x092C)]
        master.state = pysoem.INIT_STATE
        master.write_state()
    finally:
        master.close()
    return found


def main() -> int:
    """Make the cable, start the segment, run the master, stop the segment."""
    count, cycles = sys.argv[1:]
    LINK.up()
    command = [sys.executable, "-m", "tests.lab.ethercat.segment_process", count, LINK.segment]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        ready = server.stdout.readline().strip()
        assert ready == "ready", ready
        found = line(int(cycles))
    finally:
        server.terminate()
        rest, _ = server.communicate(timeout=20)
    found["server"] = (server.returncode, rest.split())
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
