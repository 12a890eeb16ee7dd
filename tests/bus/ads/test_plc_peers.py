"""Programs of others agree with the PLC: ads-client on Node.js, and Wireshark's dissector."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyads
import pytest

from tests.lab.ads.plc_bench import settings
from tests.lab.ads.plc_thread import serving
from tests.lab.capture import captured
from tests.lab.node import installed

HERE = Path(__file__).resolve().parents[2] / "lab" / "ads" / "node"
NET_ID = "5.80.201.11.1.1"
PATIENCE_S = 20.0
END = b"the end of the conversation"
#: Callbacks, kept for ever: the library may still call one that pyads has let go.
KEPT: list[object] = []


def needs(*programs):
    for program, package in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: install {package}")


@pytest.fixture(scope="session")
def modules(tmp_path_factory) -> Path:
    """Folder of the Node.js modules, as locked."""
    return installed(HERE, tmp_path_factory.mktemp("node")) / "node_modules"


@pytest.fixture(scope="module")
def found(modules):
    """What ads-client reads."""
    with serving(settings(), "127.0.9.11"):
        done = subprocess.run(
            ["node", str(HERE / "read_plc.cjs"), "127.0.9.11", NET_ID],
            env=os.environ | {"NODE_PATH": str(modules)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestAdsClient:
    def test_device_and_states(self, found):
        assert found["localAdsPort"] >= 0x8000
        assert found["system"]["adsState"] == 5
        assert found["runtime"]["adsState"] == 5
        assert found["device"]["deviceName"] == "Plc30 App"
        assert found["symbolVersion"] == 1

    def test_symbols_and_types(self, found):
        symbols = {symbol["name"]: symbol for symbol in found["symbols"]}
        assert symbols["GVL_Theta.aRing"]["type"] == "ARRAY [0..3] OF ST_ThetaBlock"
        assert symbols["MAIN.nCycles"]["comment"] == "counts the cycles of the task"
        assert found["types"] > 20

    def test_structures_by_the_types_that_were_uploaded(self, found):
        info, block = found["info"], found["block"]
        assert (info["nAxes"], info["nBlocks"], info["aNames"]) == (9, 4, [f"Axis {k + 1}" for k in range(9)])
        assert block["nBlock"] == block["nBlockEnd"]
        first = 5 * int(block["nBlock"])
        assert [int(sample["nCounter"]) for sample in block["aSample"]] == list(range(first, first + 5))
        times = [int(sample["nTime"]) for sample in block["aSample"]]
        assert {after - before for before, after in pairwise(times)} == {10_000}
        assert set(found["axis"]) == {
            "fPosition", "fVelocity", "fMotorPosition", "fSetpoint", "fTorque", "fCurrent", "fTemperature", "nStatus",
        }  # fmt: skip
        assert int(found["axis"]["nStatus"]) & 1

    def test_nested_structures_arrays_and_enumerations(self, found):
        station = found["station"]
        assert station["nNumber"] == 7
        assert station["stTool"] == {"sName": "gripper", "bClosed": False, "fMass": 1.5, "aCentre": [0, 0, 0]}
        assert [tool["sName"] for tool in station["aTools"]] == ["", "screwdriver", ""]
        assert found["matrix"] == [[0, 0, 0], [0, 0, 0]]
        assert found["mode"] == {"name": "Automatic", "value": 1}

    def test_writes_by_type(self, found):
        assert found["modeAfter"] == {"name": "Setup", "value": 10}
        after = found["stationAfter"]
        assert (after["nNumber"], after["stTool"]["sName"], after["stTool"]["fMass"]) == (8, "saw", 1.5)

    def test_sum_commands(self, found):
        assert found["handles"] == [True, False, True]
        assert found["many"] == [-12, 3.25]

    def test_notifications(self, found):
        counts = [sample["value"] for sample in found["cycles"]]
        assert counts == list(range(counts[0], counts[0] + 200, 10))
        assert {after["time"] - before["time"] for before, after in pairwise(found["cycles"])} == {10}
        assert [sample["value"] for sample in found["changes"]] == [0, 5, 6]


@contextmanager
def conversation(address: str, path: Path) -> Iterator[None]:
    """Store what goes to and from an address of loopback, up to `END`."""
    with captured("lo", f"host {address}", path):
        yield
        # The programs store what they have captured now and then, and drop the rest when they end.
        deadline = time.monotonic() + PATIENCE_S
        while END not in path.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)


def tshark(path: Path, condition: str, *fields: str) -> list[list[str]]:
    """Return fields of the packets that fulfil a condition."""
    options = [option for name in fields for option in ("-e", name)]
    done = subprocess.run(
        ["tshark", "-r", str(path), "-Y", condition, "-T", "fields", *options],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """Capture of a conversation of pyads with the PLC."""
    needs(("dumpcap", "tshark"), ("tshark", "tshark"))
    if os.geteuid() != 0:
        pytest.skip("capturing needs root")
    path = tmp_path_factory.mktemp("capture") / "ads.pcapng"
    with serving(settings(), "127.0.9.12"):
        connection = pyads.Connection(NET_ID, 851, "127.0.9.12")
        connection.open()
        with conversation("127.0.9.12", path):
            converse(connection)
        connection.close()
    return path


def converse(connection):
    """Use each command once at least."""
    connection.read_device_info()
    connection.read_state()
    connection.get_all_symbols()
    connection.write_by_name("MAIN.nInt", 5)
    assert connection.read_list_by_name(["MAIN.nInt", "MAIN.sText"])["MAIN.nInt"] == 5
    told = threading.Event()
    handles = connection.add_device_notification("MAIN.nInt", pyads.NotificationAttrib(2), lambda *_: told.set())
    assert told.wait(PATIENCE_S)
    connection.write_control(pyads.ADSSTATE_RUN, 0, 0, pyads.PLCTYPE_INT)
    connection.read_by_name("GVL_Theta.stLatest", pyads.PLCTYPE_BYTE * 2000)
    KEPT.extend(pyads.pyads_ex.callback_store.values())
    connection.del_device_notification(*handles)
    with pytest.raises(pyads.ADSError):
        connection.read_by_name("MAIN.nothing", pyads.PLCTYPE_INT)
    connection.write_by_name("MAIN.sText", END.decode(), pyads.PLCTYPE_STRING)


class TestDissector:
    def test_nothing_is_malformed(self, capture):
        assert tshark(capture, "ams", "frame.number")
        assert tshark(capture, "_ws.malformed or _ws.expert.severity == error", "frame.number") == []

    def test_commands_are_recognised(self, capture):
        commands = {int(value) for (text,) in tshark(capture, "ams.cmdid", "ams.cmdid") for value in text.split(",")}
        assert commands == set(range(1, 10))
