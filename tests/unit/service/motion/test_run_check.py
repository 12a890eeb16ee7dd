"""What a run is judged by ahead: limits from the files, and torque, of every robot, against an independent model."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from drivers.ads.config import AxisTable
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import load_robot
from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyError
from service.acquisition.process import STOP_S
from service.config.arm_tables import SafetyConfig
from service.io.trajectory_file import Trajectory
from service.motion._safety_limits import command_bounds, narrowed, safety_limits
from service.motion.trajectory_run import MAX_S, RunCheck
from service.protocol.control import VERBS
from service.supervisor._worker_pool import STOP_STAGES
from tests.lab.arms.simulated import random_arm, twin

PERIOD_S = 0.004


def check(model: RobotModel) -> RunCheck:
    return RunCheck(model, safety_limits(model, SafetyConfig()), PERIOD_S, 0.15)


def coupled(effort: float = 1e4) -> RobotModel:
    """Four turning joints, the last motor turning two of them, with friction by load."""
    model = random_arm(4, 3, prismatic=0.0, coupled=True)
    return replace(
        model,
        joints=tuple(replace(joint, effort=effort) for joint in model.joints),
        friction=Friction("coulomb_viscous", load=True),
        dynamics=replace(model.dynamics, load_friction=np.full(4, 0.1)),
    )


def fast(model: RobotModel) -> Trajectory:
    t = np.linspace(0.0, 4.0, 201)
    q = 0.4 * (1.0 - np.cos(2.0 * np.pi * t / 4.0))[:, None] * np.ones(model.n)
    return Trajectory(tuple(joint.name for joint in model.joints), ("rad",) * model.n, rate_hz=50.0, table=q)


def checked(model: RobotModel) -> None:
    _, checks = check(model).begin(1, "x", fast(model), np.zeros(model.n), periods=1, hold=False, token="a")
    list(checks)


def test_a_coupled_arm_with_friction_by_load_is_judged() -> None:
    checked(coupled())
    rigid = 0.0
    model = coupled()
    oracle, q = twin(model), fast(model).table
    for row in q:
        rigid = max(rigid, float(np.abs(pin.rnea(oracle, oracle.createData(), row, 0.0 * row, 0.0 * row)).max()))
    with pytest.raises(SafetyError, match="torque"):
        checked(coupled(effort=0.9 * rigid))  # gravity alone is more


@pytest.mark.parametrize("pace", [1.0, 0.5])
def test_what_can_be_checked_is_checked_within_the_time_of_an_answer(pace: float) -> None:
    """A slice is checked with each frame; more than can be checked in time is refused before the first."""
    model = random_arm(1, 3, prismatic=0.0)
    here, names = np.zeros(1), (model.joints[0].name,)
    checks = RunCheck(model, safety_limits(model, SafetyConfig()), PERIOD_S, 0.15, pace)

    def begin(period_s: float) -> int:
        what = Trajectory(names, ("rad",), rate_hz=10.0 / period_s, table=np.zeros((11, 1)))
        return len(list(checks.begin(1, "x", what, here, periods=2, hold=False, token="a")[1]))

    longest_s = pace * MAX_S - 4.0
    assert 40.0 < begin(longest_s) * PERIOD_S / pace < VERBS["run_trajectory"].within_s
    with pytest.raises(SafetyError, match=rf"more than {pace * MAX_S:.0f} s of motion.*choose a shorter period"):
        begin(longest_s + 4.0)


def test_unchecked_properties_are_listed_completely() -> None:
    model = coupled()
    coupling = "limits of the motors of joint_4, which are coupled"
    assert [text.split(":")[0] for text in check(model).unchecked] == ["collisions", coupling]
    joints = (replace(model.joints[0], effort=np.inf), *model.joints[1:])
    found = check(replace(model, joints=joints, dynamics=None)).unchecked
    assert [text.split(":")[0] for text in found] == [
        "collisions", "torque of joint_1", "friction and rotor inertia in the torque", coupling,
    ]  # fmt: skip
    partly = replace(
        model.dynamics, coulomb=np.array([1.0, 0.0, 0.0, 1.0]), viscous=np.zeros(4), load_friction=np.zeros(4)
    )
    assert "friction of joint_2, joint_3 in the torque" in " ".join(check(replace(model, dynamics=partly)).unchecked)
    assert check(replace(model, inertial=None)).unchecked[1].startswith("torque: the robot description")


# ---------------------------------------------------------------- limits of an arm from its files


def test_a_slide_may_follow_less_far_behind_than_a_joint_that_turns() -> None:
    slide, turning = load_robot("emps").model, load_robot("arm7").model
    assert safety_limits(slide, SafetyConfig()).units == ("m",)
    np.testing.assert_array_equal(safety_limits(slide, SafetyConfig()).following_error, [0.01])
    np.testing.assert_array_equal(safety_limits(turning, SafetyConfig()).following_error, [0.2] * 7)
    given = safety_limits(slide, SafetyConfig(following_error=0.05))
    np.testing.assert_array_equal(given.following_error, [0.05])


def test_the_narrower_of_robot_and_driver_counts() -> None:
    limits = safety_limits(load_robot("arm7").model, SafetyConfig())
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
