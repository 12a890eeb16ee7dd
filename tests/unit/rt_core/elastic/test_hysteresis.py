"""Hysteresis is what spring and friction of the model leave: its size is told, and none where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.elastic.hysteresis import hysteresis
from rt_core.elastic.identify import identify_elastic_joint
from tests.lab.arms.harmonic_drive import J_IN, J_OUT, RATE, TRUTH, N, Recorded, measured, record


def hanging(half_width: float, rate_hz: float) -> Recorded:
    """A load that swings within 0.9 rad of hanging: the deflection grows just while the joint goes one way."""
    t = np.arange(0.0, 2.0 / rate_hz, 1.0 / RATE)
    q = 0.9 * np.sin(2.0 * np.pi * rate_hz * t)
    v = np.gradient(q, 1.0 / RATE)
    sign = np.tanh(v / 1e-3)
    sensor = 700.0 * np.sin(q) + J_OUT * np.gradient(v, 1.0 / RATE)
    torque = sensor + TRUTH["b_out"] * v + TRUTH["b_outC"] * sign
    d = (torque - half_width * np.tanh(np.gradient(torque, 1.0 / RATE))) / TRUTH["k1"]
    angle = N * (q + d)
    speed = np.gradient(angle, 1.0 / RATE)
    motor = J_IN * np.gradient(speed, 1.0 / RATE) + torque / N + TRUTH["b_in"] * speed + TRUTH["b_inD"] * sign
    return measured(Recorded(t, angle, q, motor, sensor, d, v, np.ones(t.size, dtype=np.bool_), TRUTH), 3)


def test_a_loop_that_goes_with_the_sign_of_the_speed_is_not_told_from_coulomb_friction() -> None:
    answer = identify_elastic_joint([hanging(20.0, 0.02).rows(inertia=J_IN)], cubic=False, lag_s=0.0).answer
    assert answer.fit.value("b_outC") < TRUTH["b_outC"] - 10.0  # that is where it is
    assert hysteresis(answer.fit) == (None, None)


@pytest.mark.parametrize("half_width", [0.0, 20.0])
def test_a_loop_that_goes_in_part_with_the_speed_is_told_whole(half_width: float) -> None:
    """Viscous friction shifts the deflection against the speed, and where they differ the loop shows."""
    fit = identify_elastic_joint([hanging(half_width, 0.05).rows(inertia=J_IN)], cubic=False, lag_s=0.0).answer.fit
    for loop in hysteresis(fit):
        assert loop.std < 0.2 * 20.0
        assert abs(loop.half_width - half_width) < 3.0 * loop.std


def test_a_deflection_that_goes_one_way_tells_no_loop() -> None:
    fit = identify_elastic_joint([record(5).rows(inertia=J_IN)]).answer.fit
    one_way = replace(fit, deflection=np.linspace(0.0, 1e-3, fit.deflection.size))
    assert hysteresis(one_way) == (None, None)
