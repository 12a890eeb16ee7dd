"""`thetad robots`: what a newcomer asks before there is any recording."""

from pathlib import Path

import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from tests.lab.command_line import thetad
from tests.lab.jobs.job_run import small_arm


def test_own_robots_are_listed_beside_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "configs" / "robots"
    folder.mkdir(parents=True)
    small_arm(folder / "mine.toml")
    (folder / "broken.toml").write_text('format = 1\nname = "broken"\nkinematics = "mdh"\ngravty = "floor"\n')
    monkeypatch.chdir(tmp_path)
    done = thetad("robots", "list")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert done.code == 0
    assert lines["mine"].split() == ["mine", "2"]
    assert lines["arm7"].split()[:3] == ["arm7", "7", "Simulated"]
    assert "CANNOT BE USED" in lines["broken"]
    found = {robot["robot"]: robot for robot in thetad("robots", "list", "--json").json["robots"]}
    assert (found["mine"]["joints"], found["mine"]["problems"]) == (2, [])
    assert [problem["field"] for problem in found["broken"]["problems"]] == ["gravty"]


def test_every_fault_of_every_file_is_named(tmp_path: Path) -> None:
    good, bad = small_arm(tmp_path / "good.toml"), tmp_path / "bad.toml"
    bad.write_text(
        good.read_text().replace('kinematics = "mdh"', 'kinematics = "mdh"\ngravty = "floor"\npayload = -1.0')
    )
    done = thetad("robots", "check", good, bad, "nobody")
    assert done.code == 2
    assert done.out == f"{good}: robot good, 2 joints, can be used\n"
    assert [field in done.err for field in (f"{bad}: gravty: ", f"{bad}: payload: ", "nobody: ")] == [True] * 3
    assert len(done.err.splitlines()) == 3
    assert thetad("robots", "check", good).code == 0


def test_parameters_are_those_that_torque_determines(tmp_path: Path) -> None:
    file = small_arm(tmp_path / "arm2.toml")
    base = base_parameters(load_robot(file).model)
    shown = thetad("robots", "show", file, "--json").json
    assert [row["name"] for row in shown["parameters"]] == list(base.names)
    assert (shown["gravity_m_s2"], [joint["name"] for joint in shown["joints"]]) == (
        [0.0, 0.0, -9.81],
        ["first", "second"],
    )
    text = thetad("robots", "show", file).out
    assert f"{len(base)} base parameters, of {len(base.standard)} standard ones:" in text
    thetad("robots", "show", tmp_path / "missing.toml").refused("missing.toml")
