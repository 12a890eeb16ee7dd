"""A true geometry that is given: to the simulated tracker, and to the simulated arm."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.frames import link_poses
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.acquisition.sources import make_driver
from service.config.load import parse_config
from service.operations.calibration.nominal_geometry import nominal_geometry
from sim_backend.arm.driver import SimDriver
from tests.lab.arms.calibration import forward
from tests.lab.command_line import Outcome, thetad

EXACT = ("--noise", 0, "--base-frame", "--target", 0, 0, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("true")


def poses(folder: Path, robot: str) -> Path:
    """Table of postures."""
    return poses_table(folder / f"{robot}.csv", np.random.default_rng(0).uniform(-1.5, 1.5, (60, 6)))


def poses_table(path: Path, q: FloatArray) -> Path:
    rows = [",".join([*map(repr, map(float, posture)), "0", "0", "0"]) for posture in q]
    path.write_text("\n".join(["q1,q2,q3,q4,q5,q6,x,y,z", *rows]) + "\n")
    return path


def columns(path: Path, names: list[str]) -> FloatArray:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return np.array([[float(row[name]) for name in names] for row in rows])


JOINTS = [f"q{k + 1}" for k in range(6)]
POINT = ["x", "y", "z"]


def at_tip(model: RobotModel, q: FloatArray) -> FloatArray:
    ends = []
    for posture in q:
        last = link_poses(model, posture)[-1]
        ends.append(last[:3, :3] @ model.tip_translation + last[:3, 3])
    return np.array(ends)


def measure(folder: Path, robot: str, out: str, *more: object) -> Outcome:
    return thetad("poses", "measure", poses(folder, robot), "--robot", robot, "-o", folder / out, *more, "--json")


def test_what_was_drawn_comes_back(folder: Path) -> None:
    first = measure(folder, "ur10", "one.csv", "--truth", folder / "t.json", "--seed", 7, "--outliers", 0.1)
    again = measure(folder, "ur10", "two.csv", "--true", folder / "t.json", "--seed", 7, "--outliers", 0.1)
    assert (first.code, again.code) == (0, 0), again
    assert (folder / "one.csv").read_bytes() == (folder / "two.csv").read_bytes()
    # The same arm under other noise and from another place.
    other = measure(folder, "ur10", "three.csv", "--true", folder / "t.json", "--seed", 8, "--noise", 0)
    assert other.code == 0, other
    one, three = (columns(folder / name, POINT) for name in ("one.csv", "three.csv"))
    near = np.linalg.norm(one - three, axis=1) < 5e-4
    assert near.sum() == 54


def test_errors_by_hand(folder: Path) -> None:
    errors = {"a2": 4e-3, "theta3": -2e-3, "beta2": 1e-3}
    (folder / "hand.json").write_text(json.dumps({"errors": errors}))
    found = measure(folder, "ur10", "hand.csv", "--true", folder / "hand.json", *EXACT)
    assert found.code == 0, found
    geometry = nominal_geometry(load_robot("ur10"))
    tip = np.eye(4)
    tip[:3, :3], tip[:3, 3] = geometry.tip_rotation, geometry.tip_translation
    expected = forward(geometry, columns(folder / "hand.csv", JOINTS), errors, np.eye(4), tip)[:, :3, 3]
    np.testing.assert_allclose(columns(folder / "hand.csv", POINT), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["ur10", "space6"])
def test_the_true_arm_as_a_robot_file(folder: Path, name: str) -> None:
    """What the tracker sees is where the robot file has the tip, and the rest of the arm is as it was."""
    true = folder / f"true_{name}.toml"
    found = measure(folder, name, "m.csv", "--true-robot", true, *EXACT, "--seed", 3)
    assert found.code == 0, found
    q, seen = columns(folder / "m.csv", JOINTS), columns(folder / "m.csv", POINT)
    nominal, model = load_robot(name).model, load_robot(true).model
    np.testing.assert_allclose(at_tip(model, q), seen, atol=1e-9)
    assert np.linalg.norm(at_tip(nominal, q) - seen, axis=1).mean() > 1e-3
    assert nominal.inertial is not None
    assert model.inertial is not None
    np.testing.assert_allclose(model.inertial, nominal.inertial, atol=1e-9)
    np.testing.assert_array_equal(model.gravity, nominal.gravity)
    assert model.friction == nominal.friction
    for one, other in zip(model.joints, nominal.joints, strict=True):
        assert (one.name, one.kind, one.effort, one.velocity) == (other.name, other.kind, other.effort, other.velocity)
        assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper))
    # A tracker that is given the robot file sees the same arm.
    again = measure(folder, name, "again.csv", "--true", true, *EXACT, "--seed", 99)
    assert again.code == 0, again
    np.testing.assert_allclose(columns(folder / "again.csv", POINT), seen, atol=1e-9)


def test_a_simulated_arm_that_differs_from_its_description(folder: Path) -> None:
    """Its exact torque is that of the true geometry."""
    true = folder / "other.toml"
    assert measure(folder, "space6", "m.csv", "--true-robot", true, "--error-angle", 0.05).code == 0
    driver = {"kind": "sim", "pace": "max", "robot": str(true)}
    arm = parse_config({"arm": [{"name": "a", "robot": "space6", "driver": driver}]}, "test", folder).arm[0]
    source = make_driver(arm, load_robot("space6").model)
    assert isinstance(source, SimDriver)
    source.open()
    try:
        data = source.arm.simulate(2.0)
    finally:
        source.close()
    missed = {}
    for name in ("space6", str(true)):
        model = load_robot(name).model
        assert model.inertial is not None
        assert model.dynamics is not None
        rigid = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
        whole = rigid + model.dynamics.armature * data.ddq + data.friction + model.dynamics.offset
        missed[name] = float(np.abs(whole - data.tau).max())
    assert missed[str(true)] < 1e-6
    assert missed["space6"] > 0.1


def test_planned_for_the_point_that_is_measured(folder: Path) -> None:
    target = ("--target", 0.05, 0.03, 0.02)
    plan = ("poses", "plan", "ur10", "--count", 60, "--select", 30, "--json")
    tip, beside = thetad(*plan, "-o", folder / "tip.csv"), thetad(*plan, "-o", folder / "beside.csv", *target)
    assert (tip.code, beside.code) == (0, 0), beside
    assert (tip.json["rank"], beside.json["rank"]) == (25, 27)  # a point on the last axis does not show that axis
    assert beside.json["target"] == [0.05, 0.03, 0.02]
    model = load_robot("ur10").model
    q = columns(folder / "beside.csv", JOINTS)
    expected = [
        (T := link_poses(model, posture)[-1])[:3, :3]
        @ (model.tip_translation + model.tip_rotation @ [0.05, 0.03, 0.02])
        + T[:3, 3]
        for posture in q
    ]
    np.testing.assert_allclose(columns(folder / "beside.csv", POINT), expected, atol=1e-9)
    # The tracker's target can be put there, too.
    exact = ("--noise", 0, "--base-frame", "--error-length", 0, "--error-angle", 0)
    seen = thetad("poses", "measure", folder / "beside.csv", "--robot", "ur10", "-o", folder / "s.csv", *target, *exact)
    assert seen.code == 0, seen
    np.testing.assert_allclose(columns(folder / "s.csv", POINT), expected, atol=1e-9)


def test_several_tables_are_several_stations(folder: Path) -> None:
    truth = folder / "arm.json"
    given = [
        ("--truth", truth, "--seed", 5),
        ("--true", truth, "--seed", 5, "--station", 2, "--truth", folder / "b.json"),
    ]
    for name, more in zip(("left.csv", "right.csv"), given, strict=True):
        assert measure(folder, "ur10", name, *more).code == 0
    tables = (folder / "left.csv", folder / "right.csv")
    done = thetad("calibrate", *tables, "--robot", "ur10", "-o", folder / "both", "--json")
    assert done.code == 0, done
    assert [station["number"] for station in done.json["stations"]] == [1, 2]
    assert done.json["data"]["poses"] == 120
    # Joint 1's zero and height are part of the base wherever it is seen from, so bases are told from each other.
    seen, true = (
        [(np.array(frame["rotation"]), np.array(frame["translation"])) for frame in frames]
        for frames in (
            done.json["stations"],
            [json.loads(path.read_text())["base"] for path in (truth, folder / "b.json")],
        )
    )
    between = [(R1 @ R2.T, t1 - R1 @ R2.T @ t2) for (R1, t1), (R2, t2) in (seen, true)]
    np.testing.assert_allclose(between[0][0], between[1][0], atol=2e-4)
    np.testing.assert_allclose(between[0][1], between[1][1], atol=1e-3)
    errors = json.loads(truth.read_text())["errors"]
    for p in done.json["parameters"]:
        if p["value"] is not None:
            assert abs(p["value"] - errors[p["name"]]) < 5.0 * p["std"], p["name"]
    # The table that was written gives the same, line by line as it is named.
    table = folder / "both" / "measurements.csv"
    assert table.read_text().splitlines()[0].endswith("x,y,z,station")
    again = thetad("calibrate", table, "--robot", "ur10", "-o", folder / "again", "--json")
    assert again.json["parameters"] == done.json["parameters"]
    # Two logs in degrees and millimetres through one mapping are two stations, too.
    logs = []
    for path in tables:
        logs.append(path.with_suffix(".npz"))
        np.savez(logs[-1], joints=np.degrees(columns(path, JOINTS)), tracker=1e3 * columns(path, POINT))
    mapping = folder / "log.toml"
    mapping.write_text(
        'format = 1\nname = "log"\nrobot = "ur10"\n[q]\ncolumns = "joints"\nunit = "deg"\n'
        '[position]\ncolumns = "tracker"\nunit = "mm"\n'
    )
    mapped = thetad("calibrate", *logs, "--mapping", mapping, "-o", folder / "mapped", "--json")
    assert mapped.code == 0, mapped
    for one, other in zip(done.json["parameters"], mapped.json["parameters"], strict=True):
        assert other["value"] == (None if one["value"] is None else pytest.approx(one["value"], abs=1e-7))
    as_one = thetad("calibrate", table, tables[0], "--robot", "ur10", "-o", folder / "no")
    assert as_one.code == 2
    assert "several tables are several stations" in as_one.err


def test_compensation_with_stations_and_priors(folder: Path) -> None:
    """Targets are in the first station's frame, and the true arm is brought there, off by what is stated."""
    truth, prior = folder / "both.json", ("--set", "prior_length=1e-3", "prior_angle=1e-3")
    for name, more in (("1.csv", ("--truth", truth)), ("2.csv", ("--true", truth, "--station", 2))):
        assert measure(folder, "ur10", name, *more, "--seed", 11).code == 0
    out = folder / "stations"
    done = thetad("calibrate", folder / "1.csv", folder / "2.csv", "--robot", "ur10", "-o", out, *prior, "--json")
    assert done.code == 0, done
    assert {p["status"] for p in done.json["parameters"]} == {"determined", "prior"}
    rng = np.random.default_rng(2)
    wanted = poses_table(folder / "there.csv", rng.uniform(-1.2, 1.2, (20, 6)))
    exact = ("--true", truth, "--seed", 11, "--noise", 0)
    assert thetad("poses", "measure", wanted, "--robot", "ur10", "-o", folder / "there_is.csv", *exact).code == 0
    goals = columns(folder / "there_is.csv", POINT)
    rows = np.hstack((goals, columns(wanted, JOINTS)))
    lines = [",".join([*POINT, *JOINTS]), *(",".join(map(repr, map(float, row))) for row in rows)]
    (folder / "goals.csv").write_text("\n".join(lines) + "\n")
    given = ("--calibration", out / "calibration.json", "--robot", "ur10", "--frame", "measured")
    found = thetad("compensate", folder / "goals.csv", *given, "-o", folder / "commands.csv", "--json")
    assert found.code == 0, found
    told = poses_table(folder / "told.csv", columns(folder / "commands.csv", JOINTS))
    assert thetad("poses", "measure", told, "--robot", "ur10", "-o", folder / "reached.csv", *exact).code == 0
    missed = 1e3 * np.linalg.norm(columns(folder / "reached.csv", POINT) - goals, axis=1)
    assert missed.max() < 0.2
    assert found.json["mean_avoided_mm"] > 10.0 * missed.mean()
    # What the prior leaves open of joint 1 is made up for by the base, so no millimetre of it is stated here.
    std = columns(folder / "commands.csv", ["std_mm"])[:, 0]
    own = std**2 - 3.0 * done.json["scale"]["position_mm"] ** 2
    assert 0.4 < np.sqrt(np.mean(missed**2 / own)) < 1.8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"base": null}', "errors is missing"),
        ('{"errors": {"a9": 1e-3}}', "there is no parameter 'a9'"),
        ('{"errors": {"a2": "long"}}', "a2 is 'long', not a finite number"),
        ('{"errors": {}, "base": {"rotation": [1, 2]}}', "base: needs rotation"),
        ('{"errors": {}, "tool": {"rotation": [[1,0,0],[0,2,0],[0,0,1]], "translation": [0,0,0]}}', "no rotation"),
    ],
)
def test_a_broken_truth_is_refused(folder: Path, text: str, message: str) -> None:
    path = folder / "broken.json"
    path.write_text(text)
    found = measure(folder, "ur10", "no.csv", "--true", path)
    assert found.code == 2, found
    assert message in found.err
    assert str(path) in found.err


def test_contradictions_are_refused(folder: Path) -> None:
    (folder / "hand.json").write_text('{"errors": {}}')
    for more, message in (
        (("--true", folder / "hand.json", "--error-length", 1e-3), "--error-length draws an arm"),
        (("--true", "space6", "--truth", folder / "t.json"), "leave it out"),
        (("--true", "arm7"), "has 7 joints, ur10 has 6"),
        (("--true", folder / "none.json"), "cannot be read"),
        (("--station", 0), "station must be 1 to 1000"),
        (("--target", "nan", 0, 0), "within 10 m"),
    ):
        found = measure(folder, "ur10", "no.csv", *more)
        assert found.code == 2, found
        assert message in found.err
    plan = thetad("poses", "plan", "ur10", "-o", folder / "p.csv", "--target", "inf", 0, 0)
    assert plan.code == 2
    assert "--target" in plan.err
