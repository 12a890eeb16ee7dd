"""Faults of the PLC, one by one, and their schedule; descriptions of PLCs that are refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

from drivers.ads import layout
from sim_backend.plc.settings import PlcFileError, load_plc
from tests.lab.ads.plc_bench import JOINTS, Variables, make, parsed, play
from tests.lab.ads.simple_client import SYSTEM, PlainClient

MS = 1_000_000


def faulty(*faults):
    return make(parsed(fault=list(faults)))


def state(client, port=851):
    """ADS state behind a port, or the router's error as a negative number; None without an answer."""
    answer = client.request(4, port=port)
    if answer is None:
        return None
    return -answer.error if answer.error else struct.unpack("<IHH", answer.data)[1]


def test_refused_routes():
    plc = faulty({"kind": "refuse_routes", "cycle": 5}, {"kind": "refuse_routes", "cycle": 9, "refuse": False})
    client = PlainClient(plc)
    client.advance(6)
    assert client.session.closed
    assert PlainClient(plc).session.closed
    client.advance(6)
    assert state(PlainClient(plc)) == 5


def test_only_clients_with_a_route():
    plc = make(parsed(routes=["10.0.0.7.1.1"]))
    assert state(PlainClient(plc)) == 5
    other = PlainClient(plc, source=bytes((10, 0, 0, 8, 1, 1)))
    assert not other.session.closed
    assert state(other) is None
    assert other.session.closed


@pytest.mark.parametrize("single", [True, False])
def test_one_connection_per_host(single):
    plc = make(parsed(one_connection_per_host=single))
    sessions = [plc.connect(host) for host in ("10.0.0.7", "10.0.0.8", "10.0.0.7")]
    assert [session.closed for session in sessions] == [single, False, False]
    assert plc.sessions == sessions[single:]


def test_late_replies_keep_their_order():
    client = PlainClient(faulty({"kind": "late_replies", "cycle": 0, "ms": 30, "count": 1}))
    client.advance(1)
    assert client.request(4) is None
    assert client.request(4) is None  # waits for the one before
    assert client.session.outlet.due(30 * MS - 1) == []
    assert [len(piece) for piece in client.session.outlet.due(30 * MS)] == [2 * (6 + 32 + 8)]


def test_batched_replies_come_together():
    client = PlainClient(faulty({"kind": "batch_replies", "cycle": 0, "ms": 20}))
    client.advance(1)
    for _ in range(3):
        client.session.receive(client.packet(4), client.now_ns)
    assert client.session.outlet.due(19 * MS) == []
    pieces = client.session.outlet.due(20 * MS)
    assert [len(piece) for piece in pieces] == [3 * (6 + 32 + 8)]


def test_fragments():
    client = PlainClient(faulty({"kind": "fragment_replies", "cycle": 0, "bytes": 7, "gap_ms": 1.0}))
    client.advance(1)
    client.session.receive(client.packet(4), 0)
    pieces = [client.session.outlet.due(ms * MS) for ms in range(8)]
    assert [len(piece) for due in pieces for piece in due] == [7, 7, 7, 7, 7, 7, 4]
    assert all(len(due) == 1 for due in pieces[:7])


def test_silence():
    client = PlainClient(faulty({"kind": "silence", "cycle": 5, "ms": 20}))
    client.notify(0x4020, 0, 4, 3)
    client.advance(6)
    seen = len(client.stamps)
    assert state(client) is None
    client.advance(15)
    assert len(client.stamps) == seen
    client.advance(10)
    assert state(client) == 5
    assert len(client.stamps) > seen


