"""Process data through frames: working counters, lost SYNC0 and frames, and set positions that are late or missing."""

import random
import struct
from functools import partial
from itertools import pairwise

import pytest

from drivers.files.robots.file import load_robot
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from tests.lab.ethercat.drive_bench import Bench
from tests.lab.ethercat.frame_master import MS, OP, PREOP, SAFEOP, FrameMaster

ACK = reg.AL_ERROR
N = 6


def operational(device: str = "generic_servo", cycle_ns: int = 0) -> FrameMaster:
    profile = load_profile(device)
    fittings = [DriveFitting(profile, build_dictionary(profile)) for _ in range(N)]
    make = [partial(SlaveController, profile=profile, dictionary=each.dictionary) for each in fittings]
    master = FrameMaster(Segment(make, Machine(load_robot("space6").model, fittings)))
    master.bring_up(cycle_ns=cycle_ns)
    assert master.exchange() == 3 * N
    return master


@pytest.mark.parametrize("state", [reg.AL_INIT, PREOP])
def test_a_slave_that_falls_below_safeop_takes_no_part_in_process_data(state: int) -> None:
    master = operational()
    master.bus.al_error(2, 0x0050, fall_to=state)
    assert master.exchange() == 3 * N - 3
    assert master.inputs[2] == bytes(len(master.inputs[2]))
    master.configure(2)  # sync managers off and on again: only the device unlocks its memory
    assert master.exchange() == 3 * N - 3


def test_a_slave_takes_part_from_safeop_on() -> None:
    master = operational()
    master.bus.al_error(2, 0x0050)
    assert master.status(2) == (SAFEOP | ACK, 0x0050)
    assert master.exchange() == 3 * N
    master.bus.al_error(2, 0x0050, fall_to=PREOP)
    assert master.exchange() == 3 * N - 3
    master.write(2, reg.AL_CONTROL, struct.pack("<H", SAFEOP | ACK))
    master.run(5)
    assert master.status(2) == (SAFEOP, 0)
    assert master.exchange() == 3 * N
    master.write(2, reg.AL_CONTROL, struct.pack("<H", OP))
    master.run(5)
    assert master.status(2) == (OP, 0)


def test_process_data_act_when_only_the_reply_is_lost() -> None:
    master = operational()
    mode = master.bus.controllers[3].dictionary.entry(0x6060)
    for lost, acts in ((master.bus.drop_frames, False), (master.bus.drop_replies, True)):
        master.outputs[3] = bytes(14) + b"\x08\x00"
        master.run(1)
        master.bus.tick(master.now + MS)
        assert mode.value == 8
        lost(1)
        master.now += 2 * MS
        master.outputs[3] = bytes(14) + b"\x09\x00"
        assert master.exchange() is None
        master.bus.tick(master.now + MS)
        assert (mode.value == 9) == acts


@pytest.mark.parametrize("lost", ["drop_frames", "drop_replies"])
def test_a_lost_answer_of_the_mailbox_can_be_asked_for_again(lost: str) -> None:
    master = operational()
    upload = b"\x00\x20\x40\x18\x10\x01" + bytes(4)
    assert master.post(1, master.message(upload)) == 1
    getattr(master.bus, lost)(1)
    assert master.fetch(1) is None
    if lost == "drop_replies":
        assert master.fetch(1) is None  # the slave takes it for read
        manager = reg.SM + reg.SM_SIZE
        master.write(1, manager + reg.SM_ACTIVATE, bytes([reg.SM_ACTIVATE_ENABLE | reg.SM_ACTIVATE_REPEAT]))
        (acknowledged,) = master.read(1, manager + reg.SM_PDI_CONTROL, 1)
        assert acknowledged == reg.SM_PDI_REPEAT_ACKNOWLEDGE
    assert master.fetch(1)[2:] == b"\x43\x18\x10\x01" + struct.pack("<I", 0x0E5A)


def test_missed_set_positions_are_extrapolated_then_held() -> None:
    bench = Bench(extrapolated=3)
    bench.enable()
    position = bench.get(0x6064)
    for _ in range(20):
        position += 50
        bench.set(0x607A, position)
        bench.run()
    targets = []
    for _ in range(5):
        bench.run(fresh=False)
        targets.append(round(bench.demand.target) - position)
    assert targets == [50, 100, 150, 150, 150]
    bench.set(0x607A, position + 200)
    bench.run()
    assert round(bench.demand.target) - position == 200


@pytest.mark.parametrize("every", [2, 5])
def test_sparse_set_positions_are_joined_smoothly(every: int) -> None:
    bench = Bench()
    bench.enable()
    start = bench.get(0x6064)
    targets = []
    for cycle in range(20 * every):
        fresh = cycle % every == 0
        if fresh:
            bench.set(0x607A, start + 50 * cycle)
        bench.run(fresh=fresh)
        targets.append(bench.demand.target)
    steps = [after - before for before, after in pairwise(targets[3 * every :])]
    assert steps == pytest.approx([50.0] * len(steps), abs=1e-6)


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_set_positions_that_come_a_step_early_or_late_are_joined_smoothly(seed: int, spaced: bool) -> None:
    """The master's set positions are evenly spaced, or those of the time at which they come."""
    rng = random.Random(seed)
    bench = Bench()
    bench.set(0x60C2, 4, 1)  # 4 ms
    bench.enable()
    start, targets = bench.get(0x607A), []
    comes = {4 * k + rng.choice([-1, 0, 1]): 4 * k for k in range(1, 200)}
    for cycle in range(800):
        if cycle in comes:
            bench.set(0x607A, start + 50 * (comes[cycle] if spaced else cycle))
        bench.run(fresh=cycle in comes)
        targets.append(bench.demand.target)
    steps = [after - before for before, after in pairwise(targets[12:])]
    assert max(steps) < 1.5 * 50.0 + 1e-6  # where one comes late and the next one early
    assert min(steps) > 0.25 * 50.0
    assert sum(steps) == pytest.approx(50.0 * len(steps), abs=400.0)
