"""Programs of others agree with the segment: the kickcat master, services of pysoem, and Wireshark's dissector.

Each run has a network namespace of its own, which goes with its processes.
"""

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.lab.ethercat.dissect import column, count, datagrams
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
    lines = in_namespace("-m", f"tests.lab.ethercat.{module}", *arguments, tries=3).splitlines()
    (line,) = [line for line in lines if line.startswith("{")]  # kickcat prints, too
    return dict(json.loads(line))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session of pysoem; its frames are stored where Wireshark's programs are installed."""
    installed = shutil.which("dumpcap") and shutil.which("tshark")
    path = tmp_path_factory.mktemp("pysoem") / "frames.pcapng" if installed else None
    return run("pysoem_run", *([] if path is None else [str(path)])), path


def frames(session: Session) -> Path:
    """File with the frames of a session."""
    if session[1] is None:
        pytest.skip("dumpcap or tshark is missing: install tshark (apt install tshark)")
    return session[1]


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


def test_kickcat_enables_an_arm() -> None:
    found = run("kickcat_run", "motion")
    assert found["walk"] == [True] * 3  # ready to switch on, switched on, operation enabled
    assert found["states"] == [True] * DRIVES
    assert found["both_ways"] == pytest.approx(0.0, abs=1e-4)
    assert found["off"]


# pysoem


def test_refusals_arrive_with_their_codes(session: Session) -> None:
    found = session[0]
    assert found["aborts"] == [
        *("06020000", "06090011", "06010002", "06070012", "06010002", "06010004", "06040041"),
        *("06010002", "06010002"),
    ]
    assert found["in_op"] == "08000022"


def test_pysoem_measures_the_delays_and_takes_one_drive_out_of_op(session: Session) -> None:
    assert session[0]["delays_ns"] == pytest.approx([600 * k for k in range(DRIVES)], abs=5)
    without = [OP, OP, OP, SAFEOP, OP, OP]
    assert session[0]["single"] == [without, [OP] * DRIVES]


# Wireshark


def test_nothing_is_malformed(session: Session) -> None:
    path = frames(session)
    assert count(path, "ecat") > 2000
    assert count(path, "!ecat || !(ecatf.type == 1)") == 0
    assert count(path, "_ws.malformed || _ws.short || ecat_mailbox.invalid || ecat_mailbox.coe.invalid") == 0
    assert set(column(path, "_ws.expert.message")) <= {GROUP_ADDRESS}


def test_every_working_counter_is_the_one_expected(session: Session) -> None:
    found, path = session[0], frames(session)
    assert found["op"] == [[OP, 0]] * DRIVES
    seen: dict[int, Counter[int]] = {}
    for datagram in [each for frame in datagrams(path, REPLY) for each in frame]:
        # SOEM reads a mailbox twice when the reply is late, or writes it again.
        if datagram.command not in (FPRD, FPWR) or datagram.register < 0x1000 or datagram.counter:
            seen.setdefault(datagram.command, Counter())[datagram.counter] += 1
    # One for the slave that is addressed, one for each slave that hears, three for each in process data.
    assert {command: set(counters) for command, counters in seen.items()} == {
        **{command: {1} for command in (APRD, APWR, FPRD, FPWR)},
        **{command: {DRIVES} for command in (BRD, BWR, FRMW)},
        LRW: {3 * DRIVES},
    }
    assert seen[LRW].total() >= 1000
    assert seen[LRW].total() == seen[FRMW].total()


def test_mailbox_messages_are_read_alike(session: Session) -> None:
    found, path = session[0], frames(session)
    aborts = column(path, "ecat_mailbox.coe.abortcode", f"{REPLY} && ecat.cmd == {FPRD}")
    wanted = Counter(int(code, 16) for code in [*found["aborts"], found["in_op"]])
    assert Counter({int(code, 0): times for code, times in aborts.items()}) == wanted
    assert {"2", "3", "8"} <= set(column(path, "ecat_mailbox.coe.type"))  # SDO request, response, information
    for field in ("sdoccsid.complete", "sdoccsds.lastseg", "sdoscsus_lastseg", "sdoscsiu_sizeind", "sdoinfoname"):
        assert column(path, f"ecat_mailbox.coe.{field}"), field
    assert column(path, "ecat_mailbox.coe.sdoinfoname")["Interpolation time period value"] == 1


def test_states_are_read_alike(session: Session) -> None:
    path = frames(session)
    states = {int(state, 0) for state in column(path, "ecat.reg.alstatus.status", f"{REPLY} && ecat.cmd == {FPRD}")}
    assert states >= {INIT, PREOP, SAFEOP, OP}
