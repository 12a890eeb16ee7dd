"""pysoem against a simulated arm, in the network namespace of this process; prints one JSON object.

unshare --net python -m tests.lab.ethercat.commands_run {services|commands|ring} [CAPTURE]

`services` is the session of `services_run`, then one thousand cycles with synchronised clocks. `commands` is what the
other programs leave of pysoem's commands, `ring` services and process data of a ring that breaks.
CAPTURE names the file for the frames that pass.
"""

from __future__ import annotations

import json
import signal
import struct
import subprocess
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
from tests.lab.ethercat.arm_process import arm, serving
from tests.lab.ethercat.namespace import die_with_parent
from tests.lab.ethercat.services_run import DEVICES, ask

FIRST, SECOND = Link(), Link("thetad2", "thetad3")
ARM = list(DEVICES) * 2
PERIOD_NS = 1_000_000
TIMEOUT_US = 50_000
WATCHDOG = 0x001B


def exchange(master: Any, cycles: int, overlap: bool = False) -> dict[int, int]:
    """Exchange process data; returns how often each working counter came."""
    counters: Counter[int] = Counter()
    for _ in range(cycles):
        if overlap:
            master.send_overlap_processdata()
        else:
            master.send_processdata()
        counters[master.receive_processdata(TIMEOUT_US)] += 1
        time.sleep(PERIOD_NS * 1e-9)
    return dict(counters)


def reach(master: Any, state: int, overlap: bool = False) -> list[tuple[int, int]]:
    """Ask for an AL state and exchange process data until it is there; returns each drive's, with its code."""
    master.state = state
    master.write_state()
    for _ in range(500):
        exchange(master, 1, overlap)
        if master.state_check(state, 1000) == state:
            break
    master.read_state()
    return [(slave.state, slave.al_status) for slave in master.slaves]


def synchronise(master: Any) -> bool:
    """Measure the delays, and switch SYNC0 on."""
    done = master.config_dc()
    for slave in master.slaves:
        slave.dc_sync(True, PERIOD_NS, 0)
    return bool(done)