def test_a_ring_overrun_by_answers_that_wait():
    plc = faulty({"kind": "ring_overrun", "cycle": 3})
    client = PlainClient(plc)
    client.advance(4)
    assert client.request(4) is None
    client.advance(4 * 5 * 5 // 4 - 1)
    assert client.collect() is None
    before = plc.program.counter
    client.now_ns += MS
    assert client.collect() is not None
    assert before >= 4 * 5  # the ring of four blocks of five has gone round


def test_stop_and_run_keep_variables_and_handles():
    variables = Variables(faulty({"kind": "stop", "cycle": 20}, {"kind": "run", "cycle": 30}))
    client = variables.client
    handle = client.handle("MAIN.nCycles")
    run = variables.head.nStart
    variables.advance(25)
    assert state(client) == 6
    assert client.read(0xF005, handle, 4) == (0, struct.pack("<I", 20))
    variables.advance(10)
    assert state(client) == 5
    assert client.read(0xF005, handle, 4) == (0, struct.pack("<I", 25))
    assert variables.head.nStart == run


def test_restart():
    variables = Variables(faulty({"kind": "restart", "cycle": 20, "down_s": 0.01}))
    client = variables.client
    handle, watched = client.handle("MAIN.nInt"), client.notify(0x4020, 0, 4, 3)
    client.set("MAIN.nInt", b"\1\0")
    run = variables.head.nStart
    variables.advance(22)
    assert state(client) == -6
    assert state(client, SYSTEM) == 5
    variables.advance(18)
    assert state(client) == 5
    assert client.read(0xF005, handle, 2) == (0x710, b"")
    assert client.request(7, struct.pack("<I", watched)).result == 0x714
    assert client.value("MAIN.nInt") == struct.pack("<h", -12)
    head = variables.head
    assert head.nStart == run + 30 * 10_000
    assert head.nSamples == 10


CHANGE = {"kind": "online_change", "cycle": 30, "structure": "ST_ThetaAxis", "field": "fTorque", "type": "LREAL"}


def test_an_online_change_alters_a_structure():
    variables = Variables(faulty(CHANGE))
    client = variables.client
    handle = client.handle("GVL_Theta.aRing")
    other = client.handle("MAIN.nInt")
    client.set("MAIN.nInt", b"\5\0")
    before = client.read(0xF008, 0, 1)
    size = len(client.value("GVL_Theta.stLatest"))
    variables.advance(43)
    assert client.read(0xF005, handle, 8) == (0x711, b"")
    assert client.read(0xF005, other, 8) == (0x711, b"")
    assert client.read(0xF008, 0, 1)[1] != before[1]
    assert len(client.value("GVL_Theta.stLatest")) == size + 5 * 9 * 8
    assert client.value("MAIN.nInt") == b"\5\0"  # kept
    head = variables.head
    assert (head.nSamples, head.nBlocks) == (43, 8)  # the program goes on
    place = client.read_write(0xF007, 0, 12, b"GVL_Theta.stLatest.aSample[4].aAxis[1].fTorque\0")[1]
    assert struct.unpack("<III", place)[2] == 8
    (counter,) = struct.unpack("<Q", client.value("GVL_Theta.stLatest.aSample[4].nCounter"))
    assert counter == 39


def test_an_online_change_that_keeps_handles_moves_them():
    client = PlainClient(faulty(CHANGE | {"keep_handles": True}))
    handle, ring = client.handle("MAIN.nCycles"), client.handle("GVL_Theta.aRing[2].nBlock")
    client.advance(45)
    assert client.read(0xF005, handle, 4) == (0, struct.pack("<I", 45))
    assert client.read(0xF005, ring, 8) == (0, struct.pack("<Q", 6))


def test_a_clock_that_is_set():
    variables = Variables(faulty({"kind": "clock_step", "cycle": 10, "ms": -250.0}))
    variables.advance(15)
    samples = variables.samples()
    assert samples[10].nTime - samples[9].nTime == 10_000 - 2_500_000
    assert samples[10].nDcTime - samples[9].nDcTime == 1_000_000


def test_the_clock_of_faults_starts_with_the_first_client_and_axes_go_by_name_or_number():
    axes = [{"kind": "axis_fault", "axis": "joint_4"}, {"kind": "axis_invalid", "axis": 6}]
    plc = faulty({"kind": "stop", "at_s": 0.009}, *(fault | {"at_s": 0.003} for fault in axes))
    plc.advance(100 * MS)
    assert (plc.states, plc.machine.failing.any(), plc.machine.silent.any()) == ((5, 5), False, False)
    client = PlainClient(plc)
    client.advance(7)
    assert plc.states == (5, 5)
    assert (np.flatnonzero(plc.machine.failing), np.flatnonzero(plc.machine.silent)) == (3, 6)
    client.advance(5)
    assert plc.states == (5, 6)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "stop"}, "either at_s or cycle"),
        ({"kind": "stop", "at_s": 1.0, "cycle": 2}, "either at_s or cycle"),
        ({"kind": "explode", "at_s": 1.0}, "fault"),
        (CHANGE | {"field": "aAxis", "structure": "ST_ThetaSample"}, "'aAxis' of ST_ThetaSample cannot be altered"),
        (CHANGE | {"type": "TREAL"}, "'TREAL' is not elementary"),
        (CHANGE | {"field": "fNone", "type": None}, "'fNone' of ST_ThetaAxis cannot be altered"),
    ],
)
def test_bad_entries_are_refused(entry, message):
    with pytest.raises(PlcFileError, match=message):
        parsed(fault=[entry])
    with pytest.raises(PlcFileError, match=r"fault\[0\].*'joint_12' is not a joint"):
        faulty({"kind": "axis_fault", "cycle": 1, "axis": "joint_12"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"robots": "arm9"}, "robots: unknown key; did you mean 'robot'"),
        ({"net_id": "1.2.3"}, "net_id: '1.2.3' is not an AMS net id"),
        ({"axis": [{"joint": "joint_1", "unit": "furlong"}]}, r"axis\[0\].unit"),
        ({"axis": [{"joint": "joint_1"}]}, "torque_unit = 'permille' needs rated_torque_nm"),
        ({"axis": [{"joint": "joint_1", "torque_unit": "Nm", "gear": 3}]}, r"axis\[0\].gear: unknown key"),
        ({"axis": [{"joint": "a", "torque_unit": "Nm", "unit": "mm", "side": "motor"}]}, "needs a unit of angle"),
        ({"axis": [{"joint": j, "torque_unit": "Nm", "name": "A"} for j in JOINTS]}, "same name"),
        ({"cycle_us": 10_000, "heartbeat_ms": 15}, "heartbeat_ms = 15 is less than two cycles"),
        ({"block_samples": 10_000, "blocks": 100_000}, "smaller blocks"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_place(change, message):
    with pytest.raises(PlcFileError, match=message):
        parsed(**change)


def test_axes_that_are_not_the_robots():
    axes = [{"joint": joint, "torque_unit": "Nm"} for joint in JOINTS[:-1]]
    with pytest.raises(PlcFileError, match="list one axis for each"):
        make(parsed(axis=axes))
    with pytest.raises(PlcFileError, match="robot"):
        make(parsed(robot="arm99"))


def test_files(tmp_path):
    with pytest.raises(PlcFileError, match="cannot be read"):
        load_plc(Path(tmp_path / "none.toml"))
    bad = tmp_path / "bad.toml"
    bad.write_text("robot = ")
    with pytest.raises(PlcFileError, match="not valid TOML"):
        load_plc(bad)


@pytest.fixture
def moving(plc, variables, start):
    play(variables, [[v + 5e-4 * k for v in start] for k in range(1, 400)], lead=5)
    variables.advance(60, enable=True)
    assert np.all(np.abs(plc.machine.measured.velocity) > 0.1)
    return plc


def is_on(machine):
    return machine.power or machine.follow or machine.enabled.any()


def stays_off(plc, variables, cycles=300):
    for _ in range(cycles):
        variables.advance(1, enable=True)
        assert not is_on(plc.machine)
        assert variables.head.nState in (layout.OFF, layout.FAULT)
    before = plc.machine.measured.position.copy()
    variables.advance(50, enable=True)
    np.testing.assert_allclose(plc.machine.measured.position, before, atol=1e-5)


@pytest.mark.parametrize("stopping", [False, True])
def test_power_that_went_by_itself(moving, variables, stopping):
    if stopping:
        variables.command(False)
        variables.advance(5)
        assert variables.head.nState == layout.STOPPING
    moving.machine.switch_off()
    stays_off(moving, variables)
    assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 5)
    variables.enable()


