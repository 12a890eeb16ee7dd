"""`thetad excite` as a user runs it: what it writes agrees with itself, and what cannot be designed is refused."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.fourier import FourierSeries
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.lab.console import check_page, surroundings

QUICK = ("--harmonics", 3, "--rate", 20, "--starts", 2, "--set", "iterations=40")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("excitation") / "new" / "folder"


@pytest.fixture(scope="module")
def done(folder: Path) -> Outcome:
    return thetad("excite", "space6", "-o", folder, "--json", *QUICK).ok()


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    check_page(ROOT / "docs" / "excitation.md", tmp_path, surroundings())


@pytest.mark.slow
def test_what_is_written(done: Outcome, folder: Path) -> None:
    names = {"trajectory.json", "trajectory.csv", "points.csv", "report.html", "metrics.json"}
    assert {path.name for path in folder.iterdir()} == names
    result = done.json
    assert (result["verdict"], result["output"]) == ("ok", str(folder))
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert all(weak["name"] in page for weak in result["weakest"])


def test_points_are_the_series_in_degrees(done: Outcome, folder: Path) -> None:
    series = FourierSeries.from_dict(json.loads((folder / "trajectory.json").read_text()))
    heads, *rows = csv.reader((folder / "points.csv").read_text().splitlines(), delimiter=";")
    assert heads == ["time [s]", *(f"{joint.name} [deg]" for joint in load_robot("space6").model.joints)]
    table = np.array(rows, dtype=np.float64)
    assert table.shape == (round(20 * series.period_s) + 1, 7)
    np.testing.assert_allclose(np.diff(table[:, 0]), 0.05, atol=1e-9)
    np.testing.assert_allclose(np.radians(table[:, 1:]), series.sample(table[:, 0])[0], atol=1e-8)


@pytest.mark.slow
def test_a_motion_that_cannot_be_is_said_to_be_none(tmp_path: Path) -> None:
    """What an earlier design left under the names of a trajectory goes; other files stay."""
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("trajectory.json", "trajectory.csv", "points.csv", "validation.json", "validation.csv"):
        (tmp_path / name).write_text("of an earlier design")
    done = thetad("excite", "space6", "-o", tmp_path, *QUICK, "workspace=[[50, 51], [50, 51], [50, 51]]")
    assert done.code == 1, done
    assert done.out.startswith("infeasible: no motion within the limits was found")
    assert "tip" in done.out.splitlines()[1]
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.json", "report.html", "notes.txt"}
    assert "there is no trajectory" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), ("no robot of that name",)), (("space6", "--optimiser", "luck"), ("optimiser", "tcs_pso")),
        (("space6", "--objective", "beauty"), ("objective", "condition")),
        (("space6", "--period", "nan"), ("--period: ",)), (("space6", "--seed", "-1"), ("seed",)),
        (("space6", "--seed", "1", "--set", "seed=2"), ("seed is given already",)),
        (("space6", "--set", "robot=ur10"), ("robot is given already",)),
        (("space6", "--after", "trajectory.json:0"), ("'0' is not a number of periods",)),
        (("space6", "--set", "effort_fraction=2"), ("effort_fraction",)),
        (("space6", "--set", "colour=red"), ("colour: is not a parameter",)),
        (("space6", "--set", "colour"), ("NAME=VALUE",)),
    ],
)  # fmt: skip
def test_nonsense_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    thetad("excite", *arguments, "-o", tmp_path / "out").refused(*words)
    assert not (tmp_path / "out").exists()


def test_periods_of_an_earlier_motion_count(arm2: Path, tmp_path: Path) -> None:
    """The frequency to avoid suits the period that is given, not the one that is the default."""
    first, second = tmp_path / "first", tmp_path / "se:cond"
    quick = ("--period", 20, "--harmonics", 3, "--rate", 20, "--starts", 1, "--set", "f_avoid_hz=0.2", "iterations=8")
    assert thetad("excite", arm2, "-o", first, *quick).code in (0, 1)
    for out, after, told in ((second, f"{first}/trajectory.json:7", 140), (tmp_path, f"{second}/trajectory.json", 20)):
        done = thetad("excite", arm2, "-o", out, "--json", "--after", after, *quick)
        assert dict(done.json["facts"])["counted besides"] == f"1 earlier trajectories, {told} s of them"
    changed = tmp_path / "other" / arm2.name
    changed.parent.mkdir()
    changed.write_text(arm2.read_text().replace("viscous = 3.0", "viscous = 3.5"))
    after = ("-o", tmp_path / "d", "--after", first / "trajectory.json", *quick)
    thetad("excite", changed, *after).refused("another version of the description", "--changed-robot")
    assert thetad("excite", changed, "--changed-robot", *after).code in (0, 1)
