"""`thetad calibrate` a second time into the same folder: nothing of the first run is taken for the second's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from service.jobs.kinds import find_kind
from service.jobs.kinds.calibrate import FILES
from service.operations.errors import OperationError
from tests.lab.command_line import thetad
from tests.lab.jobs.job_run import workspace
from tests.process.jobs.test_calibrate_kind import ROBOT, rows, write


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(ROBOT, encoding="utf-8")
    return path


def tables(folder: Path) -> tuple[Path, Path, Path]:
    """One that can be calibrated, one that nothing explains, one that is refused."""
    names, values = rows(False)
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
    first = thetad("calibrate", good, *command)
    assert first.code == 0, first
    assert left_in(out) == set(FILES)
    (out / "notes.txt").write_text("mine\n")
    # Not explained: no arm is corrected, so none may lie there.
    assert thetad("calibrate", wrong, *command).code == 1
    assert left_in(out) == {"calibration.json", "residuals.csv", "report.html", "notes.txt"}
    assert json.loads((out / "calibration.json").read_text())["verdict"] == "not_explained"
    assert thetad("calibrate", good, *command).code == 0
    thetad("calibrate", few, *command).refused("measure at least")
    assert left_in(out) == {"notes.txt"}


def test_what_a_run_reads_is_never_removed(tmp_path: Path, robot: Path) -> None:
    good, _, _ = tables(tmp_path)
    out = tmp_path / "out"
    assert thetad("calibrate", good, "--robot", robot, "-o", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = ("calibrate", good, "--robot", out / "calibrated.urdf")
    thetad(*again, "-o", out).refused("calibrated.urdf: would be overwritten by the results")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert thetad(*again, "-o", tmp_path / "next").code in (0, 1)


def test_the_kind_clears_its_folder(tmp_path: Path, robot: Path) -> None:
    good, _, few = tables(tmp_path)
    kind = find_kind("calibrate")
    parameters = kind.read({"robot": str(robot), "measurements": "m"})
    assert kind.run(parameters, workspace(tmp_path / "out", measurements=good)).accepted
    with pytest.raises(OperationError, match="measure at least"):
        kind.run(parameters, workspace(tmp_path / "out", measurements=few))
    assert left_in(tmp_path / "out") == set()


def test_each_arm_of_several_has_its_folder_cleared(tmp_path: Path, robot: Path) -> None:
    good, _, few = tables(tmp_path)
    other = tmp_path / "other.toml"
    other.write_text(ROBOT, encoding="utf-8")
    second = tmp_path / "second.csv"
    second.write_text(good.read_text())
    arms = ("--arm", f"{robot}={good}", "--arm")
    out = tmp_path / "cell"
    assert thetad("calibrate", *arms, f"{other}={second}", "-o", out).code == 0
    # The first arm ends the run; the second's results are of the run before.
    swapped = ("--arm", f"{robot}={few}", "--arm", f"{other}={second}")
    thetad("calibrate", *swapped, "-o", out).refused("measure at least")
    assert left_in(out) == {"small", "other"}
    assert left_in(out / "small") == left_in(out / "other") == set()


def test_the_terminal_has_intervals_of_the_stated_freedom(tmp_path: Path, robot: Path) -> None:
    names, values = rows(False)
    table = write(tmp_path / "few.csv", names, values[:9])
    found = thetad("calibrate", table, "--robot", robot, "-o", tmp_path / "out", "--set", "train_share=1.0")
    document = json.loads((tmp_path / "out" / "calibration.json").read_text())
    freedom = document["standard_deviations"]["freedom"]
    assert freedom == 27 - document["rank"]
    std = next(p["std"] for p in document["parameters"] if p["name"] == "a2")
    line = next(line for line in found.out.splitlines() if line.startswith("a2 "))
    half = float(line.partition("±")[2].split()[0])
    assert half == pytest.approx(1e3 * std * stats.t.ppf(0.975, freedom), rel=0.06)
    assert half > 1e3 * std * 2.05
