"""`thetad calibrate --arm` with two arms and a tracker, and `compensate` at own base and tip, whose truth is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.compensation import compensate
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import FloatArray
from service.cli.calibration.compensate import corrected_geometry, hidden_at_tip
from service.operations.calibration.document import corrected_geometry as written_geometry
from service.operations.calibration.nominal_geometry import nominal_geometry
from service.operations.calibration.table import columns_of, table_text
from service.protocol.json_values import json_values
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.arms.calibration import forward, frame, postures
from tests.lab.command_line import Outcome, thetad

ROBOTS = Path(__file__).resolve().parents[4] / "configs" / "robots"
#: Of each arm: errors, and the base in that of the first, as a rotation vector and a translation.
ARMS = {
    "left": ({"a2": 1e-3, "theta3": 1.5e-3, "d5": -8e-4}, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    "right": ({"a3": -9e-4, "theta4": 1e-3, "alpha1": 1e-3}, (0.0, 0.1, 2.9), (1.6, 0.2, -0.05)),
}
#: The base of the first arm in the tracker's frame.
STATIONS = {1: ((0.4, -0.3, 2.2), (1.5, -2.0, 0.7)), 2: ((0.1, 0.2, -1.5), (-3.0, 1.0, 0.2))}


def placed(rotation: tuple[float, float, float], translation: tuple[float, float, float]) -> FloatArray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_rotvec(rotation).as_matrix(), translation
    return T


def measure(folder: Path, name: str, station: int, moved: float = 0.0) -> Path:
    """Table of 50 poses of an arm, from a station that stood `moved` [m] from where it should."""
    errors, *place = ARMS[name]
    base = placed(*STATIONS[station]) @ placed(*place)
    base[0, 3] += moved
    settings = TrackerSettings(seed=len(name), noise_seed=station)
    target = (np.eye(3), np.array([0.05, -0.04, 0.1]))
    geometry = nominal_geometry(load_robot(folder / f"{name}.toml"))
    arm = TrackedArm.of(geometry, settings, errors, (base[:3, :3], base[:3, 3]), target)
    q = np.random.default_rng([len(name), station]).uniform(-2.0, 2.0, (50, 6))
    measured, _ = arm.measure(q)
    path = folder / f"{name}{station}{'_moved' if moved else ''}.csv"
    path.write_text(table_text(columns_of(6, measured), np.hstack((q, measured))))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of a kind, each with a robot file of its own, and what was measured of them."""
    found = tmp_path_factory.mktemp("cell")
    for name in ARMS:
        (found / f"{name}.toml").write_text((ROBOTS / "ur10.toml").read_text())
        for station in STATIONS:
            measure(found, name, station)
    measure(found, "right", 2, moved=1e-3)
    return found


def both(folder: Path, right: str = "right1.csv,right2.csv", left: str = "left1.csv,left2.csv") -> list[str]:
    texts = []
    for name, files in (("left", left), ("right", right)):
        paths = ",".join(str(folder / file) for file in files.split(","))
        texts += ["--arm", f"{folder / name}.toml={paths}"]
    return texts


@pytest.fixture(scope="module")
def done(folder: Path) -> Outcome:
    return thetad("calibrate", *both(folder), "-o", folder / "out", "--json").ok()


def test_arms_and_how_they_stand(done: Outcome, folder: Path) -> None:
    result = done.json
    assert result["verdict"] == "ok"
    assert result["places"]["checked"]
    assert result["places"]["agree"]
    (pair,) = result["bases"]
    assert (pair["of"], pair["arm"]) == ("left", "right")
    true = placed(*ARMS["right"][1:])
    away = np.array(pair["translation"]) - true[:3, 3]
    assert np.abs(away / pair["translation_std"]).max() < 4.5
    assert np.abs(away).max() < 3e-4
    turn = Rotation.from_matrix(true[:3, :3].T @ np.array(pair["rotation"])).as_rotvec()
    assert np.abs(turn / np.array(pair["rotation_std"])).max() < 4.5
    assert json.loads((folder / "out" / "cell.json").read_text()) | {"output": result["output"]} == result
    for arm in result["arms"]:
        assert arm["stations"] == [1, 2]
        assert set(arm["base_holds"]) == {"theta1", "d1"}
        own = json.loads((folder / "out" / arm["name"] / "calibration.json").read_text())
        assert own["residual"] == arm["residual"]
        values = {p["name"]: p for p in own["parameters"] if p["value"] is not None}
        for name, value in ARMS[arm["name"]][0].items():
            assert abs(values[name]["value"] - value) < 4.5 * values[name]["std"], name


