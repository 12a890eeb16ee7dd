"""Programs of others agree with the segment: the kickcat master, all of pysoem, and Wireshark's dissector.

Each run has a network namespace of its own, which goes with its processes.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.lab.ethercat.dissect import Seen, column, count, datagrams
from tests.lab.ethercat.namespace import in_namespace

OP, INIT, PREOP, SAFEOP = 8, 1, 2, 4
DRIVES = 6
DEVICES = ["generic_servo", "harmonic_actuator", "compact_csp"]
Session: TypeAlias = tuple[dict[str, Any], Path | None]
APRD, APWR, FPRD, FPWR, BRD, BWR, LRW, FRMW = 1, 2, 4, 5, 7, 8, 12, 14
#: The reply to SOEM, whose own address begins with 01: slaves set the bit "locally administered".
REPLY = "eth.src == 03:01:01:01:01:01"
#: What Wireshark says of SOEM's source address.
GROUP_ADDRESS = "Source MAC must not be a group address: IEEE 802.3-2002, Section 3.2.3(b)"


def run(module: str, *arguments: str) -> dict[str, Any]:
    """Run a program of the lab in a new network namespace."""
    lines = in_namespace("-m", f"tests.lab.ethercat.{module}", *arguments).splitlines()
    (line,) = [line for line in lines if line.startswith("{")]  # kickcat prints, too
    return dict(json.loads(line))


def capture(kind: str, folder: Path) -> Session:
    """Run a session of pysoem; its frames are stored where Wireshark's programs are installed."""
    path = folder / f"{kind}.pcapng" if shutil.which("dumpcap") and shutil.which("tshark") else None
    return run("commands_run", kind, *([] if path is None else [str(path)])), path


