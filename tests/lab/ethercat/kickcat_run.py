"""The kickcat master against a simulated arm, in the network namespace of this process; prints one JSON object.

unshare --net python -m tests.lab.ethercat.kickcat_run {motion|layouts}

Its Python interface has no distributed clocks, so the actuators, which need SYNC0, cannot go to OP.  It overlooks SDO
aborts, which come as messages of the service "SDO request": nothing here is refused by one.  The drives are in a ring,
because on a line it waits for the whole time-out after each broadcast, some hundred times in a scan.
"""

import json
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kickcat
from kickcat import State
from kickcat.mailbox.request import MessageStatus

from sim_backend.ethercat.link import Link
from tests.lab.ethercat.arm_process import arm
from tests.lab.ethercat.namespace import die_with_parent

SERVO, ACTUATOR, COMPACT = "generic_servo", "harmonic_actuator", "compact_csp"
MOVING = [SERVO, COMPACT] * 3
ALL = [SERVO, ACTUATOR, COMPACT] * 2
TURN = 101 * 1_048_576  # units of the servo's 0x6064 in a turn of its joint
SET_PERIOD_MS = 10  # longer than the master's cycle, which nothing ties to that of the drives
PERIOD_S = 1e-3
TIMEOUT_S, CYCLE_TIMEOUT_S = 0.5, 0.03  # two of the second are less than the drives' watchdog
RUNS_AT_MOST = 5
TEXT = b"tool changer, arm 2".ljust(200, b".")


def outputs(device: str, controlword: int, target: int) -> bytes:
    """Return the output image of a drive as it is without mapping: 0x1600, or 0x1601 of the compact one."""
    if device == SERVO:
        return struct.pack("<HiihhbB", controlword, target, 0, 0, 0, 8, 0)
    return struct.pack("<Hi", controlword, target)


class Bench:
    """The master and its cyclic exchange."""

    def __init__(self, devices: list[str], interface: str, far_end: str) -> None:
        self.devices = devices
        link = kickcat.create_link(interface, far_end)
        link.set_timeout(TIMEOUT_S)
        self.bus = kickcat.Bus(link)
        self.bus.init(5.0)
        link.set_timeout(CYCLE_TIMEOUT_S)
        self.slaves = self.bus.slaves()
        self.control, self.targets = 0, [0] * len(self.slaves)

    def read(self, slave: Any, index: int, subindex: int = 0, size: int = 4, access: Any = kickcat.PARTIAL) -> bytes:
        return bytes(self.bus.read_sdo(slave, index, subindex, access, size, 2.0))

    def write(self, slave: Any, index: int, subindex: int, data: bytes) -> bool:
        message = slave.mailbox.write_sdo(index, subindex, False, data, 2.0)
        while message.status() == MessageStatus.RUNNING:
            self.bus.process_mailboxes()
        return bool(message.status() == MessageStatus.SUCCESS)

    def send(self) -> None:
        """Exchange process data; kickcat raises where a working counter is not what it must be."""
        for device, slave, target in zip(self.devices, self.slaves, self.targets, strict=True):
            slave.set_output_bytes(outputs(device, self.control, target))
        self.bus.process_data()

    def received(self) -> list[tuple[int, int]]:
        """Statusword and position of each drive; both layouts begin with them."""
        return [struct.unpack_from("<Hi", slave.input_data) for slave in self.slaves]

    def to(self, state: State, cyclic: bool = False) -> None:
        self.bus.request_state(state)
        if cyclic:
            self.bus.wait_for_state(state, 5.0, self.send)
        else:
            self.bus.wait_for_state(state, 5.0)

    def enable(self) -> list[bool]:
        """Go to OP, and switch the drives on where they stand."""
        for slave in self.slaves:
            if not self.write(slave, 0x60C2, 1, bytes([SET_PERIOD_MS])):
                raise RuntimeError("the drives take no interpolation period")
        self.bus.create_mapping()
        self.to(State.SAFE_OP)
        self.send()
        self.to(State.OPERATIONAL, cyclic=True)
        self.targets = [position for _, position in self.received()]
        walk = [self.command(word, state) for word, state in ((0x06, 0x21), (0x07, 0x23), (0x0F, 0x27))]
        if not all(walk):
            raise RuntimeError(f"the drives do not follow: {walk}, {self.received()}")
        return walk

    def command(self, controlword: int, wanted: int) -> bool:
        """Give a controlword until all drives show a state, masked as CiA 402 has it."""
        self.control = controlword
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            self.send()
            if all(status & 0x6F == wanted for status, _ in self.received()):
                return True
            time.sleep(PERIOD_S)
        return False


