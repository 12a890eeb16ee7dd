"""`thetad models diff` on models of simulated arms, against the figures in the files themselves."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import norm

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from service.models.diff import SPEEDS, compare_models
from service.models.document import load_model, online_document, write_model
from service.operations.identify import signal_settings
from tests.lab.command_line import mounted, thetad


@pytest.fixture(scope="module")
def other_model(work: Path, space6_recording: Path) -> Path:
    """Model of the last 40 % of the recording."""
    out = work / "space6_other.yaml"
    done = thetad("identify", space6_recording, "--robot", "space6", "--span", "0.6:1", "-o", out, "--json")
    assert done.code == 0, done
    return out


def content(path: Path) -> dict[str, Any]:
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    assert isinstance(found, dict)
    return found


def changed(path: Path, out: Path, changes: dict[str, float | None], std: float | None = None) -> Path:
    """Copy a model file with other values of some parameters, and their standard deviation."""
    document = content(path)
    for k, row in enumerate(document["parameters"]):
        if row["name"] in changes:
            value = changes[row["name"]]
            row["value"] = value
            document["theta"][k] = 0.0 if value is None else value
            row["std"] = row["std"] if std is None else std
    write_model(document, out)
    return out


def test_differences_are_in_standard_deviations(space6_model: Path, other_model: Path) -> None:
    a, b = content(space6_model), content(other_model)
    found = thetad("models", "diff", space6_model, other_model, "--z", "1.5", "--json").json
    assert [row["name"] for row in found["parameters"]] == [row["name"] for row in a["parameters"]]
    differing = 0
    for p, q, row in zip(a["parameters"], b["parameters"], found["parameters"], strict=True):
        assert row["values"] == [p["value"], q["value"]]
        z = (q["value"] - p["value"]) / np.sqrt(p["std"] ** 2 + q["std"] ** 2)
        assert row["z"] == pytest.approx(z, rel=1e-12)
        assert row["differs"] == (abs(z) > 1.5)
        differing += row["differs"]
    assert found["differing"] == differing
    assert found["compared"] == len(a["parameters"])
    assert found["by_chance"] == pytest.approx(len(a["parameters"]) * 2.0 * norm.sf(1.5))
    errors = [model["relative_error"] for model in found["models"]]
    assert errors == [document["metrics"]["relative_error"] for document in (a, b)]
    # Both are of one arm: noise alone puts 0.16 of 58 beyond three standard deviations.
    assert sum(abs(row["z"]) > 3.0 for row in found["parameters"]) <= 3


def test_friction_is_that_of_a_joint_that_moves_alone(space6_model: Path, other_model: Path) -> None:
    """Coulomb and viscous friction by hand, with the covariance of the two."""
    document, model = content(space6_model), load_model(space6_model)
    names = [row["name"] for row in document["parameters"]]
    P = np.array(document["covariance"])
    friction = compare_models(model, load_model(other_model)).friction
    assert len(friction) == 6 * 2 * len(SPEEDS)
    for row in friction:
        j = int(row.joint.removeprefix("joint_"))
        v, c = names.index(f"fv{j}"), names.index(f"fc{j}")
        gradient = np.array([row.speed, np.sign(row.speed)])
        torque = gradient @ np.array([document["theta"][v], document["theta"][c]])
        assert row.torque.values[0] == pytest.approx(torque, rel=1e-9)
        variance = gradient @ P[np.ix_([v, c], [v, c])] @ gradient
        assert row.torque.stds[0] == pytest.approx(math.sqrt(variance), rel=1e-9)
        greatest = model.robot.model.joints[j - 1].velocity
        assert abs(row.speed) / greatest in [pytest.approx(part) for part in SPEEDS]


def test_what_differs_is_shown_and_nothing_else(space6_model: Path, tmp_path: Path) -> None:
    same = thetad("models", "diff", space6_model, space6_model)
    assert same.code == 0
    assert same.out.startswith("space6: 0 of 58 parameters differ by more than 2 standard deviations")
    assert "parameter  " not in same.out
    row = next(row for row in content(space6_model)["parameters"] if row["name"] == "fc3")
    moved = changed(space6_model, tmp_path / "moved.yaml", {"fc3": row["value"] + 10.0 * row["std"]})
    out = thetad("models", "diff", space6_model, moved).out
    shown = re.findall(r"^(\S+) .* N\*m +([+-][\d.]+)$", out.partition("friction of")[0], re.M)
    assert shown == [("fc3", f"{10.0 / math.sqrt(2.0):+.1f}")]
    joints = dict(re.findall(r"^(joint_\d) .* N\*m +([+-][\d.]+)$", out, re.M))
    assert {name for name, z in joints.items() if float(z) != 0.0} == {"joint_3"}
    assert thetad("models", "diff", space6_model, moved, "--z", "8").out.startswith("space6: 0 of 58")


def test_what_only_one_model_knows_is_named(space6_model: Path, tmp_path: Path) -> None:
    unknown = changed(space6_model, tmp_path / "unknown.yaml", {"fc2": None, "mx6": None})
    found = thetad("models", "diff", space6_model, unknown)
    assert "known to one of them: fc2 (only A), mx6 (only A)" in found.out
    rows = thetad("models", "diff", unknown, space6_model, "--json").json["friction"]
    assert {row["joint"]: row["z"] for row in rows}.items() >= {"joint_2": None, "joint_1": 0.0}.items()


def test_velocity_constants_are_compared_by_their_logarithms(stribeck_model: Path, tmp_path: Path) -> None:
    document = content(stribeck_model)
    known = [row for row in document["constants"] if row["value"] is not None]
    assert known
    for row in known:
        row["value"], row["lower"], row["upper"] = (2.0 * row[key] for key in ("value", "lower", "upper"))
    write_model(document, tmp_path / "twice.yaml")
    done = thetad("models", "diff", stribeck_model, tmp_path / "twice.yaml", "--json")
    found = {row["name"]: row["z"] for row in done.json["constants"]}
    for row in known:
        spread = math.log(row["upper"] / row["lower"]) / (2.0 * norm.ppf(0.975))
        assert found[row["name"]] == pytest.approx(math.log(2.0) / (math.sqrt(2.0) * spread), rel=1e-5)


def test_models_of_other_robots_are_refused(space6_model: Path, arm7_model: Path, tmp_path: Path) -> None:
    words = f"{space6_model} is a model of space6, {arm7_model} one of arm7"
    thetad("models", "diff", space6_model, arm7_model).refused(words, "only models of one robot")
    robot = load_robot(mounted("space6", "+x", tmp_path))
    base, settings = base_parameters(robot.model), signal_settings(robot)
    p = len(base)
    values = (np.ones(p), np.full(p, 0.1), np.eye(p))
    write_model(online_document(robot, base, settings, *values, ("estimated",) * p, {"arm": "w"}), tmp_path / "w.yaml")
    thetad("models", "diff", tmp_path / "w.yaml", space6_model).refused("other parameters", "gravity")
