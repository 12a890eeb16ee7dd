"""An arm of six joints with drives of the given layouts, as a process at an interface; ends on SIGTERM.

python -m tests.lab.ethercat.arm_process DEVICE,... INTERFACE [FAR_END]
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from drivers.files.robots.file import load_robot
from sim_backend.ethercat.build import build_segment
from sim_backend.ethercat.server import Server
from sim_backend.ethercat.settings import DriveSettings, SegmentSettings

ROBOT = "space6"


def main() -> int:
    """Serve until told to stop."""
    devices, *interfaces = sys.argv[1:]
    joints = [joint.name for joint in load_robot(ROBOT).model.joints]
    drives = [
        DriveSettings(joint=joint, device=device, alias=10 + k, serial=100 + k, clock_ppm=7.0 * k)
        for k, (joint, device) in enumerate(zip(joints, devices.split(","), strict=True))
    ]
    settings = SegmentSettings(robot=ROBOT, ring=len(interfaces) == 2, drive=tuple(drives))
    segment = build_segment(settings, time.monotonic_ns()).segment
    server = Server(segment, tuple(interfaces))
    server.run(ready=lambda: print("ready", flush=True))
    server.close()
    return 0


@contextmanager
def arm(devices: list[str], *interfaces: str) -> Iterator[None]:
    """Run this program; it has gone afterwards."""
    command = [sys.executable, "-m", "tests.lab.ethercat.arm_process", ",".join(devices), *interfaces]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == "ready"
            yield
        finally:
            process.terminate()
            process.communicate(timeout=20)


if __name__ == "__main__":
    sys.exit(main())
