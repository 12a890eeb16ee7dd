"""Presets of the environment in a robot file: ground, vacuum, microgravity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import RobotError, load_robot, robot_from_source
from rt_core.identification.identify import identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters, needing_gravity
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import EventSettings, MotionSettings, SimSettings


def described(robot: str = "space6_stribeck", **changes: Any) -> dict[str, Any]:
    """Source of a shipped robot with other keys at the top, or of `[model]` as `model_KEY`."""
    source = dict(load_robot(robot).source)
    source["model"] = dict(source["model"])
    for key, value in changes.items():
        if key.startswith("model_"):
            source["model"][key.removeprefix("model_")] = value
        else:
            source[key] = value
    return source


def test_ground_changes_nothing() -> None:
    plain = load_robot("space6_stribeck")
    ground = robot_from_source(described(environment="ground"))
    assert ground.sha256 == plain.sha256
    assert ground.model.gravity.tolist() == [0.0, 0.0, -9.81]
    assert {name for name in base_parameters(ground.model).names if name.startswith("kv2_")} == {
        f"kv2_{i}" for i in range(1, 7)
    }


def test_vacuum_takes_the_terms_of_the_lubricant_away() -> None:
    robot = robot_from_source(described(environment="vacuum"))
    assert robot.sha256 != load_robot("space6_stribeck").sha256
    assert not [name for name in base_parameters(robot.model).names if name.startswith(("kv2_", "kv3_"))]
    assert robot.model.gravity.tolist() == [0.0, 0.0, -9.81]
    again = robot_from_source(robot.source)
    assert again.sha256 == robot.sha256
    assert again.model.friction == robot.model.friction


def test_microgravity_has_no_gravity() -> None:
    robot = robot_from_source(described(environment="microgravity"))
    assert not robot.model.gravity.any()
    assert robot_from_source(robot.source).sha256 == robot.sha256
    both = robot_from_source(described(environment="vacuum", gravity="microgravity"))
    assert not both.model.gravity.any()
    assert both.model.friction.quadratic == "none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": "microgravity", "gravity": "+x"}, ("gravity", "microgravity")),
        ({"environment": "microgravity", "gravity": [0.0, 0.0, -1.62]}, ("gravity", "microgravity")),
        ({"environment": "vacuum", "model_friction_quadratic": "even"}, ("friction_quadratic", "vacuum")),
        ({"environment": "moon"}, ("environment", "ground")),
        ({"model_friction": "cyclic", "model_friction_temperature": "coulomb"}, ("friction_temperature", "Coulomb")),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(RobotError) as caught:
        robot_from_source(described(**changes))
    for word in words:
        assert word in str(caught.value)


def test_any_gravity_vector(tmp_path: Path) -> None:
    text = """
format = 1
name = "tilted"
kinematics = "mdh"
gravity = [1.2, -3.4, -5.6]
[[joint]]
name = "one"
"""
    path = tmp_path / "tilted.toml"
    path.write_text(text, encoding="utf-8")
    assert load_robot(path).model.gravity.tolist() == [1.2, -3.4, -5.6]


def test_breakaway_friction_is_followed_in_microgravity() -> None:
    model = robot_from_source(described(environment="microgravity")).model
    assert model.dynamics is not None
    event = EventSettings(time_s=40.0, joint="joint_2", parameter="breakaway", factor=1.6)
    arm = SimulatedArm(model, SimSettings(seed=5, rate_hz=250.0, events=(event,)), MotionSettings(seed=5, candidates=2))
    online = OnlineEstimator(model, OnlineSettings(update_hz=50.0, memory_s=30.0), 250.0, has_dq=True)
    k = online.base.names.index("fb2")
    seen = []
    for _ in range(3):
        data = arm.simulate(40.0)
        for t, q, dq, tau in zip(data.t, *(data.channels[name] for name in ("q", "dq", "tau")), strict=True):
            online.step(round(t * 1e9), round(t * 250.0), q, tau, None, dq)
        report = online.report()
        assert report.status[k] == "estimated"
        seen.append(report.theta[k])
    before = model.dynamics.breakaway[1]
    assert seen[0] == pytest.approx(before, rel=0.1)
    assert seen[2] == pytest.approx(1.6 * before, rel=0.1)


@pytest.mark.parametrize("environment", ["vacuum", "microgravity"])
def test_an_arm_is_identified_in_its_environment(environment: str) -> None:
    model = robot_from_source(described(environment=environment)).model
    base = base_parameters(model)
    settings = SimSettings(seed=3, rate_hz=500.0)
    data = SimulatedArm(model, settings, MotionSettings(seed=3, candidates=2)).simulate(40.0)
    prepared = SignalSettings(cutoff_hz=10.0)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], prepared, dq=data.channels["dq"])
    found = identify(model, base, signals, prepared)
    assert found.verdict in ("ok", "weak_excitation"), found.reasons
    assert found.metrics.relative_error < 0.02
    truth = base.theta(standard_parameters(model, base.standard))
    known = np.isfinite(found.std)
    within = np.abs(found.theta - truth)[known] < 3.0 * found.std[known]
    assert within.mean() > 0.9
    missing = needing_gravity(model, found.base)
    if environment == "vacuum":
        assert missing == ()
    else:
        # the first link turns about one axis, in which only gravity tells where its mass is
        assert {"mx1", "my1"} <= set(missing)
        assert not set(missing) & set(found.base.names)
        falling = robot_from_source(described()).model
        assert set(missing) >= set(base_parameters(falling).names) - set(found.base.names)
