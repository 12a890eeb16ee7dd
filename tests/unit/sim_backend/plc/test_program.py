"""The PLC program as its clients see it: samples in the units of the axes, ring, heartbeat, set positions, stops."""

import math

import numpy as np
import pytest

from drivers.ads import layout
from tests.lab.ads.plc_bench import JOINTS, WALL_NS, Variables, make, parsed, play, positions

SPEED = 1.8  # limit of joint_1 [rad/s]


def course(variables, cycles):
    """Set positions of all axes in each cycle to come, (cycles - a few, axes); enabled, with a heartbeat."""
    found = {}
    first = variables.head.nSamples
    for _ in range(cycles // 5):
        variables.advance(5, enable=True)
        found |= {each.nCounter: [axis.fSetpoint for axis in each.aAxis] for each in variables.samples()}
    return np.array([found[k] for k in sorted(found) if k >= first])


class TestSamples:
    def test_every_cycle_is_a_sample_on_the_grid_of_time(self, variables):
        variables.advance(17)
        samples = variables.samples()
        assert [sample.nCounter for sample in samples] == list(range(15))  # three whole blocks
        first = (WALL_NS // 100) + 116_444_736_000_000_000
        assert [sample.nTime for sample in samples] == [first + 10_000 * k for k in range(15)]
        assert [sample.nDcTime for sample in samples] == [
            WALL_NS - 946_684_800 * 10**9 + 1_000_000 * k for k in range(15)
        ]
        head = variables.head
        assert (head.nSamples, head.nBlocks, head.nTime) == (17, 3, first + 160_000)
        assert head.nStart == variables.read("stInfo").nStart == first

    def test_the_ring_goes_round_and_the_block_in_the_making_is_known(self, variables):
        variables.advance(43)
        ring = variables.read("aRing")
        assert [(block.nBlock, block.nBlockEnd) for block in ring] == [(8, 4), (5, 5), (6, 6), (7, 7)]
        latest = variables.read("stLatest")
        assert bytes(latest) == bytes(ring[3])
        assert [sample.nCounter for sample in latest.aSample] == [35, 36, 37, 38, 39]

    def test_what_is_not_measured_stays_zero(self):
        variables = Variables(make(parsed(channels=["q", "tau"], dc=False)))
        variables.advance(10)
        assert variables.read("stInfo").nChannels == 0b101
        sample = variables.samples()[-1]
        assert sample.nDcTime == 0
        for axis in sample.aAxis:
            assert axis.fVelocity == axis.fMotorPosition == axis.fCurrent == axis.fTemperature == axis.fSetpoint == 0.0


class TestEnabling:
    def test_axes_need_run_heartbeat_and_an_edge(self, variables):
        variables.advance(50)
        assert variables.head.nState == layout.OFF
        variables.enable()
        status = variables.samples()[-1].aAxis[0].nStatus
        assert status & 7 == layout.AXIS_VALID | layout.AXIS_ENABLED
        assert status >> 16 & 0x6F == 0x27  # operation enabled

    def test_a_command_for_another_run_is_ignored(self, variables):
        for _ in range(20):
            variables.command(True, run=12345)
            variables.advance(10)
        assert variables.head.nState == layout.OFF

    def test_enable_without_off_before_does_nothing_after_a_stop(self, variables):
        variables.enable()
        variables.advance(400)  # no heartbeat
        assert variables.head.nState == layout.OFF
        assert layout.REASONS[variables.head.nReason] == "the heartbeat stopped"
        variables.advance(300, enable=True)
        assert variables.head.nState == layout.OFF
        variables.enable()

    def test_without_a_heartbeat_axes_stop_after_its_time(self, variables):
        variables.enable()
        variables.command(True)
        variables.advance(199)
        assert variables.head.nState == layout.ENABLED
        variables.advance(4)
        assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 2)  # they stood


class TestSetPositions:
    def test_points_are_used_in_their_cycles(self, variables, start):
        points = [[value + 1e-4 * (k + 1) for value in start] for k in range(12)]
        first = play(variables, points[:6])
        variables.points(2, first + 6, points[6:])
        variables.advance(31, enable=True)
        used = {sample.nCounter: [axis.fSetpoint for axis in sample.aAxis] for sample in variables.samples()}
        for k in range(12):
            if first + k in used:
                assert used[first + k] == points[k]
        assert len([k for k in range(12) if first + k in used]) >= 5
        assert (variables.head.nSequence, variables.head.nRefused) == (2, 0)

    def test_without_points_moving_axes_go_on_for_two_cycles_then_stop_along_their_way(self, variables, start):
        start = np.array(start)
        step = np.array([1.0, 0.5] + [0.25] * 7) * 1e-3
        play(variables, [list(start + step * k) for k in range(1, 31)])
        steps = np.diff(course(variables, 250), axis=0)
        full = np.isclose(steps[:, 0], step[0], rtol=1e-6, atol=0.0)
        begin = int(np.argmax(full))
        assert np.flatnonzero(full).tolist() == list(range(begin, begin + 32))  # two more than points
        ramp = steps[begin + 32 :]
        ramp = ramp[: np.argmin(ramp[:, 0] > 0)]
        assert len(ramp) > 20
        assert np.all(np.diff(ramp[:, 0]) < 0)
        np.testing.assert_allclose(ramp[:, 1:], ramp[:, :1] * (step[1:] / step[0]), atol=1e-9)
        head = variables.head
        assert (head.nState, head.nReason, head.nUnderruns) == (layout.OFF, 3, 3)

    def test_points_that_come_back_after_two_cycles_are_used(self, variables, start):
        first = play(variables, [[v + 1e-4 * k for v in start] for k in range(1, 11)])
        variables.points(2, first + 12, [[v + 1e-4 * min(k, 20) for v in start] for k in range(13, 40)])
        way = course(variables, 80)[:, 0]
        np.testing.assert_allclose(way[-1], start[0] + 20e-4, atol=1e-12)
        assert np.all(np.diff(way) < 1.01e-4)
        head = variables.head
        assert (head.nState, head.nUnderruns, head.nReason) == (layout.ENABLED, 2, 0)

    @pytest.mark.parametrize("wrong", [1.01 * 1.5 * SPEED * 1e-3, math.nan])
    def test_too_large_a_step_stops(self, variables, start, wrong):
        play(variables, [[start[0] + 0.99 * 1.5 * SPEED * 1e-3, *start[1:]], start, start])
        variables.advance(50, enable=True)
        assert variables.head.nState == layout.ENABLED
        play(variables, [[start[0] + wrong, *start[1:]], start], sequence=2)
        variables.advance(200, enable=True)
        assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 4)

    @pytest.mark.parametrize("wrong", [{"nStart": 1}, {"nChecksum": 1}, {"nCount": 0}, {"nCount": 401}, {"nFirst": 3}])
    def test_bad_buffers_are_refused_and_counted_once(self, variables, start, wrong):
        first = variables.head.nSamples + 20
        variables.points(1, first, [[v + 1e-4 for v in start]], **wrong)
        variables.advance(50, enable=True)
        assert (variables.head.nRefused, variables.head.nSequence) == (1, 1)  # the number has been seen
        assert positions(variables) == start

    def test_what_was_skipped_when_arming_counts_as_seen(self, variables):
        variables.advance(10, enable=False)
        start = positions(variables)
        play(variables, [start], sequence=7)
        play(variables, [start], sequence=4)
        assert variables.head.nSequence == 0
        variables.enable()
        assert (variables.head.nSequence, variables.head.nRefused) == (7, 0)

    def test_numbers_wrap_around(self, variables, start):
        for sequence in (0x7FFFFFFF, 0xFFFFFFFE):
            play(variables, [start] * 5, sequence=sequence)
            variables.advance(30, enable=True)
            assert variables.head.nSequence == sequence
        first = play(variables, [[v + 1e-4 for v in start]] * 5, sequence=0xFFFFFFFF)
        variables.points(0, first, [[v + 2e-4 for v in start]] * 5)
        variables.advance(30, enable=True)
        assert (variables.head.nSequence, variables.head.nRefused) == (0, 0)
        assert positions(variables) == [v + 2e-4 for v in start]  # of the newer one

    def test_a_buffer_may_be_written_in_parts(self, variables, start):
        first = variables.head.nSamples + 40
        points = [[v + 1e-4 for v in start]] * 5
        variables.points(1, first, points, nChecksum=7)  # the rest is still on its way
        variables.advance(10, enable=True)
        variables.points(1, first, points)
        variables.advance(60, enable=True)
        assert (variables.head.nRefused, variables.head.nSequence) == (0, 1)
        assert positions(variables) == points[0]


