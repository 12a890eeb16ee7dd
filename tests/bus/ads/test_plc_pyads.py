"""pyads as the client, over TCP."""

from __future__ import annotations

import ctypes
import queue
from itertools import pairwise

import pyads
import pytest

from drivers.ads import layout
from drivers.ads.layout import Sizes
from sim_backend.plc._variables import Alteration
from sim_backend.plc.server import Server, ServerError
from tests.lab.ads.plc_bench import make, settings
from tests.lab.ads.plc_thread import serving

ADDRESS, NET_ID = "127.0.9.1", "5.80.201.11.1.1"
SIZES = Sizes(9, 10, 64, 50)
PATIENCE_S = 20.0
#: Callbacks, kept for ever: the library may still call one that pyads has let go.
KEPT: list[object] = []


@pytest.fixture(scope="module")
def server():
    with serving(settings(block_samples=10, blocks=64), ADDRESS) as running:
        yield running


@pytest.fixture
def plc(server):
    connection = pyads.Connection(NET_ID, 851, ADDRESS)
    connection.open()
    connection.set_timeout(5000)
    yield connection
    connection.close()


def shape(name):
    return layout.structure(name, SIZES)


def test_device_and_state(plc):
    name, version = plc.read_device_info()
    assert (name, version.version, version.revision) == ("Plc30 App", 3, 1)
    assert plc.read_state() == (pyads.ADSSTATE_RUN, 0)


def test_values_by_name(plc):
    assert plc.read_by_name("MAIN.sText", pyads.PLCTYPE_STRING) == "thetad"
    assert plc.read_by_name("MAIN.aNumbers", pyads.PLCTYPE_INT * 5) == [1, 2, 3, 4, 5]
    assert plc.read_by_name("MAIN.fReal") == 0.5  # type by symbol information
    for name, value in (("MAIN.bSwitch", True), ("MAIN.nLint", -(2**40)), ("MAIN.fLreal", 1.25), ("MAIN.nWord", 77)):
        plc.write_by_name(name, value)
        assert plc.read_by_name(name) == value
    plc.write_by_name("MAIN.sText", "another text", pyads.PLCTYPE_STRING)
    assert plc.read_by_name("MAIN.sText", pyads.PLCTYPE_STRING) == "another text"


def test_symbols(plc):
    symbols = {symbol.name: symbol for symbol in plc.get_all_symbols()}
    assert {f"GVL_Theta.{name}" for name in layout.VARIABLES} < set(symbols)
    assert symbols["MAIN.nCycles"].symbol_type == "UDINT"
    assert symbols["MAIN.nCycles"].comment == "counts the cycles of the task"
    symbol = plc.get_symbol("MAIN.nDint")
    assert symbol.read() == 100_000


def test_blocks_as_structures_by_handle(plc):
    handle = plc.get_handle("GVL_Theta.stLatest")
    for _ in range(20):
        block = plc.read_by_name("", shape("ST_ThetaBlock"), handle=handle)
        assert block.nBlock == block.nBlockEnd
        assert [sample.nCounter for sample in block.aSample] == [10 * block.nBlock + k for k in range(10)]
        for sample in block.aSample:
            assert sample.nChecksum == layout.checksum(bytes(sample))
    plc.release_handle(handle)
    with pytest.raises(pyads.ADSError) as caught:
        plc.read_by_name("", shape("ST_ThetaHead"), handle=handle)
    assert caught.value.err_code == 0x710


def test_sum_commands(plc):
    names = ["MAIN.nInt", "MAIN.sText", "MAIN.aNumbers", "MAIN.fReal", "GVL_Theta.stInfo.nAxes"]
    plc.write_by_name("MAIN.sText", "sum", pyads.PLCTYPE_STRING)
    values = plc.read_list_by_name(names)
    assert values["MAIN.sText"] == "sum"
    assert values["MAIN.aNumbers"] == [1, 2, 3, 4, 5]
    assert values["GVL_Theta.stInfo.nAxes"] == 9
    assert plc.write_list_by_name({"MAIN.nInt": 21, "MAIN.nUdint": 22}) == {
        "MAIN.nInt": "no error", "MAIN.nUdint": "no error",
    }  # fmt: skip
    assert plc.read_list_by_name(["MAIN.nInt", "MAIN.nUdint"]) == {"MAIN.nInt": 21, "MAIN.nUdint": 22}


def test_a_structure_by_its_definition(plc):
    tool = (
        ("sName", pyads.PLCTYPE_STRING, 1, 15),
        ("bClosed", pyads.PLCTYPE_BOOL, 1),
        ("padding", pyads.PLCTYPE_BYTE, 7),
        ("fMass", pyads.PLCTYPE_LREAL, 1),
        ("aCentre", pyads.PLCTYPE_REAL, 3),
        ("end", pyads.PLCTYPE_BYTE, 4),
    )
    read = plc.read_structure_by_name("MAIN.stStation.stTool", tool)
    assert (read["sName"], read["fMass"]) == ("gripper", 1.5)
    plc.write_structure_by_name("MAIN.stStation.stTool", {**read, "fMass": 2.5, "aCentre": [1.0, 2.0, 3.0]}, tool)
    assert plc.read_by_name("MAIN.stStation.stTool.aCentre[3]", pyads.PLCTYPE_REAL) == 3.0


