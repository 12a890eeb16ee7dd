"""What the estimator tells beside the estimate: parameters and friction as the robot's description has them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._prior import prior_reply
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm

RATE = 200.0
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=20.0, excitation_s=3.0)


@pytest.fixture(scope="module")
def learned() -> OnlineEstimator:
    """An estimator that has seen an arm of three joints move for forty seconds."""
    model = random_arm(3, 21)
    arm = SimulatedArm(
        model,
        SimSettings(rate_hz=RATE, seed=3, torque_noise=0.004),
        MotionSettings(seed=3, candidates=1, base_frequency_hz=0.2),
    )
    data = arm.simulate(40.0)
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    for k in range(data.t.size):
        estimator.step(round(data.t[k] * 1e9), k, data.channels["q"][k], data.channels["tau"][k])
    return estimator


def test_friction_is_described_and_estimated_with_its_band(learned: OnlineEstimator) -> None:
    """Coulomb and viscous friction and the offset, by hand; the truth, which is the description, lies in the band."""
    said = prior_reply(learned, {"arm": "a"})
    dynamics, base = learned.model.dynamics, learned.base
    np.testing.assert_allclose(said["parameters"], base.theta(standard_parameters(learned.model, base.standard)))
    report, covariance = learned.report(), learned.covariance
    checked = 0
    for j, curve in enumerate(said["friction"]):
        v = np.array(curve["velocity"])
        assert (np.diff(v) > 0.0).all()
        middle = int(np.flatnonzero(v == 0.0)[0])
        for line in ("described", "estimated", "lower", "upper"):  # at standstill friction has no value
            assert curve[line] is None or curve[line].pop(middle) is None
        v = np.delete(v, middle)
        assert -v[0] == v[-1] == pytest.approx(learned.model.joints[j].velocity)
        described = dynamics.coulomb[j] * np.sign(v) + dynamics.viscous[j] * v + dynamics.offset[j]
        np.testing.assert_allclose(curve["described"], described, rtol=1e-9, atol=1e-12)
        if curve["undetermined"]:
            assert curve["estimated"] is curve["lower"] is curve["upper"] is None
            continue
        checked += 1
        names = [f"fv{j + 1}", f"fc{j + 1}", f"off{j + 1}"]
        index = [base.names.index(name) for name in names]
        G = np.column_stack((v, np.sign(v), np.ones_like(v)))
        np.testing.assert_allclose(curve["estimated"], G @ report.theta[index], rtol=1e-9)
        half = 1.959964 * np.sqrt(np.einsum("gc,cd,gd->g", G, covariance[np.ix_(index, index)], G))
        for line, sign in (("upper", 1.0), ("lower", -1.0)):
            np.testing.assert_allclose(sign * (np.array(curve[line]) - curve["estimated"]), half, rtol=1e-6)
        assert (np.abs(np.array(curve["estimated"]) - described) < 4.0 / 1.959964 * half).all()
    assert checked >= 2


def test_what_is_not_determined_has_no_curve_and_what_is_not_described_none_either() -> None:
    model = random_arm(3, 21)
    fresh = prior_reply(OnlineEstimator(model, SETTINGS, RATE), {"arm": "a"})
    for j, curve in enumerate(fresh["friction"], 1):
        assert curve["estimated"] is curve["lower"] is curve["upper"] is None
        assert {f"fv{j}", f"fc{j}"} <= set(curve["undetermined"])
        assert curve["described"] is not None
    stated, curves = described(replace(model, inertial=None, dynamics=None))
    assert stated == {}
    assert all(curve["described"] is None for curve in curves)


def described(model: RobotModel) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Values of the description by name, those that there are, and the friction curves."""
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    said = prior_reply(estimator, {"arm": "a"})
    values = zip(estimator.base.names, said["parameters"], strict=True)
    return {name: value for name, value in values if value is not None}, said["friction"]


def test_missing_values_of_a_robot_file_are_not_zero(tmp_path: Path) -> None:
    joint = "a = 0.3\nalpha_deg = 90\nmass = 2.0\ncom = [0.1, 0.0, 0.0]\n"
    path = tmp_path / "half.toml"
    path.write_text(
        'format = 1\nname = "half"\nkinematics = "dh"\n'
        f'[[joint]]\nname = "j1"\n{joint}inertia = [0.1, 0.0, 0.1, 0.0, 0.0, 0.1]\ncoulomb = 20.0\n'
        f'[[joint]]\nname = "j2"\n{joint}coulomb = 5.0\nviscous = 0.0\noffset = 0.0\narmature = 0.5\n'
    )
    stated, curves = described(load_robot(path).model)
    assert (stated["fc1"], stated["fc2"], stated["fv2"], stated["off2"]) == (20.0, 5.0, 0.0, 0.0)
    assert not {"fv1", "off1", "Ia1"} & set(stated)
    assert {"mx2", "my2"} <= set(stated)  # of mass and centre alone
    assert not {name for name in stated if name.startswith("I") and name != "Ia2"}  # the second link's is in all
    assert curves[0]["described"] is None
    assert curves[1]["described"][0] == -5.0