class TestFaultyAxes:
    def test_an_axis_with_a_fault_stops_all(self, plc, variables):
        variables.enable()
        plc.machine.failing[3] = True
        variables.advance(300, enable=True)
        assert (variables.head.nState, variables.head.nReason) == (layout.FAULT, 5)
        assert variables.samples()[-1].aAxis[3].nStatus & layout.AXIS_FAULT
        variables.advance(20, enable=False)
        variables.advance(200, enable=True)
        assert variables.head.nState == layout.ENABLING  # the fault cannot be reset
        plc.machine.failing[3] = False
        variables.advance(200, enable=True)
        assert variables.head.nState == layout.ENABLING  # nor is it tried again
        variables.enable()

    def test_a_fault_stays_until_it_is_reset(self, plc, variables):
        plc.machine.failing[3] = True
        variables.advance(20, enable=False)
        plc.machine.failing[3] = False
        variables.advance(50, enable=False)
        assert variables.head.nState == layout.FAULT
        variables.enable()

    def test_axes_that_do_not_come_on_in_time(self, plc, variables):
        plc.machine.failing[0] = True
        variables.advance(20, enable=False)
        variables.advance(5020, enable=True)
        assert (variables.head.nState, variables.head.nReason) == (layout.FAULT, 6)
        assert not plc.machine.power

    def test_an_axis_without_values_says_so(self, plc, variables):
        variables.advance(10)
        plc.machine.silent[2] = True
        variables.advance(10)
        sample = variables.samples()[-1]
        assert [axis.nStatus & layout.AXIS_VALID for axis in sample.aAxis] == [1, 1, 0, 1, 1, 1, 1, 1, 1]