@pytest.mark.parametrize("mode", [pyads.ADSTRANS_SERVERCYCLE, pyads.ADSTRANS_SERVERONCHA])
def test_notifications_without_gaps(plc, mode):
    seen: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()

    # pyads' own conversion of the time goes through datetime: the stamp is taken as it comes.
    def noted(notification, _name):
        data = notification.contents
        seen.put((data.nTimeStamp, ctypes.cast(ctypes.addressof(data) + 16, ctypes.POINTER(ctypes.c_uint32))[0]))

    attributes = pyads.NotificationAttrib(4, mode, max_delay=5, cycle_time=1)
    handles = plc.add_device_notification("MAIN.nCycles", attributes, noted)
    found = [seen.get(timeout=PATIENCE_S) for _ in range(300)]
    KEPT.extend(pyads.pyads_ex.callback_store.values())
    plc.del_device_notification(*handles)
    values = [value for _, value in found]
    assert values == list(range(values[0], values[0] + 300))
    assert {after - before for (before, _), (after, _) in pairwise(found)} == {10_000}


@pytest.mark.parametrize(("net_id", "port", "code"), [("1.2.3.4.1.1", 851, 7), (NET_ID, 852, 6), (NET_ID, 500, 6)])
def test_wrong_net_id_and_wrong_port(server, net_id, port, code):
    connection = pyads.Connection(net_id, port, ADDRESS)
    connection.open()
    try:
        with pytest.raises(pyads.ADSError) as caught:
            connection.read_state()
        assert caught.value.err_code == code
    finally:
        connection.close()


def test_a_fault_from_the_test_and_what_the_client_sees(server, plc):
    handle = plc.get_handle("MAIN.nInt")
    server.do(lambda simulated: simulated.online_change([Alteration("ST_ThetaAxis", "fTorque", "LREAL")]))
    try:
        with pytest.raises(pyads.ADSError) as caught:
            plc.read_by_name("", pyads.PLCTYPE_INT, handle=handle)
        assert caught.value.err_code == 0x711
    finally:
        server.do(lambda simulated: simulated.online_change())
    server.do(lambda simulated: simulated.config_mode())
    try:
        with pytest.raises(pyads.ADSError) as caught:
            plc.read_state()
        assert caught.value.err_code == 6
        system = pyads.Connection(NET_ID, pyads.PORT_SYSTEMSERVICE, ADDRESS)
        system.open()
        assert system.read_state()[0] == pyads.ADSSTATE_CONFIG
        system.close()
    finally:
        server.do(lambda simulated: simulated.run_mode())
    assert plc.read_state()[0] == pyads.ADSSTATE_RUN


def test_late_batched_and_fragmented_replies_are_only_slow(server, plc):
    def spoil(simulated):
        simulated.line.delay_ns, simulated.line.delayed = 20_000_000, 3
        simulated.line.piece_bytes, simulated.line.piece_gap_ns = 200, 50_000

    def mend(simulated):
        simulated.line.piece_bytes = 0

    server.do(spoil)
    try:
        block = plc.read_by_name("GVL_Theta.stLatest", shape("ST_ThetaBlock"))
        assert block.nBlock == block.nBlockEnd
    finally:
        server.do(mend)


def test_routes_are_added_with_user_and_password():
    address = "127.0.9.2"
    with serving(settings(routes=()), address) as server:
        host = "127.0.0.1.1.1"

        def add(password):
            return pyads.add_route_to_plc(host, "127.0.0.1", address, "Administrator", password, added_net_id=host)

        # pyads does not know the answer to a wrong password, and says so.
        with pytest.raises(RuntimeError, match="Unexpected response"):
            add("")
        assert not server.do(lambda simulated: simulated.routed(bytes((127, 0, 0, 1, 1, 1))))
        assert add("1") is True
        assert server.do(lambda simulated: simulated.routed(bytes((127, 0, 0, 1, 1, 1))))
        assert pyads.pyads_ex.adsGetNetIdForPLC(address) == NET_ID


def test_an_address_that_is_taken_or_not_ours(server):
    with pytest.raises(ServerError, match=r"cannot listen at 127\.0\.9\.1, TCP port 48898"):
        Server(make(), ADDRESS)
    with pytest.raises(ServerError, match="give an address of this machine"):
        Server(make(), "192.0.2.1")
    with pytest.raises(ServerError, match="cannot listen"):
        Server(make(), ADDRESS, 70_000)
