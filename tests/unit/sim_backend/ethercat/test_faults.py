"""Fault scripts: what they may say, when faults are due, and what each does to a segment of drives."""

import tomllib
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from pydantic import TypeAdapter

from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._faults import Fault, FaultScriptError, slave_number
from sim_backend.ethercat._machine import Machine
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.build import apply_fault
from sim_backend.ethercat.settings import SegmentFileError, parse_segment
from sim_backend.faults import FaultSchedule
from tests.lab.ethercat.slave_bench import OP, SAFEOP, Bench
from tests.lab.files import FILES

JOINTS = [f"joint_{k}" for k in range(1, 7)]
S = 1_000_000_000


def script(text: str) -> tuple[Fault, ...]:
    return TypeAdapter(tuple[Fault, ...]).validate_python(tuple(tomllib.loads(text).get("fault", ())))


@pytest.mark.parametrize(
    ("text", "target", "wanted"),
    [
        ('kind = "lost_frame"\ncount = 2', "segment", call.drop_frames(2)),
        ('kind = "lost_frame"\nafter = "slaves"', "segment", call.drop_replies(1)),
        ('kind = "cut"\nafter = 2', "segment", call.cut(2)),
        ('kind = "mend"', "segment", call.mend()),
        ('kind = "power_on"\nslave = "joint_4"', "segment", call.power_on(3)),
        ('kind = "wkc_drop"\nslave = 1\nframes = 2', "segment", call.deaf(1, 2)),
        ('kind = "al_error"\nslave = 5\ncode = 0x002C', "segment", call.al_error(5, 0x2C)),
        ('kind = "emergency"\nslave = "joint_5"\ncode = 0xFF01', "segment", call.emergency(4, 0xFF01)),
        ('kind = "clock_drift"\nslave = 1\nppm = 40.0', "segment", call.drift_clock(1, 40.0)),
        ('kind = "clock_step"\nslave = 2\nns = -5000', "segment", call.step_clock(2, -5000)),
        ('kind = "slow_reply"\nns = 700_000\nframes = 3', "segment", call.delay_replies(700_000, 3)),
        ('kind = "stuck_encoder"\nslave = 2\nstuck = false', "machine", call.stuck_encoder(2, False)),
        ('kind = "encoder_jump"\nslave = "joint_4"\ncounts = 1234', "machine", call.encoder_jump(3, 1234)),
        ('kind = "drive_fault"\nslave = 0\ncode = 0x7305', "machine", call.drive_fault(0, 0x7305)),
        ('kind = "sto"\nslave = 1\nactive = false', "machine", call.safe_torque_off(1, False)),
        ('kind = "mains"\nslave = "joint_3"\non = true', "machine", call.mains(2, True)),
    ],
)
def test_each_fault_acts_on_segment_or_machine(text: str, target: str, wanted: object) -> None:
    (fault,) = script(f"[[fault]]\nat_s = 0\n{text}")
    parts = {"segment": Mock(spec=Segment), "machine": Mock(spec=Machine)}
    apply_fault(fault, slave_number(fault, JOINTS), **parts)
    assert {name: part.mock_calls for name, part in parts.items()} == {"segment": [], "machine": []} | {
        target: [wanted]
    }


def test_a_slave_refuses_op_until_it_does_not() -> None:
    bench = Bench()
    segment = Mock(spec=Segment, controllers=[bench.slave])
    bench.to_safeop()
    bench.outputs(bytes(16))
    refuse, allow = script(
        '[[fault]]\nkind = "refuse_op"\ncycle = 1\nslave = 0\ncode = 0x24\n'
        '[[fault]]\nkind = "refuse_op"\ncycle = 2\nslave = 0\nrefuse = false'
    )
    apply_fault(refuse, 0, segment, Mock(spec=Machine))
    assert bench.request(OP) == (SAFEOP | reg.AL_ERROR, 0x0024)
    apply_fault(allow, 0, segment, Mock(spec=Machine))
    assert bench.request(OP | reg.AL_ERROR) == (OP, 0)


SCRIPT = (FILES / "ethercat_faults.toml").read_text(encoding="utf-8")


def test_faults_are_due_at_their_times_counted_from_operation_on() -> None:
    schedule = FaultSchedule(script(SCRIPT))
    assert schedule.due(10**6, 100 * S) == []
    schedule.begin(5000, 200 * S)
    schedule.begin(9000, 300 * S)  # operational again after a fault: nothing starts anew
    assert schedule.due(6199, 201 * S - 1) == []
    assert [fault.kind for fault in schedule.due(6000, 201 * S)] == ["cut"]
    assert [fault.kind for fault in schedule.due(6200, 201 * S)] == ["emergency"]
    assert schedule.left == 1
    assert [fault.kind for fault in schedule.due(6201, 999 * S)] == ["mend"]
    assert schedule.due(10**9, 10**6 * S) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "lost"\nat_s = 1', r"fault\[0\]: .*'lost'.*'lost_frame', 'cut'"),
        ('kind = "mend"', r"fault\[0\]: give either at_s or cycle"),
        ('kind = "mend"\nat_s = 1\nslave = 2', r"fault\[0\].slave: unknown key"),
        ('kind = "lost_frame"\nat_s = 1\nafter = 2', r"fault\[0\].after: .*'master' or 'slaves'"),
    ],
)
def test_a_script_that_cannot_be_used_says_where(text: str, message: str) -> None:
    table = tomllib.loads(f'robot = "space6"\n[[drive]]\njoint = "joint_1"\n[[fault]]\n{text}')
    with pytest.raises(SegmentFileError, match=message):
        parse_segment(table, "segment.toml", Path())


@pytest.mark.parametrize(
    ("entry", "message"),
    [('kind = "sto"\nslave = "elbow"', r"fault\[0\].sto.slave: 'elbow' is not a joint; there are joint_1, joint_2"),
     ('kind = "sto"\nslave = 6', r"fault\[0\].sto.slave: is 6, but the 6 slaves are 0 to 5"),
     ('kind = "cut"\nafter = 7', r"fault\[0\].cut.after: is 7, but there are 6 slaves")],
)  # fmt: skip
def test_a_slave_that_there_is_not_is_named(entry: str, message: str) -> None:
    with pytest.raises(FaultScriptError, match=message):
        slave_number(script(f"[[fault]]\nat_s = 1\n{entry}")[0], JOINTS)