FIRST = {
    "unit": "deg", "side": "motor", "gear_ratio": 50.0, "sign": -1, "offset_rad": 0.3, "motor_unit": "rev",
    "torque_side": "motor", "torque_unit": "permille", "rated_torque_nm": 2.0, "current_unit": "mA",
    "torque_constant_nm_per_a": 0.1,
}  # fmt: skip


@pytest.fixture
def moved():
    axes = [{"joint": joint, "torque_unit": "Nm", "torque_side": "joint"} for joint in JOINTS]
    axes[1] |= FIRST
    plc = make(parsed(axis=axes, start=[0.1, 0.7] + [0.2] * 7))
    variables = Variables(plc)
    variables.enable()
    variables.advance(50, enable=True)
    return plc, variables


def test_position_velocity_torque_current(moved):
    plc, variables = moved
    plc.advance(plc.clock.due_ns(plc.next_cycle + 4 - plc.program.counter % 5))
    sample, arm = variables.samples()[-1], plc.machine.sample
    turned, plain = sample.aAxis[1], sample.aAxis[0]
    assert plain.fPosition == pytest.approx(arm.q[0], abs=1e-5)
    assert plain.fVelocity == pytest.approx(arm.dq[0], abs=1e-12)
    assert plain.fTorque == pytest.approx(arm.tau[0], rel=1e-6)
    assert turned.fPosition == pytest.approx(math.degrees((-arm.q[1] + 0.3) * 50.0), abs=1e-3)
    assert turned.fVelocity == pytest.approx(math.degrees(-arm.dq[1] * 50.0), rel=1e-9, abs=1e-12)
    assert turned.fMotorPosition == pytest.approx((-arm.q[1] + 0.3) * 50.0 / (2 * math.pi), abs=2e-6)
    assert turned.fTorque == pytest.approx(-arm.tau[1] / 50.0 / 2.0 * 1000.0, rel=1e-6)
    assert turned.fCurrent == pytest.approx(-arm.tau[1] / 50.0 / 0.1 * 1000.0, rel=1e-6)
    assert abs(arm.tau[1]) > 10.0  # it carries the arm


def test_the_encoder_counts():
    plc = make(parsed(axis=[{"joint": j, "torque_unit": "Nm", "encoder_counts_per_rev": 1000} for j in JOINTS],
                      start=[0.12345] * 9))  # fmt: skip
    variables = Variables(plc)
    variables.advance(5)
    counts = np.array([axis.fPosition for axis in variables.samples()[-1].aAxis]) * 1000 / (2 * math.pi)
    np.testing.assert_allclose(counts, np.round(0.12345 * 1000 / (2 * math.pi)), atol=1e-9)
