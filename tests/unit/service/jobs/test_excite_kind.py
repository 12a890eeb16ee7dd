"""Jobs that design excitation: usable, repeatable, also in parts, after earlier motions, and with shapes kept apart."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.fourier import FourierSeries
from rt_core.excitation.limits import Limits
from rt_core.excitation.objective import Excitation
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.validation import difference
from service.jobs.kinds import find_kind
from service.operations.errors import OperationCancelledError, OperationError
from service.operations.workspace import Workspace
from tests.lab.arms.excitation import series_at
from tests.lab.files import FILES
from tests.lab.jobs.job_run import CREATED, run_here, workspace

QUICK = {"harmonics": 3, "period_s": 5.0, "particles": 10, "iterations": 5, "rate_hz": 20.0, "starts": 1}


def read(folder: Path, name: str = "trajectory.json") -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text(encoding="utf-8")))


def test_results(arm2: Path, tmp_path: Path) -> None:
    outcome = run_here("excite", {"robot": str(arm2), **QUICK, "floor": 10.0}, tmp_path)
    assert (outcome.verdict, outcome.accepted, "below the floor at 10 m" in outcome.summary) == ("ok", True, True)
    assert f"condition number {outcome.metrics['condition_number']:.4g}" in outcome.summary
    assert min(margin["share"] for margin in outcome.metrics["margins"]) >= 0.0
    document = read(tmp_path)
    metrics = read(tmp_path, "metrics.json")
    assert document["design"] == {name: value for name, value in metrics.items() if name != "searches"}
    assert document["robot"] == {"name": "arm2", "sha256": load_robot(arm2).sha256}
    assert document["start"] == pytest.approx(series_at(document, 0.0)[0].tolist())
    assert str(arm2.parent) not in (tmp_path / "trajectory.json").read_text(encoding="utf-8")
    lines = (tmp_path / "trajectory.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == (
        "t [s],first q [rad],second q [rad],first dq [rad/s],second dq [rad/s],first ddq [rad/s^2],second ddq [rad/s^2]"
    )
    table = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])
    assert table.shape == (5 * 20 + 1, 7)
    np.testing.assert_allclose(table[:, 0], np.arange(101) / 20.0)
    for row in table[::9]:
        np.testing.assert_allclose(row[1:], np.concatenate(series_at(document, row[0])), atol=1e-12)
    np.testing.assert_allclose(table[[0, -1], 3:], 0.0, atol=1e-12)
    np.testing.assert_allclose(table[0, 1:3], table[-1, 1:3], atol=1e-12)
    again = np.concatenate(FourierSeries.from_dict(document).sample(table[7, 0]))
    np.testing.assert_allclose(again, table[7, 1:], rtol=1e-13, atol=1e-13)


def test_in_parts_as_in_one_piece(arm2: Path, tmp_path: Path) -> None:
    kind = find_kind("excite")
    parameters = kind.read({"robot": str(arm2), **QUICK, "starts": 2, "seed": 5})
    assert kind.divided(parameters)
    fan_out = kind.fan_out
    split = fan_out.split(parameters)
    assert split == [{"seed": 5}, {"seed": 6}]
    whole, parted = workspace(tmp_path / "whole"), workspace(tmp_path / "parted")
    kind.run(parameters, whole)
    # As from other processes: through JSON, done in another order.
    done = [json.loads(json.dumps(fan_out.run_part(parameters, part, parted))) for part in split[::-1]]
    outcome = fan_out.gather(parameters, done[::-1], parted)
    for name in ("trajectory.json", "trajectory.csv", "metrics.json"):
        assert (whole.folder / name).read_bytes() == (parted.folder / name).read_bytes()
    assert [search["seed"] for search in outcome.metrics["searches"]] == [5, 6]


def test_a_robot_that_is_missing_or_that_the_settings_do_not_fit(arm2: Path, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="robot: is not given"):
        run_here("excite", QUICK, tmp_path)
    with pytest.raises(OperationError, match=r"acceleration has 1 values.*2 joints"):
        run_here("excite", {"robot": str(arm2), **QUICK, "acceleration": [1.0]}, tmp_path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"f0_hz": 0.2}, "f0_hz and period_s"),
        ({"period_s": 0.333}, "whole number of at least 60 for 3 harmonics"),
        ({"rate_hz": 1e5}, "500000 rows, more than 100000: lower rate_hz"),
        ({"period_s": None, "f0_hz": 5e-324}, "f0_hz"),
        ({"period_s": None, "f0_hz": 1e-4, "rate_hz": 1e5}, "1e\\+09 rows.*lower rate_hz"),
        ({"period_s": 1e-300}, "period_s"),
        ({"optimiser": "ga", "particles": 10_000, "iterations": 100_000}, "harmonics is 3000000000, more than"),
        ({"optimiser": "pso", "particles": 100, "iterations": 200, "starts": 256}, "starts times harmonics is"),
        ({"f_avoid_hz": 0.5}, "highest harmonic.*0.5 Hz"),
        ({"workspace": [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]}, "workspace x"),
        ({"optimiser": "lm"}, "optimiser"),
        ({"acceleration": [], "clearance_m": 10.1, "slow_velocity": [1e9]}, "acceleration.*clearance_m.*slow_velocity"),
        ({"regions": [{"low": [0, 0, 0], "high": [1, 1, 0]}]}, "workspace z"),
        ({"bodies": [{"name": "hand", "link": 0, "start": [0, 0], "end": [0, 0, 1], "radius": 0.1}]}, "start"),
    ],
)
def test_parameters_that_are_refused_when_they_are_submitted(change: dict[str, Any], what: str) -> None:
    with pytest.raises(OperationError, match=what):
        find_kind("excite").read({**QUICK, **change})


def test_a_job_that_is_cancelled_during_an_iteration_stops_there(arm2: Path, tmp_path: Path) -> None:
    """A swarm so large that its first iteration alone would report a hundred times."""
    heard: list[str] = []
    ws = Workspace(tmp_path, CREATED, report=lambda _, what: heard.append(what), cancelled=lambda: len(heard) >= 5)
    kind = find_kind("excite")
    with pytest.raises(OperationCancelledError):
        kind.run(kind.read({"robot": str(arm2), **QUICK, "particles": 10_000, "iterations": 2}), ws)
    assert len(heard) == 5
    assert list(tmp_path.iterdir()) == []


def test_assumed_limits_are_reported(arm2: Path, tmp_path: Path) -> None:
    """No robot file states accelerations; this one leaves out a velocity as well."""
    source = json.loads(json.dumps(load_robot(arm2).source))
    source["joint"][1] = {key: value for key, value in source["joint"][1].items() if not key.startswith("velocity")}
    outcome = run_here("excite", {"robot": json.dumps(source), **QUICK}, tmp_path)
    said = "assumed limits: acceleration of every joint and velocity of second"
    assert said in outcome.metrics["reasons"]
    given = run_here("excite", {"robot": str(arm2), **QUICK, "acceleration": [5.0, 5.0]}, tmp_path / "given")
    assert given.metrics["reasons"] == []


@pytest.mark.parametrize(("acceleration", "verdict"), [(0.03, "poor"), (1e-5, "undetermined")])
def test_a_motion_that_determines_too_little_is_not_accepted(
    acceleration: float, verdict: str, arm2: Path, tmp_path: Path
) -> None:
    """The slower the motion, the less it shows of inertia and viscous friction."""
    values = {"robot": str(arm2), **QUICK, "acceleration": [acceleration, acceleration]}
    outcome = run_here("excite", values, tmp_path)
    assert (outcome.verdict, outcome.accepted) == (verdict, False)
    assert outcome.summary.startswith(f"{verdict}: ")
    (reason,) = outcome.metrics["reasons"]
    if verdict == "poor":
        inflation = outcome.metrics["inflation"]
        assert max(inflation) > 1000.0
        assert outcome.metrics["parameters"][int(np.argmax(inflation))] in reason
    else:
        assert outcome.metrics["weakest"][0]["name"] in reason


def test_a_second_trajectory_to_validate_on(arm2: Path, tmp_path: Path) -> None:
    outcome = run_here("excite", {"robot": str(arm2), **QUICK, "validation": True}, tmp_path)
    found = outcome.metrics["validation"]
    first, second = (FourierSeries.from_dict(read(tmp_path, f"{name}.json")) for name in ("trajectory", "validation"))
    limits = Limits.of(load_robot(arm2).model, ExcitationSettings())
    reach = 0.5 * (limits.upper - limits.lower)
    assert found["difference"] == pytest.approx(difference(first, second, reach), rel=1e-9)
    assert found["difference"] >= 0.3
    assert min(margin["share"] for margin in found["margins"]) >= 0.0
    assert found["determination"] == "good"
    assert read(tmp_path, "validation.json")["design"] == found
    table = (tmp_path / "validation.csv").read_text().splitlines()
    assert np.array([float(cell) for cell in table[8].split(",")])[1:3] == pytest.approx(second.sample(7 / 20)[0])


def _reach(path: Path) -> np.ndarray:
    limits = Limits.of(load_robot(path).model, ExcitationSettings())
    return 0.5 * (limits.upper - limits.lower)


GRADIENT: dict[str, Any] = QUICK | {"iterations": 60, "optimiser": "gradient"}
FIRST = {"joints": ["first", "second"], "f0_hz": 0.2, "q0": [0.1, -0.2], "a": [[0.3, -0.3]] * 2, "b": [[0.2, -0.1]] * 2}
RADIUS = {"base": 0.12, "hand": 0.1}
URDF = (FILES / "elbow.urdf").read_text(encoding="utf-8")
MESH = '<collision><geometry><mesh filename="palm.stl"/></geometry></collision>'


def elbow(folder: Path, extra: str = "") -> Path:
    path = folder / "elbow.urdf"
    path.write_text(URDF.replace("EXTRA", extra))
    return path


@pytest.mark.parametrize("scaled", [True, False])
def test_earlier_motions_count_by_the_time_they_took(arm2: Path, tmp_path: Path, scaled: bool) -> None:
    after = [{**FIRST, "periods": 3}, {**FIRST, "f0_hz": 0.25}]
    values = {"robot": str(arm2), **GRADIENT, "after": after, "scaled": scaled}
    outcome = run_here("excite", values, tmp_path)
    excitation = Excitation(load_robot(arm2).model, "condition", scaled)
    rows = []
    for document, periods in ((read(tmp_path, "trajectory.json"), 1), (after[0], 3), (after[1], 1)):
        series = FourierSeries.from_dict(document)
        states = series.sample(np.arange(0.0, periods * series.period_s, 1e-3))  # rows at one and the same rate
        rows.append(excitation.regressor(states).transpose(0, 2, 1).reshape(-1, len(excitation.layout)).copy())
    W = np.vstack(rows)
    if scaled:
        W /= np.linalg.norm(W, axis=0)
    assert outcome.metrics["condition_number"] == pytest.approx(np.linalg.cond(W), rel=2e-3)
    assert np.linalg.cond(rows[0]) != pytest.approx(np.linalg.cond(W), rel=0.05)
    assert ["counted besides", "2 earlier trajectories, 19 s of them"] in outcome.metrics["facts"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"joints": ["second", "first"]}, "after: a trajectory of the joints second, first"),
        ({"q0": [0.1], "a": [[0.3, -0.3]], "b": [[0.2, -0.1]]}, "after: coefficients of 1 joints, and names of 2"),
        ({"robot": "arm3"}, "after: a trajectory for robot 'arm3', this one is 'arm2'"),
        ({"robot": "arm2", "robot_sha256": "12ab" * 16}, r"another version.*12ab12ab12ab, now.*set changed_robot"),
    ],
)
def test_a_motion_of_another_arm_is_refused(arm2: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(OperationError, match=words):
        run_here("excite", {"robot": str(arm2), **GRADIENT, "after": [FIRST | change]}, tmp_path)


def test_shapes_of_the_urdf_keep_apart(tmp_path: Path) -> None:
    robot = elbow(tmp_path, MESH)
    run_here("excite", {"robot": str(robot), **GRADIENT, "starts": 3}, tmp_path / "free")
    values = {"robot": str(robot), **GRADIENT, "starts": 3, "urdf_bodies": True, "clearance_m": 0.1}
    outcome = run_here("excite", values, tmp_path / "apart")
    assert "collision shape palm.stl: meshes are not read" in outcome.metrics["unchecked"]
    assert "collisions of the links moved by j1, j2: no body covers them" in outcome.metrics["unchecked"]
    model = pin.buildModelFromXML(URDF.replace("EXTRA", ""))
    store = model.createData()
    gaps = {}
    for name in ("free", "apart"):
        gap = np.inf
        series = FourierSeries.from_dict(read(tmp_path / name, "trajectory.json"))
        for q in series.sample(np.arange(0.0, 5.0, 0.005))[0]:
            pin.forwardKinematics(model, store, q)
            hand = store.oMi[3].act(np.array([0.05, 0.0, 0.0]))
            gap = min(gap, float(np.linalg.norm(hand)) - RADIUS["base"] - RADIUS["hand"])
        gaps[name] = gap
    assert gaps["apart"] >= 0.1
    assert gaps["free"] < 0.1  # else the shapes had no part in it
    told = [margin["reached"] for margin in outcome.metrics["margins"] if margin["quantity"] == "distance"]
    assert told == [pytest.approx(gaps["apart"] + sum(RADIUS.values()), abs=2e-3)]


def test_shapes_that_cannot_keep_apart_are_refused_before_the_search(tmp_path: Path) -> None:
    values = {"robot": str(elbow(tmp_path)), **GRADIENT, "urdf_bodies": True, "clearance_m": 5.0}
    with pytest.raises(OperationError, match=r"however the arm stands: hand to base: .*skip_pairs"):
        run_here("excite", {**values, "iterations": 100_000}, tmp_path / "refused")
    left = run_here("excite", {**values, "iterations": 8, "skip_pairs": [("base", "hand")]}, tmp_path / "left")
    assert "collisions" in left.metrics["unchecked"]


def test_a_robot_without_shapes_has_none_to_compare(arm2: Path, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="not described by a URDF"):
        run_here("excite", {"robot": str(arm2), **GRADIENT, "urdf_bodies": True}, tmp_path)
    with pytest.raises(OperationError, match="no collision shapes"):
        run_here("excite", {"robot": "space6", **GRADIENT, "urdf_bodies": True}, tmp_path)
