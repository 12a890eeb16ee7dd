"""Motions of an arm whose friction follows temperature: judged at the reference temperature, and it is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.excitation.constraints import PriorTorque
from service.config.arm_tables import SafetyConfig
from service.io.trajectory_file import Trajectory
from service.motion._safety_limits import safety_limits
from service.motion.trajectory_run import RunCheck
from sim_backend.arm.settings import SimSettings
from tests.lab.command_line import thetad

ROBOT = "space6_temperature"
QUICK = ("--harmonics", 3, "--rate", 20, "--set", "iterations=5")


def test_the_torque_of_a_motion_is_that_at_the_reference() -> None:
    model = load_robot(ROBOT).model
    d = model.dynamics
    torque = PriorTorque(model)
    q, v = np.random.default_rng(0).uniform(0.1, 0.4, (2, 20, 6))
    odd = 0.5 * (torque((q, v, 0.0 * q)) - torque((q, -v, 0.0 * q)))  # links' torque is even in velocity
    np.testing.assert_allclose(odd, d.coulomb + d.viscous * v, rtol=1e-9)


def test_a_run_is_judged() -> None:
    model = load_robot(ROBOT).model
    check = RunCheck(model, safety_limits(model, SafetyConfig()), 0.004, 0.15)
    t = np.linspace(0.0, 4.0, 201)
    q = 0.1 * (1.0 - np.cos(2.0 * np.pi * t / 4.0))[:, None] * np.ones(6)
    names = tuple(joint.name for joint in model.joints)
    trajectory = Trajectory(names, ("rad",) * 6, rate_hz=50.0, table=q)
    _, checks = check.begin(1, "x", trajectory, np.zeros(6), periods=1, hold=False, token="a")
    list(checks)
    assert any("20 degC" in text for text in check.unchecked)
    plain = load_robot("space6").model
    without = RunCheck(plain, safety_limits(plain, SafetyConfig()), 0.004, 0.15)
    assert not any("20 degC" in text for text in without.unchecked)


def test_a_motion_is_designed_with_its_report(tmp_path: Path) -> None:
    done = thetad("excite", ROBOT, "-o", tmp_path, "--json", *QUICK)
    assert done.code in (0, 1), done
    assert (tmp_path / "report.html").stat().st_size > 0
    assert any("20 degC" in text for text in done.json["unchecked"])


def test_a_simulated_arm_does_not_heat_up_from_friction_unasked() -> None:
    assert SimSettings().friction_heating_k_per_w == 0.0
