"""A segment of generic drives moving an arm, as a process at an interface; ends on SIGTERM.

python -m tests.lab.ethercat.segment_process COUNT INTERFACE [FAR_END]
"""

from __future__ import annotations

import signal
import sys
import time
from functools import partial

from drivers.files.robots.file import load_robot
from sim_backend.errors import SimulationError
from sim_backend.ethercat._clock import ClockSettings
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.server import Server

ROBOTS = {6: "space6", 7: "arm7", 9: "arm9"}


def make_segment(count: int, *, ring: bool = False, now_ns: int = 0) -> Segment:
    """Drives with clocks that run apart."""
    profile = load_profile("generic_servo")
    fittings = [DriveFitting(profile, build_dictionary(profile, k)) for k in range(count)]
    machine = Machine(load_robot(ROBOTS[count]).model, fittings)
    factories = [partial(SlaveController, profile=profile, dictionary=each.dictionary) for each in fittings]
    clocks = [ClockSettings(20.0 * (-1) ** k + k, 10**9 * k) for k in range(count)]
    return Segment(factories, machine, ring=ring, clocks=clocks, now_ns=now_ns)


def main() -> int:
    """Serve until told to stop; a refusal is one line and exit code 2."""
    count, *interfaces = sys.argv[1:]
    segment = make_segment(int(count), ring=len(interfaces) == 2, now_ns=time.monotonic_ns())
    try:
        server = Server(segment, tuple(interfaces))
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGUSR1, lambda *_: segment.cut(2))
    signal.signal(signal.SIGUSR2, lambda *_: segment.mend())
    server.run(ready=lambda: print("ready", flush=True))
    server.close()
    print(f"steps {segment.steps} skipped {segment.skipped} frames {server.frames} unsent {server.unsent}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
