"""Jobs of kind `calibrate`: from a table of measurements to a corrected arm, or to one clear sentence."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from drivers.files.robots.file import load_robot
from rt_core.model.frames import link_poses
from rt_core.model.robot import Joint, RobotModel
from rt_core.types import FloatArray
from service.jobs.kinds import find_kind
from service.operations.errors import OperationCancelledError, OperationError
from service.operations.kind import Outcome
from tests.lab.arms.calibration import forward, frame, postures, table
from tests.lab.files import FILES
from tests.lab.jobs.job_run import workspace

BASE = frame((0.8, 0.3, -0.2), (0.1, 0.2, 1.0))
TOOL = frame((0.05, 0.02, 0.1), (0.0, 0.0, 0.3))
ARM = table([0.0, 0.4, 0.1], [np.pi / 2.0, 0.0, 1.2], [0.3, 0.0, 0.2])
ERRORS = {"a1": 1e-3, "alpha1": -2e-3, "theta2": 3e-3, "a2": -1.5e-3, "beta2": 1e-3}
ROBOT = (FILES / "small_robot.toml").read_text(encoding="utf-8")
NOISE = 3e-5


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "small.toml"
    path.write_text(ROBOT, encoding="utf-8")
    return path


def poses(q: FloatArray) -> FloatArray:
    return forward(ARM, q, ERRORS, BASE, TOOL)


def rows(orientation: bool, count: int = 60) -> tuple[list[str], FloatArray]:
    """Names of the columns, and their values."""
    rng = np.random.default_rng(0)
    q = postures(ARM, count, rng)
    T = poses(q)
    values = [q, T[:, :3, 3] + rng.normal(0.0, NOISE, (count, 3))]
    names = ["q1", "q2", "q3", "x", "y", "z"]
    if orientation:
        turns = Rotation.from_rotvec(rng.normal(0.0, 1e-4, (count, 3)))
        values.append((turns * Rotation.from_matrix(T[:, :3, :3])).as_quat())
        names += ["qx", "qy", "qz", "qw"]
    return names, np.hstack(values)


def write(path: Path, names: list[str], values: FloatArray) -> Path:
    lines = [",".join(names), *(",".join(repr(float(v)) for v in row) for row in values)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def calibrated(
    folder: Path, robot: Path | str, measurements: Path, **parameters: Any
) -> tuple[Outcome, dict[str, Any], list[dict[str, str]]]:
    """Outcome, `calibration.json` and the rows of `residuals.csv`."""
    given = {"robot": str(robot), "measurements": "m"} | parameters
    kind = find_kind("calibrate")
    outcome = kind.run(kind.read(given), workspace(folder, measurements=measurements))
    document = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    assert document == outcome.metrics
    with (folder / "residuals.csv").open(encoding="utf-8", newline="") as stream:
        return outcome, document, list(csv.DictReader(stream))


def holds_errors(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Check that what is wrong with the arm was found within its intervals; returns all parameters."""
    parameters = {q["name"]: q for q in document["parameters"]}
    for name, value in ERRORS.items():
        assert abs(parameters[name]["value"] - value) < 4.0 * parameters[name]["std"] < 1e-3, name
    return parameters


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
def test_finds_the_errors_and_corrects_the_arm(tmp_path: Path, robot: Path, orientation: bool) -> None:
    path = write(tmp_path / "m.csv", *rows(orientation))
    outcome, document, _ = calibrated(tmp_path / "out", robot, path)
    assert (outcome.verdict, outcome.accepted) == ("ok", True)
    parameters = holds_errors(document)
    assert parameters["a2"]["nominal"] == 0.4
    for name in ("theta1", "d1"):
        assert (parameters[name]["value"], parameters[name]["status"]) == (None, "undetermined")
    reasons = {item["name"]: item for item in document["fixed"]}
    assert reasons["theta1"]["on"].keys() == {"base_rz"}
    assert reasons["d2"]["reason"] == "parallel_axes"
    residual = document["residual"]["test"]
    assert residual["before"]["mean_mm"] > 1.0
    assert residual["after"]["mean_mm"] < 0.1
    assert document["scale"]["position_mm"] == pytest.approx(1e3 * NOISE, rel=0.2)
    assert (document["scale"]["rotation_rad"] is not None) == orientation
    assert np.allclose(document["base"]["translation"], BASE[:3, 3], atol=2e-4)
    # What the file says about the arm is all that is needed to predict it.
    joints = tuple(
        Joint(j["name"], j["kind"], np.array(j["rotation"]), np.array(j["translation"]), np.array(j["axis"]))
        for j in document["geometry"]["joints"]
    )
    q = postures(ARM, 20, np.random.default_rng(9))
    tip = np.array(document["geometry"]["tip"]["translation"])
    rotation, translation = np.array(document["base"]["rotation"]), np.array(document["base"]["translation"])
    for posture, expected in zip(q, poses(q)[:, :3, 3], strict=True):
        last = link_poses(RobotModel("corrected", joints), posture)[-1]
        np.testing.assert_allclose(rotation @ (last[:3, :3] @ tip + last[:3, 3]) + translation, expected, atol=1e-4)


