"""A true geometry that is given: to the simulated tracker, and to the simulated arm."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.frames import link_poses
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.acquisition.sources import make_driver
from service.config.load import parse_config
from tests.lab.command_line import Outcome, thetad

EXACT = ("--noise", 0, "--base-frame", "--target", 0, 0, 0)


def columns(path: Path, names: list[str]) -> FloatArray:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return np.array([[float(row[name]) for name in names] for row in rows])


JOINTS = [f"q{k + 1}" for k in range(6)]
POINT = ["x", "y", "z"]


def at_tip(model: RobotModel, q: FloatArray, beside: Sequence[float] = (0.0, 0.0, 0.0)) -> FloatArray:
    """Positions of a point beside the tip."""
    point = model.tip_translation + model.tip_rotation @ np.array(beside)
    ends = [link_poses(model, posture)[-1] for posture in q]
    return np.array([T[:3, :3] @ point + T[:3, 3] for T in ends])


def measure(folder: Path, robot: str, out: str, *more: object) -> Outcome:
    """Measure 60 postures."""
    q, poses = np.random.default_rng(0).uniform(-1.5, 1.5, (60, 6)), folder / f"{robot}.csv"
    rows = [",".join([*map(repr, map(float, posture)), "0", "0", "0"]) for posture in q]
    poses.write_text("\n".join(["q1,q2,q3,q4,q5,q6,x,y,z", *rows]) + "\n")
    return thetad("poses", "measure", poses, "--robot", robot, "-o", folder / out, *more, "--json")


def test_what_was_drawn_comes_back(folder: Path) -> None:
    first = measure(folder, "ur10", "one.csv", "--truth", folder / "t.json", "--seed", 7, "--outliers", 0.1)
    again = measure(folder, "ur10", "two.csv", "--true", folder / "t.json", "--seed", 7, "--outliers", 0.1)
    # The same arm under other noise and from another place.
    other = measure(folder, "ur10", "three.csv", "--true", folder / "t.json", "--seed", 8, "--noise", 0)
    assert (first.code, again.code, other.code) == (0, 0, 0)
    assert (folder / "one.csv").read_bytes() == (folder / "two.csv").read_bytes()
    one, three = (columns(folder / name, POINT) for name in ("one.csv", "three.csv"))
    assert (np.linalg.norm(one - three, axis=1) < 5e-4).sum() == 54


@pytest.mark.parametrize("name", ["ur10", "space6"])
def test_the_true_arm_as_a_robot_file(folder: Path, name: str) -> None:
    """What the tracker sees is where the robot file has the tip, and the rest of the arm is as it was."""
    true = folder / f"true_{name}.toml"
    measure(folder, name, "m.csv", "--true-robot", true, *EXACT, "--seed", 3).ok()
    q, seen = columns(folder / "m.csv", JOINTS), columns(folder / "m.csv", POINT)
    nominal, model = load_robot(name).model, load_robot(true).model
    np.testing.assert_allclose(at_tip(model, q), seen, atol=1e-9)
    assert np.linalg.norm(at_tip(nominal, q) - seen, axis=1).mean() > 1e-3
    np.testing.assert_allclose(model.inertial, nominal.inertial, atol=1e-9)
    assert model.friction == nominal.friction
    for one, other in zip(model.joints, nominal.joints, strict=True):
        assert (one.name, one.kind, one.effort, one.velocity) == (other.name, other.kind, other.effort, other.velocity)
        assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper))
    # A tracker that is given the robot file sees the same arm.
    measure(folder, name, "again.csv", "--true", true, *EXACT, "--seed", 99).ok()
    np.testing.assert_allclose(columns(folder / "again.csv", POINT), seen, atol=1e-9)


def test_a_simulated_arm_that_differs_from_its_description(folder: Path) -> None:
    """Its exact torque is that of the true geometry."""
    true = folder / "other.toml"
    assert measure(folder, "space6", "m.csv", "--true-robot", true, "--error-angle", 0.05).code == 0
    driver = {"kind": "sim", "pace": "max", "robot": str(true)}
    arm = parse_config({"arm": [{"name": "a", "robot": "space6", "driver": driver}]}, "test", folder).arm[0]
    source = make_driver(arm, load_robot("space6").model)
    source.open()
    try:
        data = source.arm.simulate(2.0)
    finally:
        source.close()
    missed = {}
    for name in ("space6", str(true)):
        model = load_robot(name).model
        rigid = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
        whole = rigid + model.dynamics.armature * data.ddq + data.friction + model.dynamics.offset
        missed[name] = float(np.abs(whole - data.tau).max())
    assert missed[str(true)] < 1e-6
    assert missed["space6"] > 0.1


def test_planned_for_the_point_that_is_measured(folder: Path) -> None:
    """A point on the last axis does not show that axis: `test_planned_poses_are_where_the_table_says` has rank 25."""
    beside = (0.05, 0.03, 0.02)
    plan = ("poses", "plan", "ur10", "--count", 60, "--select", 30, "--json")
    done = thetad(*plan, "-o", folder / "beside.csv", "--target", *beside).ok()
    assert (done.json["rank"], done.json["target"]) == (27, list(beside))
    expected = at_tip(load_robot("ur10").model, columns(folder / "beside.csv", JOINTS), beside)
    np.testing.assert_allclose(columns(folder / "beside.csv", POINT), expected, atol=1e-9)
    # The tracker's target can be put there, too.
    exact = ("--target", *beside, "--noise", 0, "--base-frame", "--error-length", 0, "--error-angle", 0)
    thetad("poses", "measure", folder / "beside.csv", "--robot", "ur10", "-o", folder / "s.csv", *exact).ok()
    np.testing.assert_allclose(columns(folder / "s.csv", POINT), expected, atol=1e-9)


def test_several_tables_are_several_stations(folder: Path) -> None:
    truth = folder / "arm.json"
    second = ("--true", truth, "--station", 2, "--truth", folder / "b.json")
    for name, more in (("left.csv", ("--truth", truth)), ("right.csv", second)):
        assert measure(folder, "ur10", name, *more, "--seed", 11).code == 0
    tables, out = (folder / "left.csv", folder / "right.csv"), folder / "both"
    done = thetad("calibrate", *tables, "--robot", "ur10", "-o", out, "--json").ok()
    assert [station["number"] for station in done.json["stations"]] == [1, 2]
    assert done.json["data"]["poses"] == 120
    # Joint 1's zero and height are part of the base wherever it is seen from, so bases are told from each other.
    bases = [json.loads(path.read_text())["base"] for path in (truth, folder / "b.json")]
    (R, t), (true_R, true_t) = (between(frames) for frames in (done.json["stations"], bases))
    np.testing.assert_allclose(R, true_R, atol=2e-4)
    np.testing.assert_allclose(t, true_t, atol=1e-3)
    errors = json.loads(truth.read_text())["errors"]
    for p in done.json["parameters"]:
        if p["value"] is not None:
            assert abs(p["value"] - errors[p["name"]]) < 5.0 * p["std"], p["name"]
    assert (out / "measurements.csv").read_text().splitlines()[0].endswith("x,y,z,station")
    as_one = thetad("calibrate", out / "measurements.csv", tables[0], "--robot", "ur10", "-o", folder / "no")
    as_one.refused("several tables are several stations")


def between(frames: list[dict[str, Any]]) -> tuple[FloatArray, FloatArray]:
    """The second of two frames in the first."""
    (R1, t1), (R2, t2) = ((np.array(frame["rotation"]), np.array(frame["translation"])) for frame in frames)
    return R1 @ R2.T, t1 - R1 @ R2.T @ t2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"base": null}', "errors is missing"),
        ('{"errors": {"a9": 1e-3}}', "there is no parameter 'a9'"),
        ('{"errors": {"a2": "long"}}', "a2 is 'long', not a finite number"),
        ('{"errors": {}, "base": {"rotation": [1, 2]}}', "base: needs rotation"),
        ('{"errors": {}, "tool": {"rotation": [[1,0,0],[0,2,0],[0,0,1]], "translation": [0,0,0]}}', "not of unit"),
    ],
)
def test_a_broken_truth_is_refused(folder: Path, text: str, message: str) -> None:
    path = folder / "broken.json"
    path.write_text(text)
    measure(folder, "ur10", "no.csv", "--true", path).refused(message, str(path))


def test_contradictions_are_refused(folder: Path) -> None:
    (folder / "hand.json").write_text('{"errors": {}}')
    for more, message in (
        (("--true", folder / "hand.json", "--error-length", 1e-3), "--error-length draws an arm"),
        (("--true", "space6", "--truth", folder / "t.json"), "leave it out"),
        (("--true", "arm7"), "has 7 joints, ur10 has 6"), (("--true", folder / "none.json"), "cannot be read"),
        (("--station", 0), "station must be from 1 to 1000"), (("--target", "nan", 0, 0), "within 10 m"),
    ):  # fmt: skip
        measure(folder, "ur10", "no.csv", *more).refused(message)
