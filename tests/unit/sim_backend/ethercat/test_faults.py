"""Fault scripts: what they may say, when faults are due, and what each does to a segment of drives."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.files.robots.file import load_robot
from sim_backend.drive._cia402 import State
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat import wire
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._faults import FaultSchedule, FaultScript, FaultScriptError
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.settings import SegmentFileError, parse_segment
from tests.lab.ethercat.slave_bench import OP, SAFEOP, Bench

JOINTS = [f"joint_{k}" for k in range(1, 7)]
S = 1_000_000_000
COUNT = wire.build_frame([wire.physical(wire.BRD, 0, 0, bytes(1))])


def script(text: str) -> FaultScript:
    return FaultScript.model_validate(tomllib.loads(text))


class Plant:
    """Six drives on a ring, and faults that come about at once."""

    def __init__(self) -> None:
        profile = load_profile("generic_servo")
        fittings = [DriveFitting(profile, build_dictionary(profile)) for _ in JOINTS]
        self.machine = Machine(load_robot("space6").model, fittings)
        make = [partial(SlaveController, profile=profile, dictionary=each.dictionary) for each in fittings]
        self.segment = Segment(make, self.machine, ring=True)

    def fault(self, text: str) -> None:
        schedule = FaultSchedule(script(f"[[fault]]\nat_s = 0\n{text}"), JOINTS)
        schedule.begin(0, 0)
        (action,) = schedule.due(0, 0)
        action.apply(self.segment, self.machine)

    def counters(self, port: int = 0) -> list[tuple[int, int]]:
        """Port at which a frame comes out, and how many slaves took part."""
        answers = self.segment.exchange(COUNT, port, 0)
        return [(out, wire.parse_frame(frame)[0].working_counter) for out, frame in answers]

    def bench(self, slave: int) -> Bench:
        """A master's access to one slave."""
        bench = Bench()
        controller = self.segment.controllers[slave]
        assert isinstance(controller, SlaveController)
        bench.memory, bench.slave, bench.dictionary = self.segment.memory[slave], controller, controller.dictionary
        return bench


@pytest.fixture
def plant() -> Plant:
    return Plant()


def test_frames_are_lost(plant: Plant) -> None:
    plant.fault('kind = "lost_frame"\ncount = 2')
    assert [plant.counters() for _ in range(3)] == [[], [], [(1, 6)]]


def test_replies_are_lost_after_the_slaves_have_done_what_they_say(plant: Plant) -> None:
    plant.fault('kind = "lost_frame"\nafter = "slaves"')
    write = wire.build_frame([wire.physical(wire.BWR, 0, reg.STATION_ADDRESS, b"\x07\x10")])
    assert plant.segment.exchange(write, 0, 0) == []
    assert plant.segment.memory[:, reg.STATION_ADDRESS].tolist() == [7] * 6
    assert plant.counters() == [(1, 6)]


def test_the_power_for_a_motor_goes_and_comes_again(plant: Plant) -> None:
    machine, drive = plant.machine, plant.machine.drives[2]
    for slave in range(6):
        bench = plant.bench(slave)
        bench.to_safeop()
        bench.outputs(bytes(17))
        assert bench.request(OP) == (OP, 0)
    machine.cycle(0.03)
    for controlword in (0x06, 0x07, 0x0F):
        for each in machine.drives:
            each.objects.controlword.value = controlword
        machine.cycle(0.001)
    plant.fault('kind = "mains"\nslave = "joint_3"')
    machine.cycle(0.001)
    assert [(k, emergency.code) for k, emergency in machine.emergencies] == [(2, 0x3220)]
    assert not int(drive.objects.statusword.value) >> 4 & 1
    assert [each.state is State.FAULT for each in machine.drives] == [k == 2 for k in range(6)]
    plant.fault('kind = "mains"\nslave = "joint_3"\non = true')
    for controlword in (0x00, 0x80):
        drive.objects.controlword.value = controlword
        machine.cycle(0.001)
    assert drive.state is State.SWITCH_ON_DISABLED
    assert int(drive.objects.statusword.value) >> 4 & 1


def test_the_cable_is_cut_and_mended(plant: Plant) -> None:
    plant.fault('kind = "cut"\nafter = 2')
    assert (plant.counters(0), plant.counters(1)) == ([(0, 2)], [(1, 4)])
    plant.fault('kind = "mend"')
    assert plant.counters() == [(1, 6)]