def test_residuals_name_line_and_part_of_each_pose(tmp_path: Path, robot: Path) -> None:
    """Of a table with a comment, an empty line, and its columns in another order."""
    names, values = rows(True)
    path = write(tmp_path / "m.csv", names[::-1], values[:, ::-1])
    path.write_text("# a tracker\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    _, document, residuals = calibrated(tmp_path / "out", robot, path, train_share=0.5)
    assert [int(row["line"]) for row in residuals] == list(range(4, 64))
    for part in ("training", "test"):
        chosen = [row for row in residuals if row["part"] == part]
        assert len(chosen) == document["residual"][part]["poses"] == 30
        for when, unit in itertools.product(("before", "after"), ("mm", "deg")):
            mean = np.mean([float(row[f"{when}_{unit}"]) for row in chosen])
            assert mean == pytest.approx(document["residual"][part][when][f"mean_{unit}"], abs=1e-6)
    for row in residuals:
        length = np.linalg.norm([float(row[f"d{axis}_mm"]) for axis in "xyz"])
        assert length == pytest.approx(float(row["after_mm"]), abs=3e-6)


def test_an_arm_of_a_urdf_has_placements(tmp_path: Path) -> None:
    """Measured in the robot's base frame, at its tip."""
    model = load_robot("space6").model
    q = np.random.default_rng(0).uniform(-1.5, 1.5, (80, 6))
    measured = []
    for posture in q:
        last = link_poses(model, posture)[-1]
        measured.append(last[:3, :3] @ model.tip_translation + last[:3, 3])
    noise = np.random.default_rng(1).normal(0.0, 1e-4, (80, 3))
    names = [*(f"q{k + 1}" for k in range(6)), "x", "y", "z"]
    path = write(tmp_path / "m.csv", names, np.hstack((q, np.array(measured) + noise)))
    outcome, document, _ = calibrated(tmp_path / "out", "space6", path, base=False, tool=False)
    assert document["robot"]["convention"] == "placements"
    assert (outcome.verdict, outcome.accepted) == ("no_gain", False)
    assert all(q["value"] is None for q in document["parameters"])
    assert (document["geometry"], document["base"], document["tool"]) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[:1], "no line of values"),
        (lambda lines: [lines[0].replace("q2", "q7"), *lines[1:]], "line 1: there is no column q2"),
        (lambda lines: [lines[0].replace("z", "y"), *lines[1:]], "line 1, column 6: 'y' is there twice"),
        (lambda lines: [lines[0] + ",t", *(line + ",0" for line in lines[1:])], "line 1, column 7: 't' is none of"),
        (lambda lines: [*lines[:4], "1,2,3", *lines[4:]], "line 5: 3 values for 6 columns"),
        (lambda lines: [*lines[:4], "1,2,-2e6,4,5,6", *lines[4:]], "line 5, column q3: -2e6 is beyond"),
        (lambda lines: ["#", lines[0], *(lines[1:2] * 50_001)], "line 50003: more than 50000 poses"),
        (lambda lines: [*lines[:4], "1,2,3,4,5,nan", *lines[4:]], "line 5, column z: 'nan' is not a number"),
        (
            lambda lines: [lines[0] + ",qx,qy,qz,qw", *(line + ",0,0,0.5,0.5" for line in lines[1:])],
            "line 2, column qx: the quaternion has length",
        ),
        (lambda lines: lines[:4], "2 distinct postures to fit give 6 equations for 21 parameters"),
        (lambda lines: [lines[0] + ",station", *(line + ",4.5" for line in lines[1:])], "4.5 is not a whole number"),
    ],
)
def test_a_bad_table_is_refused_by_file_line_and_column(tmp_path: Path, robot: Path, change: Any, message: str) -> None:
    path = write(tmp_path / "m.csv", *rows(False))
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    with pytest.raises(OperationError) as refused:
        calibrated(tmp_path / "out", robot, path)
    assert str(refused.value).startswith("measurements: m.csv: ")
    assert message in str(refused.value)