def test_a_fault_of_all_axes(moving, variables):
    moving.machine.failing[:] = True
    stays_off(moving, variables)
    assert (variables.head.nState, variables.head.nReason) == (layout.FAULT, 5)


@pytest.mark.parametrize("cycles", [1, 300])
def test_stop_and_run(moving, variables, cycles):
    moving.stop()
    stays_off_while_stopped(moving, variables, cycles)
    moving.run()
    stays_off(moving, variables)
    assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 7)
    variables.enable()


def stays_off_while_stopped(plc, variables, cycles):
    counter = plc.program.counter
    for _ in range(cycles):
        variables.advance(1, enable=True)
        assert not is_on(plc.machine)
    assert plc.program.counter == counter


def test_a_task_that_stood_still(moving, variables):
    moving.exceed_task(250)
    variables.advance(252, enable=True)
    variables.advance(1, enable=True)
    stays_off(moving, variables)
    assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 7)
    variables.enable()


def test_a_command_from_before_a_halt_is_old(plc, variables):
    variables.advance(10, enable=False)
    plc.exceed_task(250)
    variables.advance(1)
    stays_off_while_stopped(plc, variables, 250)
    variables.advance(1)  # the task goes on, with the command to enable
    stays_off(plc, variables)
    variables.enable()


def test_a_clock_that_went_back(moving, variables):
    moving.clock.step(-1)
    variables.advance(1, enable=True)
    assert variables.head.nState == layout.ENABLED  # the next cycle is still after the last one
    moving.clock.step(-10_001)
    variables.advance(2, enable=True)
    stays_off(moving, variables)
    assert variables.head.nReason == 7


def test_silence_counts_in_time_not_in_cycles(plc, variables):
    variables.enable()
    variables.command(True)
    plc.exceed_task(150)
    before = plc.program.counter
    variables.advance(200)
    assert variables.head.nState == layout.ENABLED
    variables.advance(1)
    assert plc.program.counter - before == 51
    variables.advance(3)
    assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 2)