def services(bench: Bench) -> dict[str, Any]:
    """SDOs in PREOP: expedited, normal, segmented, complete access, SDO information."""
    bus, slaves = bench.bus, bench.slaves
    servo, compact = slaves[bench.devices.index(SERVO)], slaves[bench.devices.index(COMPACT)]
    found: dict[str, Any] = {
        "addresses": [slave.address for slave in slaves],
        "names": [bench.read(slave, 0x1008, 0, 64).decode() for slave in slaves],
        "serials": [int.from_bytes(bench.read(slave, 0x1018, 4), "little") for slave in slaves],
        "identity": bench.read(servo, 0x1018, 0, 64, kickcat.COMPLETE).hex(),
        "emulated": bench.read(compact, 0x1018, 0, 64, kickcat.EMULATE_COMPLETE).hex(),
    }
    found["written"] = [
        bench.write(servo, 0x6065, 0, struct.pack("<I", 3_000_000)),
        bench.write(compact, 0x6066, 0, struct.pack("<H", 70)),
        bench.write(servo, 0x2000, 0, TEXT),
    ]
    found["read"] = [
        int.from_bytes(bench.read(servo, 0x6065), "little"),
        int.from_bytes(bench.read(compact, 0x6066, 0, 2), "little"),
        bench.read(servo, 0x2000, 0, 1000) == TEXT,
    ]
    found["object"] = bus.read_object_description(servo, 0x60C2)
    found["entry"] = bus.read_entry_description(servo, 0x60C2, 1)
    return found


def motion(interface: str, far_end: str) -> dict[str, Any]:
    """Enable the drives, compare process data with an object, switch them off again."""
    bench = Bench(MOVING, interface, far_end)
    found: dict[str, Any] = {"walk": bench.enable()}
    found["states"] = [bench.bus.get_state(slave) == State.OPERATIONAL for slave in bench.slaves]
    message = bench.slaves[0].mailbox.read_sdo(0x6064, 0, False, 2.0)
    while message.status() == MessageStatus.RUNNING:
        bench.bus.process_mailboxes()
        bench.send()
    by_sdo = int.from_bytes(message.data[: message.size], "little", signed=True)
    found["both_ways"] = (by_sdo - bench.received()[0][1]) / TURN
    found["off"] = bench.command(0x06, 0x21)
    bench.to(State.SAFE_OP)
    bench.to(State.INIT)
    return found


def layouts(interface: str, far_end: str) -> dict[str, Any]:
    """Use the services of all layouts and take them to SAFEOP; the actuators refuse OP without SYNC0."""
    bench = Bench(ALL, interface, far_end)
    found = services(bench)
    bench.bus.create_mapping()
    found["sizes"] = [(slave.output_size, slave.input_size) for slave in bench.slaves]
    bench.to(State.SAFE_OP)
    found["states"] = [bench.bus.get_state(slave) == State.SAFE_OP for slave in bench.slaves]
    found["refused"] = False
    try:
        bench.to(State.OPERATIONAL, cyclic=True)
    except kickcat.ErrorAL:
        found["refused"] = True
    return found


RUNS: dict[str, tuple[Callable[..., dict[str, Any]], list[str]]] = {
    "motion": (motion, MOVING),
    "layouts": (layouts, ALL),
}


def patiently(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run again where the machine stood still for longer than the drives' watchdog or the master allows."""
    for _ in range(RUNS_AT_MOST - 1):
        with suppress(RuntimeError, kickcat.ErrorAL):
            return run()
        time.sleep(1.0)  # replies that are still on their way would answer the next run
    return run()


def main() -> int:
    """Make the cable, start the segment, run the master."""
    die_with_parent()
    run, devices = RUNS[sys.argv[1]]
    links = [Link(), Link("thetad2", "thetad3")]
    for link in links:
        link.up()
    with arm(devices, *[link.segment for link in links]):
        found = patiently(lambda: run(*[link.master for link in links]))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