def test_other_files_and_parameters_are_refused(tmp_path: Path, robot: Path) -> None:
    text, large, good = tmp_path / "text.csv", tmp_path / "large.csv", write(tmp_path / "m.csv", *rows(False))
    sockets = np.array([[0.1 * k, 0.2, 0.3, k % 3] for k in range(9)])
    socket, distance = write(tmp_path / "s.csv", ["q1", "q2", "q3", "socket"], sockets), distances(tmp_path / "d.csv")
    text.write_bytes(b"q1,q2\n\xff\xfe\n")
    with large.open("wb") as stream:
        stream.truncate(64_000_001)
    for path, parameters, message in (
        (text, {}, r"text\.csv: not UTF-8 text"), (large, {}, r"large\.csv: has 64000001 bytes, more than 64000000"),
        (good, {"excluded": ["theta9"]}, "theta9"),
        (good, {"compliance": True}, "compliance: robot small has no masses"), (good, {"method": "newton"}, "method"),
        (good, {"range_angle": 1.1, "build_length": 0.0}, "range_angle.*build_length"),
        (good, {"train_sockets": [1]}, "train_sockets: .* has no column socket"),
        (socket, {"spacings": [[0, 7, 0.05]]}, "no pose in socket 7"),
        (socket, {"train_sockets": [9]}, "no pose in socket 9"),
        (distance, {"spacings": [[0, 5, 0.05]]}, "has no column socket"),
        (distance, {"train_sockets": [0, 5]}, "train_sockets: .* has distances"),
    ):  # fmt: skip
        with pytest.raises(OperationError, match=message):
            calibrated(tmp_path / "out", robot, path, **parameters)


def distances(path: Path) -> Path:
    rng = np.random.default_rng(2)
    q = postures(ARM, 90, rng)
    centres = np.array([[0.5, 0.4, 0.1], [-0.4, 0.5, 0.3], [0.1, -0.6, 0.6]])
    numbers = np.arange(90) % 3
    p = forward(ARM, q, ERRORS, np.eye(4), TOOL)[:, :3, 3]
    length = np.linalg.norm(p - centres[numbers], axis=1) + rng.normal(0.0, NOISE, 90)
    return write(path, ["q1", "q2", "q3", "distance", "centre"], np.column_stack((q, length, 5 * numbers)))


def test_distances_from_fixed_points(tmp_path: Path, robot: Path) -> None:
    outcome, document, residuals = calibrated(tmp_path / "out", robot, distances(tmp_path / "m.csv"))
    assert (outcome.verdict, document["data"]["kind"], document["base"]) == ("ok", "distance", None)
    holds_errors(document)
    assert [point["number"] for point in document["points"]] == [0, 5, 10]
    assert "d_mm" in residuals[0]
    assert document["residual"]["test"]["after"]["mean_mm"] < 0.1


def test_what_comes_from_a_prior_is_not_passed_off_as_measured(tmp_path: Path, robot: Path) -> None:
    path = write(tmp_path / "m.csv", *rows(False))
    given = {"prior_length": 2e-3, "prior_angle": 2e-3}
    outcome, document, _ = calibrated(tmp_path / "out", robot, path, **given)
    assert outcome.verdict == "ok"
    status = {q["name"]: q["status"] for q in document["parameters"]}
    carried = [name for name, found in status.items() if found == "prior"]
    assert {"theta1", "d1"} <= set(carried)
    assert f"; from the prior, not from the poses: {', '.join(carried)}" in outcome.summary
    assert status["a2"] == "determined"
    for name in ("calibrated_dh.csv", "report.html"):
        assert ", ".join(carried) in (tmp_path / "out" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("stage", "needed", "method"), [("pso", 4, "pso"), ("base and tool", 3, "lm"), ("scales", 3, "lm"), ("lm", 2, "lm")]
)
def test_a_cancelled_job_stops_in_any_stage(tmp_path: Path, robot: Path, stage: str, needed: int, method: str) -> None:
    kind, heard = find_kind("calibrate"), list[str]()
    ws = workspace(tmp_path / "run", measurements=write(tmp_path / "m.csv", *rows(True)))
    ws.report = lambda _, what: heard.append(what)
    ws.cancelled = lambda: heard.count(stage) >= needed
    with pytest.raises(OperationCancelledError):
        kind.run(kind.read({"robot": str(robot), "measurements": "m", "method": method}), ws)
    assert heard[-needed:] == [stage] * needed
    assert not list((tmp_path / "run").iterdir())