def test_a_slave_loses_its_power_with_its_drive(plant: Plant) -> None:
    plant.machine.cycle(0.03)
    plant.machine.cycle(0.001)
    assert plant.machine.drives[3].state is State.SWITCH_ON_DISABLED
    plant.fault('kind = "power_off"\nslave = "joint_4"')
    assert (plant.counters(0), plant.counters(1)) == ([(0, 3)], [(1, 2)])
    plant.fault('kind = "power_on"\nslave = "joint_4"')
    assert plant.counters() == [(1, 6)]
    assert plant.machine.drives[3].state is State.NOT_READY
    assert plant.machine.drives[2].state is State.SWITCH_ON_DISABLED


def test_the_working_counter_drops(plant: Plant) -> None:
    plant.fault('kind = "wkc_drop"\nslave = 1\nframes = 2')
    assert [plant.counters() for _ in range(3)] == [[(1, 5)], [(1, 5)], [(1, 6)]]


def test_replies_are_late(plant: Plant) -> None:
    plant.fault('kind = "slow_reply"\nns = 700_000')
    assert plant.counters() == []
    assert plant.segment.released(600_000) == []
    assert len(plant.segment.released(700_000)) == 1
    assert plant.counters() == [(1, 6)]


def test_a_slave_refuses_op_until_it_does_not(plant: Plant) -> None:
    plant.fault('kind = "refuse_op"\nslave = "joint_2"\ncode = 0x0024')
    benches = [plant.bench(slave) for slave in (0, 1)]
    for bench in benches:
        bench.to_safeop()
        bench.outputs(bytes(17))
    assert [bench.request(OP) for bench in benches] == [(OP, 0), (SAFEOP | reg.AL_ERROR, 0x0024)]
    plant.fault('kind = "refuse_op"\nslave = "joint_2"\nrefuse = false')
    benches[1].request(SAFEOP | reg.AL_ERROR)
    benches[1].outputs(bytes(17))
    assert benches[1].request(OP) == (OP, 0)


def test_a_slave_sends_an_emergency_message(plant: Plant) -> None:
    benches = [plant.bench(slave) for slave in (3, 4)]
    for bench in benches:
        bench.to_preop()
    plant.fault('kind = "emergency"\nslave = "joint_5"\ncode = 0xFF01')
    silent, message = (bench.receive() for bench in benches)
    assert silent is None
    assert message is not None
    assert message[6:10] == bytes.fromhex("00 10 01 ff")  # CoE emergency, then the code


def test_a_slave_falls_with_an_al_status_code(plant: Plant) -> None:
    plant.fault('kind = "al_error"\nslave = 5\ncode = 0x002C')
    row = plant.segment.memory[5]
    assert row[reg.AL_STATUS] & reg.AL_ERROR
    assert row[reg.AL_STATUS_CODE] == 0x2C
    assert not plant.segment.memory[4, reg.AL_STATUS] & reg.AL_ERROR


def test_clocks_drift_and_jump(plant: Plant) -> None:
    before = plant.segment.clocks.times.copy()
    plant.fault('kind = "clock_step"\nslave = 2\nns = -5000')
    assert (plant.segment.clocks.times - before).any(axis=tuple(range(1, before.ndim))).tolist() == [
        k == 2 for k in range(6)
    ]
    rates = plant.segment.clocks.rates.copy()
    plant.fault('kind = "clock_drift"\nslave = 1\nppm = 40.0')
    changed = (plant.segment.clocks.rates - rates).reshape(6, -1)
    assert changed.any(axis=1).tolist() == [k == 1 for k in range(6)]


def test_drives_get_their_faults(plant: Plant) -> None:
    plant.fault('kind = "drive_fault"\nslave = 0\ncode = 0x7305')
    plant.fault('kind = "sto"\nslave = 1')
    plant.fault('kind = "stuck_encoder"\nslave = 2')
    plant.fault('kind = "encoder_jump"\nslave = "joint_4"\ncounts = 1234')
    machine = plant.machine
    assert [drive.state is State.FAULT for drive in machine.drives] == [k == 0 for k in range(6)]
    assert [drive.safe_torque_off for drive in machine.drives] == [k == 1 for k in range(6)]
    assert [axis.stuck for axis in machine.axes] == [k == 2 for k in range(6)]
    twin = Plant()
    for each in (plant, twin):
        each.machine.cycle(0.001)
    positions = [[int(drive.objects.position.value) for drive in each.machine.drives] for each in (plant, twin)]
    assert positions[0][3] - positions[1][3] == 1234
    plant.fault('kind = "sto"\nslave = 1\nactive = false')
    plant.fault('kind = "stuck_encoder"\nslave = 2\nstuck = false')
    assert not machine.drives[1].safe_torque_off
    assert not machine.axes[2].stuck


