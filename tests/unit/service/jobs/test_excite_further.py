"""Designs that count earlier motions, and that keep the collision shapes of a URDF apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.fourier import FourierSeries
from rt_core.excitation.objective import Excitation
from service.operations.errors import OperationError
from tests.lab.files import FILES
from tests.lab.jobs.job_run import run_here

QUICK: dict[str, Any] = {"harmonics": 3, "period_s": 5.0, "iterations": 60, "rate_hz": 20.0, "optimiser": "gradient"}
FIRST = {"joints": ["first", "second"], "f0_hz": 0.2, "q0": [0.1, -0.2], "a": [[0.3, -0.3]] * 2, "b": [[0.2, -0.1]] * 2}
RADIUS = {"base": 0.12, "hand": 0.1}
URDF = (FILES / "elbow.urdf").read_text(encoding="utf-8")
MESH = '<collision><geometry><mesh filename="palm.stl"/></geometry></collision>'


def read(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text(encoding="utf-8")))


def elbow(folder: Path, extra: str = "") -> Path:
    path = folder / "elbow.urdf"
    path.write_text(URDF.replace("EXTRA", extra))
    return path


@pytest.mark.parametrize("scaled", [True, False])
def test_earlier_motions_count_by_the_time_they_took(arm2: Path, tmp_path: Path, scaled: bool) -> None:
    after = [{**FIRST, "periods": 3}, {**FIRST, "f0_hz": 0.25}]
    values = {"robot": str(arm2), **QUICK, "after": after, "scaled": scaled}
    outcome = run_here("excite", values, tmp_path)
    model = load_robot(arm2).model
    excitation = Excitation(model, "condition", scaled)
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
        run_here("excite", {"robot": str(arm2), **QUICK, "after": [FIRST | change]}, tmp_path)


def test_shapes_of_the_urdf_keep_apart(tmp_path: Path) -> None:
    robot = elbow(tmp_path, MESH)
    run_here("excite", {"robot": str(robot), **QUICK, "starts": 3}, tmp_path / "free")
    values = {"robot": str(robot), **QUICK, "starts": 3, "urdf_bodies": True, "clearance_m": 0.1}
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
    values = {"robot": str(elbow(tmp_path)), **QUICK, "urdf_bodies": True, "clearance_m": 5.0}
    with pytest.raises(OperationError, match=r"however the arm stands: hand to base: .*skip_pairs"):
        run_here("excite", {**values, "iterations": 100_000}, tmp_path / "refused")
    left = run_here("excite", {**values, "iterations": 8, "skip_pairs": [("base", "hand")]}, tmp_path / "left")
    assert "collisions" in left.metrics["unchecked"]


def test_a_robot_without_shapes_has_none_to_compare(arm2: Path, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="not described by a URDF"):
        run_here("excite", {"robot": str(arm2), **QUICK, "urdf_bodies": True}, tmp_path)
    with pytest.raises(OperationError, match="no collision shapes"):
        run_here("excite", {"robot": "space6", **QUICK, "urdf_bodies": True}, tmp_path)
