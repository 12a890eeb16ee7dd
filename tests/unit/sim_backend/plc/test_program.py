"""The PLC program as its clients see it: samples, ring, heartbeat, set positions, stops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from drivers.ads import layout
from sim_backend.plc._axes import Axes
from tests.lab.ads.plc_bench import WALL_NS, Variables, make, parsed, play, positions

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

    def test_info(self, variables):
        info = variables.read("stInfo")
        assert (info.nVersion, info.nAxes, info.nBlockSamples, info.nBlocks) == (layout.VERSION, 9, 5, 4)
        assert (info.nSetpoints, info.nCycleNs, info.nHeartbeatMs, info.nChannels) == (400, 1_000_000, 200, 0x7F)
        assert [bytes(name).rstrip(b"\0").decode() for name in np.frombuffer(bytes(info.aNames), "S32")] == [
            f"joint_{k + 1}" for k in range(9)
        ]

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

    def test_axes_hold_where_they_are(self, variables):
        variables.advance(5)
        before = positions(variables)
        variables.enable()
        variables.advance(500, enable=True)
        after = variables.samples()[-1].aAxis
        np.testing.assert_allclose([axis.fPosition for axis in after], before, atol=2e-3)
        np.testing.assert_allclose([axis.fSetpoint for axis in after], before, atol=1e-6)


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

    def test_the_arm_follows(self, variables, start):
        points = [[v + 0.02 * (1 - math.cos(math.pi * min(k, 300) / 300)) for v in start] for k in range(1, 303)]
        play(variables, points)
        variables.advance(400, enable=True)
        end = variables.samples()[-1].aAxis
        np.testing.assert_allclose([axis.fPosition for axis in end], np.array(start) + 0.04, atol=3e-3)
        assert (variables.head.nUnderruns, variables.head.nState) == (0, layout.ENABLED)

    def test_without_points_moving_axes_go_on_for_two_cycles_then_stop_along_their_way(self, variables, start):
        start = np.array(start)
        step = np.array([1.0, 0.5] + [0.25] * 7) * 1e-3
        play(variables, [list(start + step * k) for k in range(1, 31)])
        way = course(variables, 250)
        steps = np.diff(way, axis=0)
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

    def test_no_points_at_rest_is_nothing(self, variables, start):
        play(variables, [start] * 10)
        variables.advance(500, enable=True)
        assert (variables.head.nState, variables.head.nUnderruns) == (layout.ENABLED, 0)

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

    def test_buffers_in_reverse_order(self, variables, start):
        first = variables.head.nSamples + 20
        variables.points(2, first + 3, [[v + 4e-4 for v in start]] * 3)
        variables.advance(5, enable=True)
        variables.points(1, first, [[v + 1e-4 * k for v in start] for k in range(1, 6)])
        way = course(variables, 40)[:, 0] - start[0]
        np.testing.assert_allclose(way[way > 0][:7], np.array([1, 2, 3, 4, 4, 4, 4]) * 1e-4, atol=1e-9)
        assert (variables.head.nSequence, variables.head.nUnderruns) == (2, 0)

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

    def test_a_stop_is_a_ramp_of_all_axes_together(self, variables, start):
        start = np.array(start)
        step = np.array([1.0, 0.5] + [0.25] * 7) * 1e-3
        play(variables, [list(start + step * k) for k in range(1, 100)], lead=5)
        variables.advance(50, enable=True)
        variables.command(False)
        way = []
        for _ in range(40):
            variables.advance(5)
            way += [[axis.fSetpoint for axis in sample.aAxis] for sample in variables.samples()[-5:]]
        assert (variables.head.nState, variables.head.nReason) == (layout.OFF, 1)
        steps = np.diff(np.array(way), axis=0)
        moving = steps[(steps[:, 0] > 0) & (steps[:, 0] < 0.999e-3)]
        assert len(moving) > 20
        assert np.all(np.diff(moving[:, 0]) < 1e-9)  # slower and slower
        np.testing.assert_allclose(moving[:, 1], 0.5 * moving[:, 0], atol=1e-9)  # on its way


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

    def test_axes_that_are_on_hold_while_others_are_not(self, plc, variables):
        plc.machine.failing[0] = True
        variables.advance(20, enable=False)
        variables.advance(200, enable=True)
        assert plc.machine.enabled.tolist() == [False] + [True] * 8
        before = positions(variables)
        moved = [axis.model_copy(update={"offset_rad": 0.01}) for axis in plc.settings.axis]
        plc.machine.axes = Axes(moved)  # the encoders say something else from now on
        variables.advance(20, enable=True)
        after = np.array(positions(variables))
        np.testing.assert_allclose(after - before, [0.01] + [0.0] * 8, atol=1e-6)

    def test_an_axis_without_values_says_so(self, plc, variables):
        variables.advance(10)
        plc.machine.silent[2] = True
        variables.advance(10)
        sample = variables.samples()[-1]
        assert [axis.nStatus & layout.AXIS_VALID for axis in sample.aAxis] == [1, 1, 0, 1, 1, 1, 1, 1, 1]
