"""Limits of an arm from its robot file and its configuration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.ads.config import AxisTable
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import load_robot
from rt_core.safety import SafetyError
from service.acquisition.process import STOP_S
from service.config.arm_tables import SafetyConfig
from service.motion._safety_limits import command_bounds, narrowed, safety_limits
from service.supervisor.supervisor import STOP_STAGES


def test_a_slide_may_follow_less_far_behind_than_a_joint_that_turns() -> None:
    slide, turning = load_robot("emps").model, load_robot("arm7").model
    assert safety_limits(slide, SafetyConfig()).units == ("m",)
    np.testing.assert_array_equal(safety_limits(slide, SafetyConfig()).following_error, [0.01])
    np.testing.assert_array_equal(safety_limits(turning, SafetyConfig()).following_error, [0.2] * 7)
    given = safety_limits(slide, SafetyConfig(following_error=0.05))
    np.testing.assert_array_equal(given.following_error, [0.05])


def test_the_narrower_of_robot_and_driver_counts() -> None:
    model = load_robot("arm7").model
    limits = safety_limits(model, SafetyConfig())
    free = AxisTable(joint="a")
    axes = [AxisTable(joint="b", position_min_rad=-0.1, position_max_rad=9.0, velocity_max_rad_s=0.2), *6 * [free]]
    found = narrowed(limits, command_bounds(axes))
    assert -0.1 < found.lower[0] < -0.0999
    assert 0.1999 < found.velocity[0] < 0.2
    assert found.upper[0] == limits.upper[0]
    for name in ("lower", "upper", "velocity"):
        np.testing.assert_array_equal(getattr(found, name)[1:], getattr(limits, name)[1:])
    np.testing.assert_array_equal(found.acceleration, limits.acceleration)
    bare = replace(limits, lower=np.full(7, -np.inf), velocity=np.full(7, np.inf), overspeed=np.full(7, np.inf))
    assert set(narrowed(bare, command_bounds(axes)).missing) == set(bare.missing)
    with pytest.raises(SafetyError, match="not below the upper limit"):
        narrowed(limits, command_bounds([AxisTable(joint="b", position_min_rad=9.0), *6 * [free]]))


def test_a_daemon_that_stops_leaves_time_to_brake_and_to_switch_off() -> None:
    """The longest stop that a bus may be given, after the longest of a run, and half a second to leave operation."""
    field = EthercatConfig.model_fields["stop_timeout_ms"]
    longest_s = next(bound.le for bound in field.metadata if hasattr(bound, "le")) * 1e-3
    roles, seconds = STOP_STAGES[0]
    assert "acquisition" in roles
    assert seconds >= STOP_S + longest_s + 0.5