def test_a_column_has_the_stations_numbers(done: Outcome, folder: Path) -> None:
    """Station 2 alone is shared, by its number: nothing can be checked, and the text says so."""
    lines = (folder / "right2.csv").read_text().splitlines()
    rows = [lines[0] + ",station", *(line + ",2" for line in lines[1:])]
    (folder / "numbered.csv").write_text("\n".join(rows) + "\n")
    found = thetad("calibrate", *both(folder, "numbered.csv"), "-o", folder / "column").ok()
    assert "right in the base of left" in found.out
    assert "not checked: no two arms were measured from the same two places" in found.out
    document = json.loads((folder / "column" / "cell.json").read_text())
    assert [arm["stations"] for arm in document["arms"]] == [[1, 2], [2]]
    assert document["places"] == {"checked": False, "agree": None, "loops": 0, "chi_squared": None, "limit": None}
    gap = np.array(document["bases"][0]["translation"]) - np.array(done.json["bases"][0]["translation"])
    assert np.abs(gap).max() < 5e-4
    only = thetad("calibrate", *both(folder, "numbered.csv", "left1.csv"), "-o", folder / "no")
    only.refused("no place of the instrument is shared by left (station 1) and by right (station 2)")


def test_a_tracker_that_was_moved_between_the_arms(folder: Path) -> None:
    found = thetad("calibrate", *both(folder, "right1.csv,right2_moved.csv"), "-o", folder / "moved")
    assert found.code == 1, found
    assert "moved: the arms disagree about where the instrument stood" in found.out
    assert "in the base of" not in found.out
    document = json.loads((folder / "moved" / "cell.json").read_text())
    assert (document["verdict"], [arm["verdict"] for arm in document["arms"]]) == ("moved", ["ok", "ok"])
    assert document["bases"] == []
    assert "moved between left and right" in document["reasons"][0]
    at = [s for s in document["suspects"] if (s["arm"], s["station"]) == ("right", 2)]
    assert at[0]["distance_mm"] == pytest.approx(1.0, rel=0.3)


def test_wrong_use_is_refused(folder: Path) -> None:
    left, right = folder / "left.toml", folder / "right.toml"
    one, two = folder / "left1.csv", folder / "right1.csv"
    mine = ("--arm", f"{left}={one}", "--arm")
    good = (*mine, f"{right}={two}")
    earlier = folder / "refused" / "cell.json"
    earlier.parent.mkdir(exist_ok=True)
    (folder / "socket.csv").write_text("q1,q2,q3,q4,q5,q6,socket\n0,0,0,0,0,0,1\n")
    for arguments, *words in (
        ((*mine, f"ur99={two}"), "--arm ur99=", "ur99"),
        ((*mine, f"{left}={two}"), "left is given twice", "a name of its own"),
        ((*mine, f"{right}={one}"), "is left's already"),
        (("--arm", f"{left}={one},{one}", *good[2:]), "is there twice"), (mine[:2], "is one arm alone"),
        ((*mine, f"{right}"), "is not ROBOT=FILE[,FILE]"),
        ((*mine, f"{right}={folder / 'socket.csv'}"), "no positions of an instrument"),
        ((one, *good), "with --arm robots and files are in it"), ((*good, "--set", "base=false"), "base=false"),
        ((*good, "--set", "robot=ur10"), "robot is given by an option"),
        ((*good, "--set", "train_shar=0.7"), "train_shar"), ((*good, "--seed", "-1"), "--seed"),
        (("--robot", "ur10"), "FILE is missing"),
    ):  # fmt: skip
        earlier.write_text("{}")
        thetad("calibrate", *arguments, "-o", folder / "refused").refused(*words)
        if "--set" in arguments or "--seed" in arguments:
            assert earlier.exists(), "results of an earlier run were removed by a call that is refused"


