"""`thetad poses`, `calibrate` and `compensate` one after the other, on an arm whose truth is known."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import thetad as thetad_api
from drivers.files.robots.file import load_robot
from rt_core.model.frames import link_poses
from rt_core.types import FloatArray
from service.jobs.kinds.calibrate import FILES
from service.operations.calibration.nominal_geometry import nominal_geometry
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.command_line import Outcome, thetad
from tests.unit.service.jobs.test_calibrate_kind import ROBOT as SMALL
from tests.unit.service.jobs.test_calibrate_kind import rows as small_rows
from tests.unit.service.jobs.test_calibrate_kind import write

ROBOT = "ur10"
SEED = 4
JOINTS = [f"q{k + 1}" for k in range(6)]


@pytest.fixture(scope="module")
def planned(folder: Path) -> Outcome:
    return thetad("poses", "plan", ROBOT, "-o", folder / "poses.csv", "--count", 120, "--select", 60, "--json").ok()


@pytest.fixture(scope="module")
def measured(folder: Path, planned: Outcome) -> Outcome:
    return thetad(
        "poses", "measure", folder / "poses.csv", "--robot", ROBOT, "-o", folder / "measured.csv",
        "--truth", folder / "truth.json", "--seed", SEED, "--outliers", 0.05, "--json",
    ).ok()  # fmt: skip


@pytest.fixture(scope="module")
def done(folder: Path, measured: Outcome) -> Outcome:
    given = ("--robot", ROBOT, "-o", folder / "out", "--robust", "--json")
    return thetad("calibrate", folder / "measured.csv", *given).ok()


def columns(path: Path) -> dict[str, FloatArray]:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_planned_poses_are_where_the_table_says(planned: Outcome, folder: Path) -> None:
    result = planned.json
    assert (result["poses"], result["layers"][0]["wanted"]) == (60, 48)
    assert result["rank"] == 25  # 27 of a point beside the last axis
    found = columns(folder / "poses.csv")
    model = load_robot(ROBOT).model
    q = np.column_stack([found[name] for name in JOINTS])
    for posture, *point in zip(q, found["x"], found["y"], found["z"], strict=True):
        last = link_poses(model, posture)[-1]
        np.testing.assert_allclose(last[:3, :3] @ model.tip_translation + last[:3, 3], point, atol=1e-9)


def test_what_is_found_is_what_was_drawn(done: Outcome, folder: Path) -> None:
    truth = json.loads((folder / "truth.json").read_text())
    assert done.json["verdict"] == "ok"
    assert len(truth["outliers"]) == 3
    weight = {int(row["line"]): float(row["weight"]) for row in rows_of(folder / "out" / "residuals.csv")}
    assert all(weight[line] < 0.25 for line in truth["outliers"])
    for p in done.json["parameters"]:
        if p["value"] is not None:
            assert abs(p["value"] - truth["errors"][p["name"]]) < 5.0 * p["std"], p["name"]
    text = (folder / "out" / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 3
    a2 = next(p for p in done.json["parameters"] if p["name"] == "a2")
    row = next(row for row in text.split("<tr>") if ">a2<" in row and "determined" in row)
    shown = [cell.partition("<")[0] for cell in row.replace('class="text"', "").replace(" >", ">").split("<td>")]
    assert float(shown[6]) == pytest.approx(100.0 * a2["relative_std"], rel=0.06)


def test_the_same_from_columns(done: Outcome, folder: Path) -> None:
    found = thetad_api.calibrate(columns(folder / "measured.csv"), ROBOT, robust=True)
    assert found.summary["parameters"] == done.json["parameters"]
    assert found.parameters[0]["name"] == done.json["parameters"][0]["name"]


def test_calibrated_files(done: Outcome, folder: Path) -> None:
    """The exported URDF, in the drawn base, is where the true arm is."""
    names = {"calibration.json", "residuals.csv", "report.html", "calibrated.urdf", "calibrated_dh.csv"}
    assert {path.name for path in (folder / "out").iterdir()} == names
    arm = TrackedArm.of(nominal_geometry(load_robot(ROBOT)), TrackerSettings(seed=SEED))
    q = np.random.default_rng(0).uniform(-2.0, 2.0, (30, 6))
    model = load_robot(folder / "out" / "calibrated.urdf").model
    R, t = np.array(done.json["base"]["rotation"]), np.array(done.json["base"]["translation"])
    last = [link_poses(model, posture)[-1] for posture in q]
    ends = np.array([R @ (T[:3, :3] @ model.tip_translation + T[:3, 3]) + t for T in last])
    assert np.linalg.norm(ends - arm.exact(q)[0], axis=1).mean() < 1e-4
    # The table's products with base and tool are where the exported arm is in its base.
    text = (folder / "out" / "calibrated_dh.csv").read_text()
    frames = [[float(v) for v in line[1:].split()] for line in text.splitlines() if line.startswith("#   ")]
    base, tool = (np.vstack((frames[k : k + 3], [0.0, 0.0, 0.0, 1.0])) for k in (0, 3))
    held = next(line for line in text.splitlines() if line.startswith("# held at nominal"))
    assert "theta1" in held
    assert "alpha2" not in held
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    for posture, end in zip(q, ends, strict=True):
        T = base
        for angle, row in zip(posture, rows, strict=True):
            theta, d, a, alpha, beta = (float(row[name]) for name in ("theta", "d", "a", "alpha", "beta"))
            T = T @ turned("z", angle + theta, (0.0, 0.0, d)) @ turned("x", alpha, (a, 0.0, 0.0)) @ turned("y", beta)
        np.testing.assert_allclose((T @ tool)[:3, 3], end, atol=1e-9)


def turned(axis: str, angle: float, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> FloatArray:
    """Turn about an axis after a shift (4, 4)."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler(axis, angle).as_matrix()
    T[:3, 3] = shift
    return T


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def write_targets(path: Path, points: FloatArray, q: FloatArray) -> Path:
    lines = [",".join("xyz") + "," + ",".join(JOINTS)]
    lines += [",".join(repr(float(v)) for v in row) for row in np.hstack((points, q))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_compensated_commands_bring_the_true_arm_to_its_targets(done: Outcome, folder: Path) -> None:
    q = np.random.default_rng(1).uniform(-1.5, 1.5, (12, 6))
    arm = TrackedArm.of(nominal_geometry(load_robot(ROBOT)), TrackerSettings(seed=SEED))
    targets, _ = arm.exact(q)
    given = ("--calibration", folder / "out" / "calibration.json", "--robot")
    command = ("compensate", write_targets(folder / "targets.csv", targets, q), *given)
    found = thetad(*command, ROBOT, "-o", folder / "commands.csv", "--frame", "measured", "--json").ok()
    commands = columns(folder / "commands.csv")
    posed = np.column_stack([commands[name] for name in JOINTS])
    missed = 1e3 * np.linalg.norm(arm.exact(posed)[0] - targets, axis=1)
    assert missed.mean() < 0.1
    assert found.json["mean_avoided_mm"] > 10.0 * missed.mean()
    assert found.json["calibrated_mean_mm"] == done.json["residual"]["test"]["after"]["mean_mm"]
    measured = np.column_stack([columns(folder / "measured.csv")[name] for name in JOINTS])
    expected = np.flatnonzero(((posed < measured.min(axis=0)) | (posed > measured.max(axis=0))).any(axis=1))
    assert found.json["outside_measured_range"] == expected.tolist()
    # Less the scale of the residuals, which here is the tracker's noise alone.
    own = commands["std_mm"] ** 2 - 3.0 * done.json["scale"]["position_mm"] ** 2
    assert 0.4 < np.sqrt(np.mean(missed**2 / own)) < 1.6
    no = ("-o", folder / "no.csv")
    thetad(*command, ROBOT, *no).refused("does not know the robot's own base")
    thetad(*command, "space6", *no).refused("is of robot ur10")
    assert not (folder / "no.csv").exists()
    # The same targets, in the base that the nominal zero and height of joint 1 define.
    R, t = np.array(done.json["base"]["rotation"]), np.array(done.json["base"]["translation"])
    moved = write_targets(folder / "moved.csv", (targets - t) @ R, q)
    thetad("compensate", moved, *given, ROBOT, "-o", folder / "moved_out.csv", "--frame", "joint1").ok()
    there = columns(folder / "moved_out.csv")
    np.testing.assert_allclose(np.column_stack([there[name] for name in JOINTS]), posed, atol=1e-9)
    far = folder / "far.csv"
    far.write_text("x,y,z\n9,9,9\n")
    out = thetad("compensate", far, *given, ROBOT, "-o", folder / "far_out.csv", "--frame", "measured")
    assert out.code == 1
    assert "0 of 1 targets reached" in out.out
    assert rows_of(folder / "far_out.csv")[0]["q1"] == ""


def test_the_tip_of_an_unknown_tool_has_no_standard_deviation(done: Outcome, folder: Path) -> None:
    """The tool holds what the poses tell of `d6`, `a6`, `alpha6` and `theta6`, which move the tip otherwise."""
    targets = folder / "tip_targets.csv"
    targets.write_text("x,y,z,q1,q2,q3,q4,q5,q6\n0.5,0.3,0.4,0.1,-1.2,1.4,0.3,1.5,0.0\n")
    command = ("compensate", targets, "--calibration", folder / "out" / "calibration.json", "--robot", ROBOT)
    to = ("--frame", "joint1", "-o", folder / "tip.csv", "--json")
    found = thetad(*command, *to, "--point", "tip").ok()
    assert found.err.startswith("std_mm is left empty: the tool was estimated")
    assert found.err.count("\n") == 1
    assert [row["std_mm"] for row in rows_of(folder / "tip.csv")] == [""]
    assert found.json["largest_std_mm"] is None
    assert all(name in found.json["std_unknown"] for name in ("d6", "a6", "alpha6", "theta6"))
    known = thetad(*command, *to)
    assert (known.err, known.json["std_unknown"]) == ("", None)
    assert float(rows_of(folder / "tip.csv")[0]["std_mm"]) == known.json["largest_std_mm"] > 0.0


def test_an_npz_file_through_a_mapping(measured: Outcome, done: Outcome, folder: Path) -> None:
    """The same numbers in degrees and millimetres give the same calibration."""
    found = columns(folder / "measured.csv")
    q = np.column_stack([found[name] for name in JOINTS])
    points = np.column_stack([found[k] for k in "xyz"])
    np.savez(folder / "log.npz", joints=np.degrees(q), tracker=1e3 * (points - 1.0), off=np.full((60, 3), 1e3))
    mapping = folder / "log.toml"
    mapping.write_text(
        'format = 1\nname = "log"\nrobot = "ur10"\n[q]\ncolumns = "joints"\nunit = "deg"\n'
        '[position]\ncolumns = "tracker"\nunit = "mm"\n[deviation]\ncolumns = "off"\nunit = "mm"\n'
    )
    again = thetad("calibrate", folder / "log.npz", "--mapping", mapping, "-o", folder / "again", "--robust", "--json")
    assert again.code == 0, again
    one, other = ([p["value"] for p in each.json["parameters"]] for each in (done, again))
    assert other == [None if value is None else pytest.approx(value, abs=1e-7) for value in one]


def test_broken_calibrations_are_refused(done: Outcome, folder: Path, tmp_path: Path) -> None:
    whole = json.loads((folder / "out" / "calibration.json").read_text())
    targets, broken = tmp_path / "t.csv", tmp_path / "calibration.json"
    targets.write_text("x,y,z\n0.5,0.2,0.3\n")
    command = ("compensate", targets, "--calibration", broken, "--robot", ROBOT, "-o", tmp_path / "out.csv")
    for key in ("robot", "verdict", "geometry", "parameters", "base_frame"):
        broken.write_text(json.dumps({name: part for name, part in whole.items() if name != key}))
        thetad(*command).refused(key)
    for key, value in (("geometry", {}), ("parameters", [1]), ("base", {})):
        broken.write_text(json.dumps(whole | {key: value}))
        thetad(*command, "--frame", "measured").refused("is missing or broken")


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "m.csv"
    table.write_text("q1,q2\n1,2\n")
    poses = ("poses", "plan", ROBOT, "-o", tmp_path / "p.csv")
    measure = ("poses", "measure", table, "--robot", ROBOT, "-o", tmp_path / "p.csv")
    calibrate = ("calibrate", table, "-o", tmp_path)
    for arguments, message in (
        ((*poses, "--turn", "nan"), "turn must be finite"), ((*poses, "--floor", "inf"), "floor must be finite"),
        ((*poses, "--seed", "-1"), "'-1' is not a whole number"),
        ((*poses, "--radius", "9", "--inner", "8"), "reaches none"), ((*poses, "--select", "90"), "--select 90"),
        (measure, "there is no column q3"),
        (("calibrate", tmp_path / "none.csv", "--robot", ROBOT, "-o", tmp_path), "no such file"),
        (calibrate, "--robot is missing"), ((*calibrate, "--robot", ROBOT), "there is no column q3"),
        ((*calibrate, "--robot", ROBOT, "--set", "method=lm", "--method", "lm"), "method"),
    ):  # fmt: skip
        thetad(*arguments).refused(message)


# A second time into the same folder: nothing of the first run is taken for the second's ---------------


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def tables(folder: Path) -> tuple[Path, Path, Path]:
    """One that can be calibrated, one that nothing explains, one that is refused."""
    names, values = small_rows(False)
    good = write(folder / "good.csv", names, values)
    few = write(folder / "few.csv", names, values[:3])
    values[:, :3] = values[::-1, :3]
    return good, write(folder / "wrong.csv", names, values), few


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_the_first_run_found_is_not_left_beside_the_second(tmp_path: Path, robot: Path) -> None:
    good, wrong, few = tables(tmp_path)
    out = tmp_path / "out"
    command = ("--robot", robot, "-o", out)
    assert thetad("calibrate", good, *command).code == 0
    assert left_in(out) == set(FILES)
    (out / "notes.txt").write_text("mine\n")
    # Not explained: no arm is corrected, so none may lie there.
    assert thetad("calibrate", wrong, *command).code == 1
    assert left_in(out) == {"calibration.json", "residuals.csv", "report.html", "notes.txt"}
    assert json.loads((out / "calibration.json").read_text())["verdict"] == "not_explained"
    thetad("calibrate", few, *command).refused("measure at least")
    assert left_in(out) == {"notes.txt"}


def test_what_a_run_reads_is_never_removed(tmp_path: Path, robot: Path) -> None:
    good, _, _ = tables(tmp_path)
    out = tmp_path / "out"
    assert thetad("calibrate", good, "--robot", robot, "-o", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = thetad("calibrate", good, "--robot", out / "calibrated.urdf", "-o", out)
    again.refused("calibrated.urdf: would be overwritten by the results")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_each_arm_of_several_has_its_folder_cleared(tmp_path: Path, robot: Path) -> None:
    good, _, few = tables(tmp_path)
    other, second, out = tmp_path / "other.toml", tmp_path / "second.csv", tmp_path / "cell"
    other.write_text(SMALL, encoding="utf-8")
    second.write_text(good.read_text())
    arms = ("--arm", f"{other}={second}", "-o", out)
    assert thetad("calibrate", "--arm", f"{robot}={good}", *arms).code == 0
    # The first arm ends the run; the second's results are of the run before.
    thetad("calibrate", "--arm", f"{robot}={few}", *arms).refused("measure at least")
    assert left_in(out) == {"small", "other"}
    assert left_in(out / "small") == left_in(out / "other") == set()
