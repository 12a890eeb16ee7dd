"""The torque that a run is judged by ahead: of every robot that can be described, against an independent model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyError
from service.run import RunCheck
from service.safety_config import SafetyConfig
from service.safety_limits import safety_limits
from service.trajectory_file import Trajectory
from tests.sim.sim_arms import random_arm, twin

PERIOD_S = 0.004


def check(model: RobotModel) -> RunCheck:
    return RunCheck(model, safety_limits(model, SafetyConfig()), PERIOD_S, 0.15)


def coupled(effort: float = 1e4) -> RobotModel:
    """Four turning joints, the last motor turning two of them, with friction by load."""
    model = random_arm(4, 3, prismatic=0.0, coupled=True)
    assert model.dynamics is not None
    return replace(
        model,
        joints=tuple(replace(joint, effort=effort) for joint in model.joints),
        friction=Friction("coulomb_viscous", load=True),
        dynamics=replace(model.dynamics, load_friction=np.full(4, 0.1)),
    )


def fast(model: RobotModel) -> Trajectory:
    t = np.linspace(0.0, 4.0, 201)
    q = 0.4 * (1.0 - np.cos(2.0 * np.pi * t / 4.0))[:, None] * np.ones(model.n)
    names = tuple(joint.name for joint in model.joints)
    return Trajectory(names, ("rad",) * model.n, rate_hz=50.0, table=q)


def checked(model: RobotModel) -> None:
    _, checks = check(model).begin(1, "x", fast(model), np.zeros(model.n), periods=1, hold=False, token="a")
    list(checks)


def test_a_coupled_arm_with_friction_by_load_is_judged() -> None:
    checked(coupled())
    rigid = 0.0
    model = coupled()
    oracle, q = twin(model), fast(model).table
    assert q is not None
    for row in q:
        rigid = max(rigid, float(np.abs(pin.rnea(oracle, oracle.createData(), row, 0.0 * row, 0.0 * row)).max()))
    with pytest.raises(SafetyError, match="torque"):
        checked(coupled(effort=0.9 * rigid))  # gravity alone is more


def test_what_is_not_judged_is_told_completely() -> None:
    model = coupled()
    assert model.dynamics is not None
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
