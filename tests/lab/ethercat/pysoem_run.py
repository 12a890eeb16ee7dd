"""pysoem against a simulated arm, in the network namespace of this process; prints one JSON object.

unshare --net python -m tests.lab.ethercat.pysoem_run [CAPTURE]

The session uses services, is refused some, starts anew, exchanges process data for a thousand cycles with
synchronised clocks, and takes one drive out of OP.  CAPTURE names the file for the frames that pass.
"""

import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pysoem

from sim_backend.ethercat.link import Link
from tests.lab.capture import captured
from tests.lab.ethercat.arm_process import arm
from tests.lab.ethercat.namespace import die_with_parent

LINK = Link()
DEVICES = ["generic_servo", "harmonic_actuator", "compact_csp"] * 2
PERIOD_NS = 1_000_000
TIMEOUT_US = 50_000
TEXT = bytes(65 + k % 26 for k in range(600))
RECORD = bytes(range(256))


def exchange(master: Any, cycles: int) -> dict[int, int]:
    """Exchange process data; returns how often each working counter came."""
    counters: Counter[int] = Counter()
    for _ in range(cycles):
        master.send_processdata()
        counters[master.receive_processdata(TIMEOUT_US)] += 1
        time.sleep(PERIOD_NS * 1e-9)
    return dict(counters)


def reach(master: Any, state: int) -> list[tuple[int, int]]:
    """Request an AL state and exchange process data until it is there; returns each drive's, with its code."""
    master.state = state
    master.write_state()
    for _ in range(500):
        exchange(master, 1)
        if master.state_check(state, 1000) == state:
            break
    master.read_state()
    return [(slave.state, slave.al_status) for slave in master.slaves]


def numbers(master: Any, register: int, count: int = 4) -> list[int]:
    """Read a register of each drive."""
    return [int.from_bytes(slave._fprd(register, count, TIMEOUT_US), "little") for slave in master.slaves]


def map_and_synchronise(master: Any) -> bool:
    """Go to SAFEOP, measure the delays until they come twice alike, and switch SYNC0 on; False without SAFEOP.

    Below SAFEOP a drive does not count in process data.  SOEM takes a receive time that it has missed for zero.
    """
    master.config_map()
    if master.state_check(pysoem.SAFEOP_STATE, 500_000) != pysoem.SAFEOP_STATE:
        return False
    before: list[int] = []
    for _ in range(20):
        master.config_dc()
        delays = numbers(master, 0x0928)
        if before and max(abs(a - b) for a, b in zip(delays, before, strict=True)) <= 5:
            break
        before = delays
    for slave in master.slaves:
        slave.dc_sync(True, PERIOD_NS, 0)
    return True


def start(master: Any, count: int = len(DEVICES)) -> None:
    """Scan, map and synchronise; again where SOEM, which waits 2 ms for each reply, has missed one."""
    for _ in range(5):
        if master.config_init() != count or not map_and_synchronise(master):
            continue
        if set(exchange(master, 3)) == {3 * count}:  # SOEM expects less where it has missed an FMMU
            break


def aborted(call: Callable[[], object]) -> str:
    """Return the abort code of a refused service."""
    try:
        call()
    except (pysoem.SdoError, pysoem.SdoInfoError) as error:
        return f"{error.abort_code:08X}"
    return "done"


def services(master: Any) -> dict[str, Any]:
    """Use services of every kind; pysoem itself checks headers, toggle bits and working counters."""
    found: dict[str, Any] = {"scanned": master.config_init()}
    servo, actuator, compact = master.slaves[:3]
    for slave in (servo, actuator):
        slave.sdo_read(0x1018, 0, ca=True)
    (period,) = [item for item in servo.od if item.index == 0x60C2]
    found["entries"] = [entry.name.decode() for entry in period.entries]

    servo.sdo_write(0x2000, 0, TEXT)
    actuator.sdo_write(0x2270, 0, RECORD)
    servo.sdo_read(0x2000, 0, 1000)
    found["aborts"] = [
        aborted(lambda: servo.sdo_read(0x5555, 0)), aborted(lambda: servo.sdo_read(0x1018, 7)),
        aborted(lambda: servo.sdo_write(0x6041, 0, b"\0\0")), aborted(lambda: servo.sdo_write(0x6040, 0, bytes(4))),
        aborted(lambda: compact.sdo_write(0x6041, 0, bytes(100))),
        aborted(lambda: compact.sdo_read(0x1018, 0, ca=True)),
        aborted(lambda: servo.sdo_write(0x1600, 0, struct.pack("<HI", 1, 0x60410010), ca=True)),
        aborted(lambda: actuator.sdo_write(0x1A03, 0, b"\0")), aborted(lambda: compact.sdo_write(0x1C13, 0, b"\0")),
    ]  # fmt: skip

    servo.sdo_write(0x1600, 0, struct.pack("<HIII", 3, 0x60400010, 0x607A0020, 0x60600008), ca=True)
    actuator.sdo_write(0x1C13, 0, struct.pack("<HH", 1, 0x1A03), ca=True)
    map_and_synchronise(master)
    reach(master, pysoem.OP_STATE)
    found["in_op"] = aborted(lambda: servo.sdo_write(0x1C12, 0, b"\0"))
    master.state = pysoem.INIT_STATE
    master.write_state()
    master.state_check(pysoem.INIT_STATE, 500_000)
    return found


def single_states(master: Any) -> list[list[int]]:
    """Take one drive out of OP and in again, while the others stay."""
    servo = master.slaves[3]
    seen = []
    for state in (pysoem.SAFEOP_STATE, pysoem.OP_STATE):
        servo.state = state
        servo.write_state()
        for _ in range(500):
            exchange(master, 1)
            if servo.state_check(state, 1000) == state:
                break
        master.read_state()
        seen.append([slave.state for slave in master.slaves])
    return seen


def session(master: Any) -> dict[str, Any]:
    """Use the services, then start anew without switching anything off, and stay in OP."""
    found = services(master)
    start(master)
    found["delays_ns"] = numbers(master, 0x0928)
    found["op"] = reach(master, pysoem.OP_STATE)
    exchange(master, 1000)
    found["single"] = single_states(master)
    return found


def main() -> int:
    """Make the cable, start the drives, run the master."""
    die_with_parent()
    LINK.up()
    with ExitStack() as stack:
        if capture := sys.argv[1:]:
            stack.enter_context(captured(LINK.master, "ether proto 0x88a4", Path(capture[0])))
        stack.enter_context(arm(DEVICES, LINK.segment))
        master = pysoem.Master()
        master.open(LINK.master)
        stack.callback(master.close)
        print(json.dumps(session(master)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
