"""Axes that have lost power stay off until they are enabled again."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.ads import layout
from tests.lab.ads.plc_bench import play


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