@pytest.mark.parametrize("point", ["measured", "tip"])
def test_errors_of_the_last_row_count_at_the_tip(point: str) -> None:
    """Standard DH puts `d6` and `theta6` beyond the last joint; both points are one here."""
    robot = load_robot("ur10")
    nominal = replace(nominal_geometry(robot), tip_translation=np.array([0.05, 0.0, 0.0]))
    errors = {"a2": 1e-3, "d6": 2e-3, "theta6": 5e-3}
    rng = np.random.default_rng(0)
    q = postures(nominal, 120, rng)
    tip = frame((0.05, 0.0, 0.0), (0.0, 0.0, 0.0))
    measured = forward(nominal, q, errors, np.eye(4), tip)[:, :3, 3] + rng.normal(0.0, 3e-5, (120, 3))
    found = calibrate(nominal, q, measured, CalibrationSettings(base=False, tool=False))
    assert found.verdict == "ok"
    own = Geometry.from_model(robot.model)
    calibrated = corrected_geometry({"geometry": json_values(written_geometry(found))}, own, point)
    looked = rng.uniform(-1.5, 1.5, (6, 6))
    targets = forward(nominal, looked, errors, np.eye(4), tip)[:, :3, 3]
    commands = compensate(own, calibrated, targets, None, looked).commands
    missed = forward(nominal, commands, errors, np.eye(4), tip)[:, :3, 3] - targets
    assert np.linalg.norm(missed, axis=1).max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [(CalibrationSettings(), {"d6", "a6", "alpha6", "theta6"}), (CalibrationSettings(tool=False), set()),
     (CalibrationSettings(prior_length=2e-3), {"alpha6", "theta6"}),
     (CalibrationSettings(prior_length=2e-3, prior_angle=2e-3), set())],
    ids=["tool", "known", "lengths", "priors"],
)  # fmt: skip
def test_what_an_estimated_tool_holds_is_named(settings: CalibrationSettings, hidden: set[str]) -> None:
    nominal = replace(nominal_geometry(load_robot("ur10")), tip_translation=np.array([0.05, 0.02, 0.1]))
    rng = np.random.default_rng(0)
    q = postures(nominal, 80, rng)
    tip = frame((0.05, 0.02, 0.1), (0.0, 0.0, 0.0))
    base = frame((1.0, 0.3, -0.2), (0.1, 0.2, 1.0))
    measured = forward(nominal, q, {"a2": 1e-3, "theta3": 2e-3}, base, tip)[:, :3, 3]
    found = calibrate(nominal, q, measured + rng.normal(0.0, 3e-5, (80, 3)), settings)
    fixed = [{"name": item.name, "reason": item.reason, "on": dict(item.on)} for item in found.fixed]
    named = hidden_at_tip({"tool": None if found.tool is None else {}, "fixed": fixed})
    assert set(named) == hidden


def test_lines_are_followed_without_turning_joints_round() -> None:
    """Straight lines with the tool down: joints turn no more than the way asks for."""
    geometry = Geometry.from_model(load_robot("ur10").model)
    down = np.tile(np.diag([1.0, -1.0, -1.0]), (25, 1, 1))
    way = np.linspace(0.0, 1.0, 25)[:, None]
    followed = 0
    for seed in range(5, 11):
        ends = np.random.default_rng(seed).uniform([-0.8, -0.8, 0.1], [0.8, 0.8, 0.6], (2, 3))
        found = compensate(geometry, geometry, ends[0] + way * (ends[1] - ends[0]), down)
        steps = np.abs(np.diff(found.commands[found.reached], axis=0))
        assert found.largest_step == pytest.approx(steps.max() if steps.size else 0.0)
        # A joint that is a whole turn or more from where it was could be nearer within limits of a turn either side.
        assert (steps <= np.pi + 0.1).all()
        followed += bool(found.reached.all())
    assert followed >= 4
