"""What takes friction at one temperature: design of a motion, comparison of methods, a plan for a simulated arm."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.design import Designer
from rt_core.excitation.settings import ExcitationSettings
from service.operations.compare import Conditions, compare_seed
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import plan_motion

WARM, PLAIN = load_robot("space6_temperature").model, load_robot("space6").model


def test_a_motion_is_designed_for_the_parameters_that_motion_shows() -> None:
    settings = ExcitationSettings(f0_hz=0.1, harmonics=3)
    warm, plain = (Designer(model, settings) for model in (WARM, PLAIN))
    assert warm.excitation.layout.names == plain.excitation.layout.names
    x = 0.3 * np.random.default_rng(0).uniform(warm.space.lower, warm.space.upper)
    found, expected = (one.fused.evaluate(one.space.stacked(x)) for one in (warm, plain))
    assert found == pytest.approx(expected)


def test_methods_are_compared_at_the_reference() -> None:
    conditions = Conditions(seconds=12.0, validation_s=6.0)
    one, other = (compare_seed(model, ("wls",), 1, conditions).trials[0] for model in (WARM, PLAIN))
    assert one.failure == ""
    np.testing.assert_allclose(one.torque_error, other.torque_error)


def test_the_same_seed_plans_the_same_motion() -> None:
    one, other = (plan_motion(model, MotionSettings(seed=3, candidates=3)) for model in (WARM, PLAIN))
    np.testing.assert_array_equal(one.coefficients, other.coefficients)