def services(master: Any, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Use the services, then start anew without switching anything off, and stay in OP."""
    found = ask(master)
    start(master)
    found["again"] = len(master.slaves)
    found["op"] = reach(master, pysoem.OP_STATE)
    found["counters"] = exchange(master, 1000)
    return found


def commands(master: Any, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Mappings of all kinds, states of one drive, watchdog, recovery, emergencies, mailboxes elsewhere."""
    found: dict[str, Any] = {"scanned": master.config_init()}
    servo, actuator = master.slaves[:2]

    configured: list[str] = []

    def select(slave: Any) -> None:
        configured.append(slave.name)
        slave.sdo_write(0x1C12, 0, struct.pack("<HH", 1, 0x1602), ca=True)

    actuator.setup_func = select
    servo.config_func = lambda position: configured.append(f"number {position}")
    found["overlap"] = master.config_overlap_map()
    found["configured"] = configured
    found["sizes"] = [(len(slave.output), len(slave.input)) for slave in master.slaves]
    found["dc"] = synchronise(master)
    exchange(master, 1, overlap=True)
    found["overlap_op"] = reach(master, pysoem.OP_STATE, overlap=True)
    found["overlap_counters"] = exchange(master, 200, overlap=True)
    found["inputs"] = [struct.unpack_from("<H", slave.input)[0] for slave in master.slaves]
    reach(master, pysoem.INIT_STATE, overlap=True)

    found["mailbox"] = mailboxes(master)
    start(master)
    found["op"] = reach(master, pysoem.OP_STATE)
    found["single"] = single_states(master)
    found["watchdog"] = watchdog(master)
    found["recovered"] = recovery(master)
    found["emergency"] = emergency(master)
    found["sync"] = sync_registers(master.slaves[0])
    found["counters"] = exchange(master, 100)
    found["files"] = files(master.slaves[0])
    return found


def start(master: Any) -> None:
    """Scan, map and synchronise; again where SOEM, which waits 2 ms for each reply, has missed one."""
    for _ in range(5):
        master.config_init()
        master.config_map()
        synchronise(master)
        exchange(master, 1)
        if set(exchange(master, 3)) == {master.expected_wkc}:
            break


def mailboxes(master: Any) -> dict[str, Any]:
    """Change states by hand, with a mailbox that is shorter than usual, and objects read entry by entry."""
    found: dict[str, Any] = {}
    master.manual_state_change = 1
    master.config_init()
    servo = master.slaves[0]
    servo._disable_complete_access()
    servo.state = pysoem.INIT_STATE
    servo.write_state()
    found["init"] = servo.state_check(pysoem.INIT_STATE, 100_000)
    servo.amend_mbx("out", 0x1000, 64)
    servo.amend_mbx("in", 0x1100, 64)
    master.state = pysoem.PREOP_STATE
    master.write_state()
    found["preop"] = master.state_check(pysoem.PREOP_STATE, 500_000)
    found["managers"] = [servo._fprd(0x0800 + 8 * k, 4).hex() for k in range(2)]
    servo.sdo_write(0x2000, 0, bytes(range(32, 127)) * 3)
    found["text"] = servo.sdo_read(0x2000, 0, 1000) == bytes(range(32, 127)) * 3
    master.config_map()
    found["still_preop"] = master.state_check(pysoem.PREOP_STATE, 500_000)
    found["sizes"] = [(len(slave.output), len(slave.input)) for slave in master.slaves]
    master.manual_state_change = 0
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


def watchdog(master: Any) -> dict[str, Any]:
    """Shorten the watchdog of one drive, stop sending, acknowledge."""
    servo = master.slaves[3]
    found: dict[str, Any] = {"before": [slave.get_watchdog("processdata") for slave in master.slaves]}
    servo.set_watchdog("processdata", 60.0)
    found["after"] = servo.get_watchdog("processdata")
    time.sleep(0.3)
    master.read_state()
    found["tripped"] = [(slave.state, slave.al_status) for slave in master.slaves]
    master.state = pysoem.SAFEOP_STATE + pysoem.STATE_ACK
    master.write_state()
    master.state_check(pysoem.SAFEOP_STATE, 500_000)
    found["op"] = reach(master, pysoem.OP_STATE)
    return found


def recovery(master: Any) -> dict[str, Any]:
    """Give an address back to a drive that has lost it, and configure one anew that has fallen to INIT."""
    compact, servo = master.slaves[2], master.slaves[3]
    address = compact._fprd(0x0010, 2)
    compact._fpwr(0x0010, bytes(2))
    compact.is_lost = True
    found: dict[str, Any] = {"lost": exchange(master, 1), "recovered": compact.recover(500_000)}
    found["address"] = compact._fprd(0x0010, 2) == address
    servo.state = pysoem.INIT_STATE
    servo.write_state()
    found["init"] = servo.state_check(pysoem.INIT_STATE, 500_000)
    found["without"] = exchange(master, 5)
    found["reconfigured"] = servo.reconfig(500_000)
    found["op"] = reach(master, pysoem.OP_STATE)
    return found


def emergency(master: Any) -> dict[str, Any]:
    """Switch a servo on, command a jump that it cannot follow, hear of it, and reset the fault."""
    servo = master.slaves[3]
    told: list[Any] = []
    servo.add_emergency_callback(told.append)
    found: dict[str, Any] = {}

    def command(word: int, target: int, mask: int, wanted: int) -> bool:
        servo.output = struct.pack("<HiihhbB", word, target, 0, 0, 0, 8, 0)
        for _ in range(1000):
            exchange(master, 1)
            if struct.unpack_from("<H", servo.input)[0] & mask == wanted:
                return True
        return False

    here = struct.unpack_from("<i", servo.input, 2)[0]
    walk = ((0x06, 0x21), (0x07, 0x23), (0x0F, 0x27))
    found["enabled"] = all(command(word, here, 0x6F, state) for word, state in walk)
    found["fault"] = command(0x0F, here + 2**30, 0x4F, 0x08)
    for _ in range(500):
        servo.mbx_receive()
        if told:
            break
        exchange(master, 1)
    found["told"] = [(each.slave_pos, each.error_code, each.error_reg) for each in told]
    found["error_code"] = int.from_bytes(servo.sdo_read(0x603F, 0), "little")
    found["history"] = servo.sdo_read(0x1001, 0)[0]
    command(0x00, here, 0x4F, 0x08)
    found["reset"] = command(0x80, here, 0x4F, 0x40)
    return found


def files(slave: Any) -> dict[str, Any]:
    """Use a service that no drive has; SOEM has such an answer repeated until its time is over, and lists each."""
    codes, answer = [], ""
    for transfer, last in ((slave.foe_read, 100), (slave.foe_write, b"abc")):
        try:
            transfer("firmware", 0, last, 5000)
        except pysoem.MailboxError as error:
            codes.append(error.error_code)
    for _ in range(100):
        try:
            answer = slave.sdo_read(0x1008, 0).decode()
            break
        except pysoem.MailboxError:
            continue
    return {"codes": codes, "answer": answer}


def sync_registers(slave: Any) -> list[str]:
    """Return activation, SYNC0 and SYNC1 times as they are, with SYNC1, and switched off."""
    seen = []
    for arguments in ((True, PERIOD_NS, 0), (True, PERIOD_NS, 0, PERIOD_NS // 2), (False, 0)):
        slave.dc_sync(*arguments)
        seen.append(f"{slave._fprd(0x0981, 1).hex()} {slave._fprd(0x09A0, 8).hex()}")
    return seen


def ring(master: Any, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Cut a ring in operation, use the services of all drives meanwhile, start anew on the cut ring, mend it."""
    start(master)
    found: dict[str, Any] = {"op": reach(master, pysoem.OP_STATE)}
    found["intact"] = exchange(master, 300)
    process.send_signal(signal.SIGUSR1)
    found["cut"] = exchange(master, 300)
    found["served"] = served(master)
    reach(master, pysoem.INIT_STATE)
    start(master)
    found["cut_again"] = len(master.slaves)
    found["cut_op"] = reach(master, pysoem.OP_STATE)
    found["cut_counters"] = exchange(master, 100)
    process.send_signal(signal.SIGUSR2)
    found["mended"] = exchange(master, 300)
    found["served_mended"] = served(master)
    found["states"] = reach(master, pysoem.OP_STATE)
    return found


def served(master: Any) -> list[Any]:
    """Ask every drive for its serial number, its objects, and a word of its EEPROM."""
    return [
        [int.from_bytes(patient(slave), "little"), len(slave.od) > 40, slave.eeprom_read(8)[:4].hex()]
        for slave in master.slaves
    ]


def patient(slave: Any) -> bytes:
    """Read the serial number; errors that SOEM has listed before come first."""
    for _ in range(10):
        try:
            return bytes(slave.sdo_read(0x1018, 4))
        except (pysoem.PacketError, pysoem.MailboxError):
            continue
    return b""


def main() -> int:
    """Make the cables, start the drives, run the master."""
    die_with_parent()
    kind, *capture = sys.argv[1:]
    run: dict[str, Callable[[Any, subprocess.Popen[str]], dict[str, Any]]]
    run = {"services": services, "commands": commands, "ring": ring}
    links = [FIRST, SECOND][: 2 if kind == "ring" else 1]
    with ExitStack() as stack:
        for link in links:
            link.up()
        if capture:
            stack.enter_context(captured(FIRST.master, "ether proto 0x88a4", Path(capture[0])))
        ends = [link.segment for link in links]
        process = stack.enter_context(
            serving("tests.lab.ethercat.services_run", *ends) if kind == "services" else arm(ARM, *ends)
        )
        master = pysoem.Master()
        master.open(*[link.master for link in links])
        stack.callback(master.close)
        found = run[kind](master, process)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
