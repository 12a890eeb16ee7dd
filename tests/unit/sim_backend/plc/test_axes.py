"""Values of the axes in their units, against the arm's own by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.lab.ads.plc_bench import JOINTS, Variables, make, parsed

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


def test_set_positions_are_in_the_same_units(moved):
    plc, variables = moved
    start = [axis.fSetpoint for axis in variables.samples()[-1].aAxis]
    first = variables.head.nSamples + 10
    q = plc.machine.sample.q.copy()
    points = [[start[0], start[1] + 2.0 * k, *start[2:]] for k in range(1, 51)]  # 100 degrees at the motor
    points += [points[-1]] * 100
    variables.points(1, first, points)
    variables.advance(500, enable=True)
    assert plc.machine.sample.q[1] - q[1] == pytest.approx(-math.radians(100.0) / 50.0, abs=2e-3)
    assert plc.machine.sample.q[0] == pytest.approx(q[0], abs=2e-3)
