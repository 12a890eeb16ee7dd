"""Presets of the environment in a robot file: ground, vacuum, microgravity."""

from typing import Any

import pytest

from drivers.files.robots.file import RobotError, load_robot, robot_from_source
from rt_core.model.base import base_parameters


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


def test_environments() -> None:
    """The ground changes nothing, a vacuum takes the terms of the lubricant away, orbit takes gravity away."""
    plain = load_robot("space6_stribeck")
    ground, vacuum, orbit = (
        robot_from_source(described(environment=name)) for name in ("ground", "vacuum", "microgravity")
    )
    assert ground.sha256 == plain.sha256
    assert [name for name in base_parameters(ground.model).names if name.startswith("kv2_")]
    assert not [name for name in base_parameters(vacuum.model).names if name.startswith(("kv2_", "kv3_"))]
    assert vacuum.model.gravity.tolist() == ground.model.gravity.tolist() == [0.0, 0.0, -9.81]
    assert not orbit.model.gravity.any()
    for robot in (vacuum, orbit):
        again = robot_from_source(robot.source)
        assert (again.sha256, again.model.friction) == (robot.sha256, robot.model.friction)
        assert robot.sha256 != plain.sha256
    both = robot_from_source(described(environment="vacuum", gravity="microgravity"))
    assert (both.model.gravity.any(), both.model.friction.quadratic) == (False, "none")
    assert robot_from_source(described(gravity=[1.2, -3.4, -5.6])).model.gravity.tolist() == [1.2, -3.4, -5.6]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": "microgravity", "gravity": "+x"}, r"gravity.*microgravity|microgravity.*gravity"),
        ({"environment": "vacuum", "model_friction_quadratic": "even"}, r"friction_quadratic.*vacuum"),
        ({"environment": "moon"}, r"environment.*ground"),
        ({"model_friction": "cyclic", "model_friction_temperature": "coulomb"}, r"friction_temperature.*Coulomb"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RobotError, match=words):
        robot_from_source(described(**changes))
