"""pysoem's services, and one drive of each layout as a process at an interface; ends on SIGTERM.

python -m tests.lab.ethercat.services_run INTERFACE
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pysoem

from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.server import Server

DEVICES = ("generic_servo", "harmonic_actuator", "compact_csp")
TEXT = bytes(65 + k % 26 for k in range(600))
RECORD = bytes(range(256))


def serve(interface: str) -> None:
    """Run the segment until told to stop."""
    factories = []
    for k, name in enumerate(DEVICES):
        profile = load_profile(name)
        dictionary = build_dictionary(profile, 100 + k)
        factories.append(partial(SlaveController, profile=profile, dictionary=dictionary, alias=10 + k, serial=100 + k))
    server = Server(Segment(factories, None, now_ns=time.monotonic_ns()), (interface,))
    server.run(ready=lambda: print("ready", flush=True))
    server.close()


def aborted(call: Callable[[], object]) -> str:
    """Return the abort code of a refused service."""
    try:
        call()
    except (pysoem.SdoError, pysoem.SdoInfoError) as error:
        return f"{error.abort_code:08X}"
    return "done"


def ask(master: Any) -> dict[str, Any]:
    """Use every service there is; pysoem itself checks headers, toggle bits and working counters."""
    found: dict[str, Any] = {"scanned": master.config_init()}
    servo, actuator, compact = master.slaves
    found["identities"] = [(slave.man, slave.id, slave.rev, slave.name) for slave in master.slaves]
    found["names"] = [slave.sdo_read(0x1008, 0).decode() for slave in master.slaves]
    found["aliases"] = [int.from_bytes(slave._fprd(0x0012, 2), "little") for slave in master.slaves]
    found["complete"] = [slave.sdo_read(0x1018, 0, ca=True).hex() for slave in (servo, actuator)]
    found["lists"] = [[item.index for item in slave.od] for slave in master.slaves]
    (period,) = [item for item in servo.od if item.index == 0x60C2]
    found["entries"] = [(entry.name.decode(), entry.data_type, entry.bit_length) for entry in period.entries]

    servo.sdo_write(0x2000, 0, TEXT)
    actuator.sdo_write(0x2270, 0, RECORD)
    found["segments"] = [servo.sdo_read(0x2000, 0, 1000) == TEXT, actuator.sdo_read(0x2270, 0, 300) == RECORD]
    found["aborts"] = [
        aborted(lambda: servo.sdo_read(0x5555, 0)),
        aborted(lambda: servo.sdo_read(0x1018, 7)),
        aborted(lambda: servo.sdo_write(0x6041, 0, b"\0\0")),
        aborted(lambda: servo.sdo_write(0x6040, 0, bytes(4))),
        aborted(lambda: compact.sdo_write(0x6041, 0, bytes(100))),
        aborted(lambda: compact.sdo_read(0x1018, 0, ca=True)),
        aborted(lambda: servo.sdo_write(0x1600, 0, struct.pack("<HI", 1, 0x60410010), ca=True)),
        aborted(lambda: actuator.sdo_write(0x1A03, 0, b"\0")),
        aborted(lambda: compact.sdo_write(0x1C13, 0, b"\0")),
    ]
    servo.eeprom_write(0x10, b"\x12\x34")
    found["eeprom"] = [servo.eeprom_read(8).hex(), servo.eeprom_read(0x10)[:2].hex()]

    servo.sdo_write(0x1600, 0, struct.pack("<HIII", 3, 0x60400010, 0x607A0020, 0x60600008), ca=True)
    actuator.sdo_write(0x1C13, 0, struct.pack("<HH", 1, 0x1A03), ca=True)
    master.config_map()
    master.config_dc()
    found["sizes"] = [(len(slave.output), len(slave.input)) for slave in master.slaves]
    for slave in master.slaves:
        slave.dc_sync(True, 1_000_000, 0)
    master.send_processdata()
    master.receive_processdata(20_000)
    master.state = pysoem.OP_STATE
    master.write_state()
    for _ in range(1000):
        master.send_processdata()
        master.receive_processdata(20_000)
        if master.state_check(pysoem.OP_STATE, 1000) == pysoem.OP_STATE:
            break
    master.read_state()
    found["states"] = [(slave.state, slave.al_status) for slave in master.slaves]
    found["in_op"] = aborted(lambda: servo.sdo_write(0x1C12, 0, b"\0"))
    master.state = pysoem.INIT_STATE
    master.write_state()
    found["init"] = master.state_check(pysoem.INIT_STATE, 500_000) == pysoem.INIT_STATE
    return found


if __name__ == "__main__":
    serve(sys.argv[1])