SCRIPT = """
[[fault]]
kind = "mend"
at_s = 2.5

[[fault]]
kind = "cut"
at_s = 1.0
after = 3

[[fault]]
kind = "emergency"
cycle = 1200
slave = 0
code = 0xFF01
"""


def test_faults_are_due_at_their_times_counted_from_operation_on() -> None:
    schedule = FaultSchedule(script(SCRIPT), JOINTS)
    assert schedule.due(100 * S, 10**6) == []
    schedule.begin(200 * S, 5000)
    schedule.begin(300 * S, 9000)  # operational again after a fault: nothing starts anew
    assert schedule.due(201 * S - 1, 6199) == []
    assert [a.fault.kind for a in schedule.due(201 * S, 6000)] == ["cut"]
    assert [(a.fault.kind, a.slave) for a in schedule.due(201 * S, 6200)] == [("emergency", 0)]
    assert schedule.left == 1
    assert [a.fault.kind for a in schedule.due(999 * S, 6201)] == ["mend"]
    assert schedule.due(10**6 * S, 10**9) == []


@given(st.lists(st.integers(0, 50), max_size=12), st.lists(st.integers(0, 10), min_size=1, max_size=30))
def test_each_fault_is_due_once_and_in_order(times: list[int], steps: list[int]) -> None:
    text = "\n".join(f'[[fault]]\nkind = "lost_frame"\nat_s = {at}\ncount = {k + 1}' for k, at in enumerate(times))
    schedule = FaultSchedule(script(text), JOINTS)
    schedule.begin(0, 0)
    now, seen = 0, []
    for step in steps:
        now += step
        seen += [action.fault.at_s for action in schedule.due(now * S, 0)]
    assert seen == sorted(at for at in times if at <= now)
    assert schedule.left == sum(at > now for at in times)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "lost"\nat_s = 1', r"fault\[0\]: .*'lost'.*'lost_frame', 'cut'"),
        ('kind = "mend"', r"fault\[0\].mend: .*either at_s or cycle"),
        ('kind = "mend"\nat_s = 1\ncycle = 2', "either at_s or cycle"),
        ('kind = "mend"\nat_s = -1', r"fault\[0\].mend.at_s: .*greater than or equal to 0"),
        ('kind = "mend"\nat_s = 1\nslave = 2', r"fault\[0\].mend.slave: unknown key"),
        ('kind = "cut"\nat_s = 1', r"fault\[0\].cut.after: Field required"),
        ('kind = "lost_frame"\nat_s = 1\nafter = 2', r"fault\[0\].lost_frame.after: .*'master' or 'slaves'"),
        ('kind = "al_error"\nat_s = 1\nslave = 1\ncode = 70000', r"fault\[0\].al_error.code"),
    ],
)
def test_a_script_that_cannot_be_used_says_where(text: str, message: str) -> None:
    table = tomllib.loads(f'robot = "space6"\n[[drive]]\njoint = "joint_1"\n[[fault]]\n{text}')
    with pytest.raises(SegmentFileError, match=message):
        parse_segment(table, "segment.toml", Path())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('kind = "sto"\nslave = "elbow"', r"fault\[0\].sto.slave: 'elbow' is no joint; there are joint_1, joint_2"),
        ('kind = "sto"\nslave = 6', r"fault\[0\].sto.slave: is 6, but the 6 slaves are 0 to 5"),
        ('kind = "cut"\nafter = 7', r"fault\[0\].cut.after: is 7, but there are 6 slaves"),
    ],
)
def test_a_slave_that_there_is_not_is_named(entry: str, message: str) -> None:
    with pytest.raises(FaultScriptError, match=message):
        FaultSchedule(script(f"[[fault]]\nat_s = 1\n{entry}"), JOINTS)
