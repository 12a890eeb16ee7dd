"""`thetad ethercat` against simulated drives on a real interface, in a network namespace of this module's own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drivers.ethercat.diagnostics.inspection import Inspection
from service.config.load import parse_config
from sim_backend.ethercat._profile import load_profile
from tests.lab.command_line import Outcome, thetad
from tests.lab.ethercat.namespace import ROOT, wait_until
from tests.lab.ethercat.network import SegmentProcess, Segments, await_link, ip
from tests.lab.ethercat.patient_driver import PatientDriver

DEVICES = ("generic_servo", "harmonic_actuator", "compact_csp")
INIT, PREOP, OP = 1, 2, 8
IDENTITIES = [(0xE5A, 0x1001, 0x10002), (0xE5B, 0x520019, 7), (0xE5C, 0xC517, 0x20000)]


@pytest.fixture(scope="module")
def drives(segment: Segments) -> Iterator[SegmentProcess]:
    mountings = [{}, {}, {"gear_ratio": 121.0}]
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, -10)  # for the segment: real drives answer however busy this machine is
    with segment(*DEVICES, aliases=[11, 12, 13], serials=[101, 0, 103], mountings=mountings) as process:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        yield process


@pytest.fixture(autouse=True)
def left_as_found(drives: SegmentProcess) -> Iterator[None]:
    """Every command leaves the drives in INIT, where the segment starts them."""
    if drives.tell("states") != [INIT] * 3:  # another test failed
        drives.tell("heal")
    yield
    assert drives.tell("states") == [INIT] * 3


def ethercat(*arguments: object) -> Outcome:
    return thetad("ethercat", *arguments)


def configuration(path: Path, drives: list[dict[str, Any]]) -> Path:
    """Write a configuration with these drives, each of a device of its own."""
    devices = {}
    for k, drive in enumerate(drives):
        vendor, product, revision = drive.pop("identity")
        devices[f"device_{k}"] = {
            "vendor_id": vendor,
            "product_code": product,
            "revision": revision,
            "rx": {"1600": ["6040:00:16 controlword", "607A:00:32 target_position"]},
            "tx": {"1A00": ["6041:00:16 statusword", "6064:00:32 position"]},
            "counts_per_rev": 1000,
        }
        drive |= {"joint": f"joint_{k + 1}", "device": f"device_{k}"}
    driver = {"kind": "ethercat", "interface": "m0", "drive": drives, "device": devices}
    path.write_text(json.dumps({"arm": [{"name": "arm", "robot": "space6", "driver": driver}]}), encoding="utf-8")
    return path


# --- scan


def test_interfaces_are_listed_with_their_links() -> None:
    ip("link", "set", "m1", "down")
    await_link("s1", False)
    found = {each["name"]: each for each in ethercat("scan", "--json").json["interfaces"]}
    assert found.keys() == {"m0", "s0", "m1", "s1"}  # not the loopback
    assert {name: each["state"] for name, each in found.items()} == {
        "m0": "link", "s0": "link", "m1": "down", "s1": "no link"
    }  # fmt: skip
    ip("link", "set", "m1", "up")
    lines = ethercat("scan").out.splitlines()
    assert [line.split()[0] for line in lines] == ["interface", *found]


def test_scan_says_who_is_there_and_what_differs_between_eeprom_and_1018(drives: SegmentProcess) -> None:
    drives.tell("state", 2, 0x1018, 3, 9)
    drives.tell("state", 1, 0x1018, 4, 9)  # its EEPROM has no serial number
    slaves = ethercat("scan", "m0", "--json").ok().json["slaves"]
    assert [(s["vendor_id"], s["product_code"], s["revision"]) for s in slaves] == IDENTITIES
    differs = "revision 0x9 in 1018:03, 0x20000 in its EEPROM"
    assert [slave["differences"] for slave in slaves] == [[], [], [differs]]
    assert f"INIT; {differs}\n" in ethercat("scan", "m0").out
    assert differs in ethercat("info", "m0", 2).out
    drives.tell("state", 2, 0x1018, 3, 0x20000)
    assert [(s["position"], s["name"], s["serial"], s["alias"], s["state"], s["problem"]) for s in slaves] == [
        (k, name, (101, 0, 103)[k], 11 + k, "INIT", None) for k, name in enumerate(DEVICES)
    ]
    assert ethercat("scan", "m0").out.splitlines()[2].split() == [
        *("1", "harmonic_actuator", "0x00000E5B", "0x00520019", "0x00000007", "0", "12", "INIT")
    ]


def test_the_configured_network_and_another_one(tmp_path: Path) -> None:
    def drives_of(*order: int) -> list[dict[str, Any]]:
        return [{"identity": IDENTITIES[k]} for k in order]

    done = ethercat("scan", "-c", configuration(tmp_path / "same.json", drives_of(0, 1, 2))).ok()
    assert "the network of arm 'arm', as configured" in done.out

    swapped = configuration(tmp_path / "swapped.json", drives_of(1, 0, 2, 2))
    done = ethercat("scan", "-c", swapped, "--arm", "arm", "--json")
    assert done.code == 1
    assert done.json["matches"] is False
    first, second = done.json["differences"]
    assert "swapped" in first
    assert second.startswith("position 3: joint 'joint_4'")
    assert second.endswith("is missing")
    assert first in ethercat("scan", "-c", swapped).out


def test_a_configuration_that_does_not_tell_the_bus(tmp_path: Path) -> None:
    path = configuration(tmp_path / "c.json", [{"identity": IDENTITIES[0]}])
    ethercat("scan", "m0", "-c", path).refused("leave INTERFACE out")
    ethercat("scan", "--arm", "arm").refused("-c")
    ethercat("scan", "-c", path, "--arm", "leg").refused("no arm 'leg'", "arm")
    ethercat("scan", "-c", ROOT / "configs" / "demo.toml").refused("no arm is on EtherCAT")


def test_the_tables_for_a_configuration_start_the_driver(tmp_path: Path, drives: SegmentProcess) -> None:
    tables = ethercat("scan", "m0", "--toml")
    head = '[[arm]]\nname = "a"\nrobot = "space6"\n[arm.driver]\nkind = "ethercat"\ninterface = "m0"\nmode = "none"\n'
    driver = parse_config(tomllib.loads(head + tables.out), "here", tmp_path).arm[0].driver
    assert [(d.alias, d.serial, d.gear_ratio) for d in driver.drive] == [(11, 101, 1), (12, None, 1), (13, 103, 121)]
    servo, actuator, compact = (driver.device_of(k) for k in range(3))
    assert [(d.vendor_id, d.product_code, d.revision) for d in (servo, actuator, compact)] == IDENTITIES
    assert (servo.remap, actuator.remap, compact.remap) == (True, False, False)
    assert (servo.counts_per_rev, servo.position_side) == (1_048_576, "motor")
    assert (compact.counts_per_rev, compact.position_side) == (3_600_000, "joint")  # user units behind the gear
    assert "counts_per_rev = 1 # FILL IN" in tables.out  # the actuator does not tell
    with PatientDriver(driver) as arm:
        arm.read(5.0)
        assert drives.tell("states") == [OP] * 3


# --- one slave


def test_info_shows_the_drive() -> None:
    facts = ethercat("info", "m0", 2, "--json").json
    profile = load_profile("compact_csp")
    assert (facts["vendor_id"], facts["product_code"], facts["revision"]) == IDENTITIES[2]
    assert (facts["serial"], facts["alias"], facts["state_found"]) == (103, 13, "INIT")
    mailbox = profile.mailbox
    assert facts["mailbox"]["receive"] == {"start": mailbox.receive_start, "bytes": mailbox.receive_bytes}
    assert facts["eeprom"]["order"] == profile.identity.order_number
    assert "complete access" not in facts["eeprom"]["coe"]
    # Those of process data are shown too, and off, where a master has set them before.
    enabled = [m for m in facts["sync_managers"] if m["enabled"]]
    assert [(m["number"], m["kind"], m["direction"]) for m in enabled] == [
        (0, "mailbox", "from master"),
        (1, "mailbox", "to master"),
    ]
    assert (facts["controller"]["dc"], facts["controller"]["dc_bits"]) == (True, 64)
    drive = facts["drive"]
    assert drive["state"] == "switch on disabled"
    assert drive["supported_modes"] == ["csp (cyclic synchronous position)"]
    assert drive["rated"]["rated current"] == 2.2
    assert drive["rated"]["gear motor revolutions"] == 121.0
    assert "rated torque" not in drive["rated"]  # it has no such object
    lines = dict(line.split("  ", 1) for line in ethercat("info", "m0", 0).out.splitlines())
    assert lines["rated torque"].strip() == "1.27 N*m"


def test_pdo_shows_where_everything_is() -> None:
    said = ethercat("pdo", "m0", 2, "--json").json
    assert said["source"] == "objects"
    profile = load_profile("compact_csp")
    by_index = {pdo.index: pdo for pdo in profile.pdo}
    for way, assigned in (("outputs", profile.outputs.assigned), ("inputs", profile.inputs.assigned)):
        shown = said[way]["pdos"]
        assert [int(pdo["index"], 16) for pdo in shown] == list(assigned)
        entries = [entry for index in assigned for entry in by_index[index].entries]
        listed = [entry for pdo in shown for entry in pdo["entries"]]
        assert [e["entry"] for e in listed] == [f"{e.index:04X}:{e.subindex:02X}:{e.bits}" for e in entries]
        assert [e["offset_bits"] for e in listed] == [sum(e.bits for e in entries[:k]) for k in range(len(entries))]
        assert said[way]["bytes"] * 8 == sum(e.bits for e in entries)
    (line,) = [line for line in ethercat("pdo", "m0", 2).out.splitlines() if "3010:03:4" in line]
    assert line.split()[:2] == ["8.4", "4"]  # byte 8, bit 4


def test_sdo_reads_by_the_drive_s_own_types() -> None:
    assert ethercat("sdo", "m0", 0, "6076:00", "--json").json == {
        "object": "6076:00",
        "name": "Motor rated torque",
        "type": "u32",
        "value": 1270,
        "raw": "f6040000",
        "written": False,
    }
    assert ethercat("sdo", "m0", 0, "60C2:02").out == "60C2:02 = -3 (i8, Interpolation time index)\n"
    assert ethercat("sdo", "m0", 0, "6076:0", "--type", "f32", "--json").json["value"] < 1e-30  # as told


def test_sdo_writes_what_is_read_afterwards() -> None:
    done = ethercat("sdo", "m0", 0, "605A:00", "--write", "5")
    assert (done.code, done.out) == (0, "605A:00 = 5 written (i16, Quick stop option code)\n")
    assert ethercat("sdo", "m0", 0, "605A:00", "--write", "0x2", "--type", "i16", "--json").json["written"] is True
    assert ethercat("sdo", "m0", 0, "605A:00", "--json").json["value"] == 2


def test_refused_sdos_say_why() -> None:
    ethercat("sdo", "m0", 0, "5555:00").refused("5555:00", "0x06020000", "does not exist")
    ethercat("sdo", "m0", 0, "6041:00", "--write", "1").refused("0x06010002", "read only")


def test_bad_sdo_arguments_are_refused() -> None:
    ethercat("sdo", "m0", 0).refused("INDEX:SUB", "--list")
    ethercat("sdo", "m0", 0, "60641:00").refused("60641:00", "INDEX:SUB")
    ethercat("sdo", "m0", 0, "6064:00", "--type", "u16").refused("4 bytes", "u16 has 2")
    ethercat("sdo", "m0", 0, "605A:00", "--write", "40000").refused("40000", "-32768 to 32767")
    ethercat("sdo", "m0", 0, "5555:00", "--write", "1").refused("--type")
    ethercat("sdo", "m0", 3, "6064:00").refused("no slave at position 3", "there are 3")
    ethercat("info", "m0", -1).refused("no slave at position -1")


# --- states and other masters


def test_drives_found_in_preop_are_left_in_preop(drives: SegmentProcess) -> None:
    with Inspection("m0") as visit:
        visit.found = [visit.al_status(position) for position in range(3)]  # as if they had been found so
    assert [s["state"] for s in ethercat("scan", "m0", "--json").json["slaves"]] == ["PRE-OP"] * 3
    assert drives.tell("states") == [PREOP] * 3
    ethercat("sdo", "m0", 0, "5555:00").refused("0x06020000")
    assert drives.tell("states") == [PREOP] * 3
    with Inspection("m0") as visit:
        visit.found = [None] * 3
    assert drives.tell("states") == [INIT] * 3


@contextmanager
def other_master(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a master in a process of its own, until its stdin closes."""
    with subprocess.Popen(
        [sys.executable, "-c", _MASTER, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline().strip() == "running"
            yield process
        finally:
            process.communicate(timeout=20)


#: A master of another make: pysoem itself, with process data; `silent` stops sending and leaves the drives in OP.
_MASTER = """
import select, sys, pysoem
from tests.lab.ethercat.pysoem_run import exchange, reach, start
master = pysoem.Master()
master.open("m0")
for _ in range(5):
    start(master, 3)
    for slave in master.slaves:  # watchdogs of minutes: a busy machine does not stop the drives
        slave._fpwr(0x0400, b"\\xff\\xff", 20_000)
        slave._fpwr(0x0420, b"\\xff\\xff", 20_000)
    if reach(master, pysoem.OP_STATE) == [(pysoem.OP_STATE, 0)] * 3:
        break
else:
    sys.exit("not in OP")
print("running", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    if "silent" not in sys.argv:
        exchange(master, 1)
master.state = pysoem.INIT_STATE
master.write_state()
master.state_check(pysoem.INIT_STATE, 1_000_000)
master.close()
"""


@pytest.mark.parametrize(("manner", "says"), [("talking", "is active on m0"), ("silent", "is in OP")])
def test_a_bus_of_another_master_is_left_alone(drives: SegmentProcess, manner: str, says: str) -> None:
    with other_master(manner):
        assert drives.tell("states") == [OP] * 3
        for command in (["scan", "m0"], ["info", "m0", 0], ["sdo", "m0", 0, "605A:00", "--write", "1"]):
            ethercat(*command).refused("another", "master", says)
        assert drives.tell("states") == [OP] * 3
    wait_until(lambda: drives.tell("states") == [INIT] * 3)
    assert ethercat("sdo", "m0", 0, "605A:00", "--json").json["value"] == 2


# --- interfaces


def test_interfaces_that_cannot_be_used() -> None:
    ethercat("scan", "m7").refused("no network interface 'm7'", "m0")
    ethercat("info", "m1", 0).refused("no slave answers on m1")
    ip("link", "set", "m1", "down")
    ethercat("pdo", "m1", 0).refused("ip link set m1 up")
    ip("link", "set", "m1", "up")
