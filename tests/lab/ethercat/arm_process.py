"""An arm of six joints with drives of the given layouts, as a process at an interface; ends on SIGTERM.

python -m tests.lab.ethercat.arm_process DEVICE,... INTERFACE [FAR_END]
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from drivers.files.robots.file import load_robot
from sim_backend.ethercat.build import build_segment
from sim_backend.ethercat.server import Server
from sim_backend.ethercat.settings import DriveSettings, SegmentSettings

ROBOT = "space6"


def main() -> int:
    """Serve until told to stop; SIGUSR1 cuts the cable behind the second drive, SIGUSR2 mends it."""
    devices, *interfaces = sys.argv[1:]
    joints = [joint.name for joint in load_robot(ROBOT).model.joints]
    drives = [
        DriveSettings(joint=joint, device=device, alias=10 + k, serial=100 + k, clock_ppm=7.0 * k)
        for k, (joint, device) in enumerate(zip(joints, devices.split(","), strict=True))
    ]
    settings = SegmentSettings(robot=ROBOT, ring=len(interfaces) == 2, drive=tuple(drives))
    segment = build_segment(settings, time.monotonic_ns()).segment
    server = Server(segment, tuple(interfaces))
    signal.signal(signal.SIGUSR1, lambda *_: segment.cut(2))
    signal.signal(signal.SIGUSR2, lambda *_: segment.mend())
    server.run(ready=lambda: print("ready", flush=True))
    server.close()
    return 0


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that answers frames; it has gone afterwards."""
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == "ready"
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=20)


def arm(devices: list[str], *interfaces: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run this program."""
    return serving("tests.lab.ethercat.arm_process", ",".join(devices), *interfaces)


if __name__ == "__main__":
    sys.exit(main())