def frames(session: Session) -> Path:
    """File with the frames of a session."""
    if session[1] is None:
        pytest.skip("dumpcap or tshark is missing: install tshark (apt install tshark)")
    return session[1]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return capture("services", tmp_path_factory.mktemp("services"))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return capture("commands", tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def ring() -> dict[str, Any]:
    return run("commands_run", "ring")


@pytest.fixture(scope="module")
def layouts() -> dict[str, Any]:
    return run("kickcat_run", "layouts")


# kickcat


def test_kickcat_reads_and_writes_objects(layouts: dict[str, Any]) -> None:
    assert layouts["addresses"] == [1001 + k for k in range(DRIVES)]
    assert layouts["names"] == DEVICES * 2
    assert layouts["serials"] == [100 + k for k in range(DRIVES)]
    assert layouts["identity"] == struct.pack("<H4I", 4, 0xE5A, 0x1001, 0x10002, 100).hex()
    assert layouts["emulated"] == struct.pack("<4I", 0xE5C, 0xC517, 0x20000, 102).hex()
    assert layouts["written"] == [True] * 3
    assert layouts["read"] == [3_000_000, 70, True]


def test_kickcat_reads_descriptions(layouts: dict[str, Any]) -> None:
    name, text = layouts["object"]
    assert name == "Interpolation time period"
    assert "object code:  RECORD" in text
    assert "max subindex: 2" in text
    name, text = layouts["entry"]
    # It asks for the default value, which stands before the name, and takes both for the name.
    assert name == "\x01" + "Interpolation time period value"
    assert "data type:     unsigned 8" in text
    assert "bit length:    8" in text


def test_kickcat_maps_all_layouts(layouts: dict[str, Any]) -> None:
    assert layouts["sizes"] == [[16, 18], [8, 10], [6, 10]] * 2
    assert layouts["states"] == [True] * DRIVES
    assert layouts["refused"]  # the actuators have no SYNC0


def test_kickcat_moves_an_arm() -> None:
    found = run("kickcat_run", "motion")
    assert found["walk"] == [True] * 3  # ready to switch on, switched on, operation enabled
    assert found["states"] == [True] * DRIVES
    assert found["turned"] == pytest.approx([0.05] * DRIVES, abs=1e-3)
    assert found["both_ways"] == pytest.approx(0.0, abs=1e-3)
    assert found["off"]


@pytest.mark.soak
def test_kickcat_goes_on_when_a_ring_breaks() -> None:
    found = run("kickcat_run", "ring")
    assert found["walk"] == [True] * 3
    assert max(found["failed"]) < 100, found["failed"]  # it refuses a working counter that is not full
    assert found["statuses"] == [0x27] * DRIVES


# pysoem


def test_pysoem_scans_identities(services: Session) -> None:
    found = services[0]
    assert found["scanned"] == 3
    wanted = [(0xE5A, 0x1001, 0x10002), (0xE5B, 0x520019, 7), (0xE5C, 0xC517, 0x20000)]
    assert found["identities"] == [[*identity, name] for identity, name in zip(wanted, DEVICES, strict=True)]
    assert found["names"] == DEVICES
    assert found["aliases"] == [10, 11, 12]


def test_objects_are_listed_and_described(services: Session) -> None:
    found = services[0]
    for listed in found["lists"]:
        assert listed == sorted(set(listed))
        assert {0x1000, 0x1018, 0x1C12, 0x6040, 0x6064} <= set(listed)
    assert 0x6071 in found["lists"][0]
    assert 0x6071 not in found["lists"][2]
    assert found["entries"] == [
        ["Number of entries", 5, 8],
        ["Interpolation time period value", 5, 8],
        ["Interpolation time index", 2, 8],
    ]


def test_sdos_of_every_length(services: Session) -> None:
    found = services[0]
    assert found["segments"] == [True, True]
    assert found["complete"] == [
        struct.pack("<H4I", 4, 0xE5A, 0x1001, 0x10002, 100).hex(),
        struct.pack("<H4I", 4, 0xE5B, 0x520019, 7, 101).hex(),
    ]


def test_refusals_arrive_with_their_codes(services: Session) -> None:
    found = services[0]
    assert found["aborts"] == [
        *("06020000", "06090011", "06010002", "06070012", "06010002", "06010004", "06040041"),
        *("06010002", "06010002"),
    ]
    assert found["in_op"] == "08000022"


def test_the_eeprom_is_read_and_written(services: Session) -> None:
    found = services[0]
    assert found["eeprom"] == ["5a0e0000", "1234"]


def test_process_data_as_remapped_selected_and_fixed_reach_op(services: Session) -> None:
    found = services[0]
    assert found["sizes"] == [[7, 18], [8, 28], [6, 10]]
    assert found["states"] == [[8, 0]] * 3
    assert found["init"]


def test_pysoem_maps_into_overlapping_images(commands: Session) -> None:
    found, _ = commands
    assert found["scanned"] == DRIVES
    assert found["configured"] == ["number 0", "harmonic_actuator"]
    assert found["sizes"] == [[16, 18], [12, 10], [6, 10], [16, 18], [8, 10], [6, 10]]
    assert found["dc"]
    assert found["overlap_op"] == [[OP, 0]] * DRIVES
    assert found["overlap_counters"].get("18", 0) > 150
    assert [status & 0x4F for status in found["inputs"]] == [0x40] * DRIVES  # switch on disabled


def test_pysoem_changes_states_and_mailboxes_by_hand(commands: Session) -> None:
    found = commands[0]["mailbox"]
    assert (found["init"], found["preop"], found["still_preop"]) == (INIT, PREOP, PREOP)
    assert found["managers"] == ["00104000", "00114000"]  # start and length: 64 bytes
    assert found["text"]  # 285 bytes through them
    assert found["sizes"] == [[16, 18], [12, 10], [6, 10], [16, 18], [8, 10], [6, 10]]


def test_pysoem_takes_one_drive_out_of_op(commands: Session) -> None:
    without = [OP, OP, OP, SAFEOP, OP, OP]
    assert commands[0]["op"] == [[OP, 0]] * DRIVES
    assert commands[0]["single"] == [without, [OP] * DRIVES]


def test_pysoem_sets_the_watchdog(commands: Session) -> None:
    found = commands[0]["watchdog"]
    assert found["before"] == [100.0] * DRIVES
    assert found["after"] == 60.0
    assert found["tripped"] == [[SAFEOP | 0x10, 0x1B]] * DRIVES  # sync manager watchdog
    assert found["op"] == [[OP, 0]] * DRIVES


def test_pysoem_recovers_and_reconfigures(commands: Session) -> None:
    found = commands[0]["recovered"]
    assert found["recovered"] == 1
    assert found["address"]
    assert found["init"] == INIT
    assert found["reconfigured"] == SAFEOP
    assert found["op"] == [[OP, 0]] * DRIVES


def test_pysoem_hears_emergencies(commands: Session) -> None:
    found = commands[0]["emergency"]
    assert found["enabled"]
    assert found["fault"]
    assert [position for position, _, _ in found["told"]] == [4]
    assert found["told"][0][1:] == [found["error_code"], found["history"]]
    assert found["error_code"] in (0x8400, 0x8611)  # velocity or following error, whichever is seen first
    assert found["reset"]


def test_pysoem_sets_sync_pulses(commands: Session) -> None:
    sync0, both = struct.pack("<II", 10**6, 0).hex(), struct.pack("<II", 10**6, 500_000).hex()
    assert commands[0]["sync"] == [f"03 {sync0}", f"07 {both}", f"00 {'00' * 4}{both[8:]}"]


def test_a_service_that_no_drive_has_is_refused(commands: Session) -> None:
    assert commands[0]["files"] == {"codes": [2, 2], "answer": "generic_servo"}  # mailbox protocol not supported


def test_pysoem_uses_a_ring_that_breaks(ring: dict[str, Any]) -> None:
    served = [[100 + k, True, f"{0x5A + k % 3:02x}0e0000"] for k in range(DRIVES)]
    for phase, least in (("intact", 200), ("cut", 200), ("cut_counters", 60), ("mended", 200)):
        assert ring[phase].get("18", 0) > least, (phase, ring[phase])
    assert ring["served"] == ring["served_mended"] == served
    assert ring["cut_again"] == DRIVES
    for phase in ("op", "cut_op", "states"):
        assert ring[phase] == [[OP, 0]] * DRIVES, phase


# Wireshark


@pytest.mark.parametrize("session", ["services", "commands"])
def test_nothing_is_malformed(session: str, request: pytest.FixtureRequest) -> None:
    path = frames(request.getfixturevalue(session))
    assert count(path, "ecat") > 2000
    assert count(path, "!ecat || !(ecatf.type == 1)") == 0
    assert count(path, "_ws.malformed || _ws.short || ecat_mailbox.invalid || ecat_mailbox.coe.invalid") == 0
    assert set(column(path, "_ws.expert.message")) <= {GROUP_ADDRESS}


def test_every_working_counter_is_the_one_expected(services: Session) -> None:
    found, path = services[0], frames(services)
    assert found["op"] == [[OP, 0]] * 3
    seen: dict[int, Counter[int]] = {}
    for datagram in [each for frame in datagrams(path, REPLY) for each in frame]:
        if not _empty_mailbox(datagram):
            seen.setdefault(datagram.command, Counter())[datagram.counter] += 1
    # One for the slave that is addressed, one for each slave that hears, three for each in process data.
    assert {command: set(counters) for command, counters in seen.items()} == {
        **{command: {1} for command in (APRD, APWR, FPRD, FPWR)},
        **{command: {3} for command in (BRD, BWR, FRMW)},
        LRW: {9},
    }
    assert seen[LRW][9] >= 1000
    assert seen[LRW][9] == seen[FRMW][3]


def _empty_mailbox(datagram: Seen) -> bool:
    """Tell whether a mailbox was read twice, as SOEM does when the reply is late, or written again."""
    return datagram.command in (FPRD, FPWR) and datagram.register >= 0x1000 and datagram.counter == 0


def test_mailbox_messages_are_read_alike(services: Session) -> None:
    found, path = services[0], frames(services)
    aborts = column(path, "ecat_mailbox.coe.abortcode", f"{REPLY} && ecat.cmd == {FPRD}")
    wanted = Counter(int(code, 16) for code in [*found["aborts"], found["in_op"]])
    assert Counter({int(code, 0): times for code, times in aborts.items()}) == wanted
    assert {"2", "3", "8"} <= set(column(path, "ecat_mailbox.coe.type"))  # SDO request, response, information
    for field in ("sdoccsid.complete", "sdoccsds.lastseg", "sdoscsus_lastseg", "sdoscsiu_sizeind", "sdoinfoname"):
        assert column(path, f"ecat_mailbox.coe.{field}"), field
    assert column(path, "ecat_mailbox.coe.sdoinfoname")["Interpolation time period value"] == 1


def test_states_and_emergencies_are_read_alike(commands: Session) -> None:
    path = frames(commands)
    states = {int(state, 0) for state in column(path, "ecat.reg.alstatus.status", f"{REPLY} && ecat.cmd == {FPRD}")}
    assert states >= {INIT, PREOP, SAFEOP, OP}
    assert column(path, "ecat_mailbox.coe.type", f"{REPLY} && ecat.cmd == {FPRD}")["1"] == 1  # emergency
