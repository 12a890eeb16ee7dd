"""Refusals of robot files, with the text of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.files.robots.file import RobotError, load_robot, robot_from_source
from tests.lab.robot_texts import ELBOW, HEAD, URDF, load

REFUSED = {
    "misspelt key": (ELBOW + "alfa = 1", r'x.toml: joint "elbow".alfa: unknown key; did you mean "alpha"\?'),
    "misspelt top key": ("gravty = 'floor'\n" + ELBOW, r'x.toml: gravty: unknown key; did you mean "gravity"\?'),
    "misspelt table": (ELBOW + "[modle]", r'modle: unknown key; did you mean "model"\?'),
    "key of another table": (ELBOW + "cutoff_hz = 3", r"cutoff_hz: unknown key here; it belongs in \[identification\]"),
    "single bracket": ("[joint]\nname = 'a'", r"joint: is one table; write \[\[joint\]\]"),
    "no joint": ("", r"joint: there is no \[\[joint\]\]"),
    "unnamed joint": ("[[joint]]", r"joint\[0\].name: is missing"),
    "same name": (ELBOW + ELBOW, 'two joints are named "elbow"'),
    "nan": (ELBOW + "alpha = nan", r'joint "elbow".alpha: should be a finite number, got nan'),
    "inf": (ELBOW + "com = [0, inf, 0]\nmass = 1", r'joint "elbow".com\[1\]: should be a finite number, got inf'),
    "string": (ELBOW + "mass = '3'", r"mass: should be a valid number, got '3'"),
    "bool": (ELBOW + "mass = true", "mass: should be a valid number, got True"),
    "short com": (ELBOW + "mass = 1\ncom = [1, 2]", r"com: should have 3 numbers, got \[1, 2\]"),
    "long inertia": (ELBOW + "mass = 1\ninertia = [1,2,3,4,5,6,7]", "inertia: should have 6 numbers"),
    "kind": (ELBOW + "kind = 'ball'", "kind: should be 'revolute' or 'prismatic', got 'ball'"),
    "limits": (ELBOW + "lower = 2\nupper_deg = 90", r'joint "elbow".lower: 2 must be below the upper limit 1.57'),
    "both units": (ELBOW + "alpha = 1\nalpha_deg = 2", "alpha and alpha_deg are both given"),
    "degrees of a slide": (ELBOW + "kind='prismatic'\nupper_deg = 3", "upper_deg: a prismatic joint has limits in m"),
    "com without mass": (ELBOW + "com = [0, 0, 1]", "com: needs mass too"),
    "com twice": (ELBOW + "mass = 1\ncom = [0,0,1]\nfirst_moment = [0,0,1]", "both given"),
    "about nothing": (ELBOW + "mass = 1\ninertia_about = 'com'", "inertia_about: there is no inertia"),
    "moment without mass": (ELBOW + "mass = 0\nfirst_moment = [0,0,1]", "mass: is zero with a first moment"),
    "some links": (ELBOW + "mass = 1\n[[joint]]\nname = 'b'", 'joint "b".mass: is missing; give the links of all'),
    "negative mass": (ELBOW + "mass = -1", "mass: should be greater than or equal to 0, got -1"),
    "zero stiffness": (ELBOW + "armature = 1\nstiffness = 0", "stiffness: should be greater than 0, got 0"),
    "spring without rotor": (ELBOW + "stiffness = 1e4", 'joint "elbow".stiffness: needs armature above 0 too'),
    "half a spring": (ELBOW + "link_coulomb = 1", 'joint "elbow".link_coulomb: is of a joint with a spring'),
    "zero effort": (ELBOW + "effort = 0", "effort: should be greater than 0, got 0"),
    "gravity word": ("gravity = 'north'\n" + ELBOW, r"gravity: should be \[x, y, z\].*got 'north'"),
    "gravity nan": ("gravity = [0, 0, nan]\n" + ELBOW, r"gravity: should be \[x, y, z\].*got \[0, 0, nan\]"),
    "zero gear": (ELBOW + "[transmission]\ngear_ratio = [0.0]", "gear_ratio: must not be zero"),
    "two gears": (ELBOW + "[transmission]\ngear_ratio = [1, 2]", "gear_ratio: has 2 numbers, the arm has 1 joints"),
    "zero constant": (ELBOW + "[transmission]\ntorque_constant = [0]", "torque_constant: must not be zero"),
    "gear twice": (ELBOW + "[transmission]\ngear_ratio = [1]\nmatrix = [[1]]", "gear_ratio and matrix are both given"),
    "matrix rows": (ELBOW + "[transmission]\nmatrix = [[1], [2]]", "matrix: has 2 rows, the arm has 1 joints"),
    "matrix columns": (ELBOW + "[transmission]\nmatrix = [[1, 2]]", r"matrix\[0\]: has 2 numbers"),
    "matrix diagonal": (
        ELBOW + "[[joint]]\nname='b'\n[transmission]\nmatrix = [[0, 1], [1, 0]]",
        "diagonal holds the gear ratios",
    ),
    "singular": (ELBOW + "[[joint]]\nname='b'\n[transmission]\nmatrix = [[100, 200], [1, 2]]", "matrix: is singular"),
    "friction": (
        ELBOW + "[model]\nfriction = 'stribek'",
        "model.friction: should be 'none', 'coulomb_viscous', 'coulomb_viscous_offset', 'stribeck'",
    ),
    "cutoff": (ELBOW + "[identification]\ncutoff_hz = -3", "identification.cutoff_hz: should be greater than 0"),
    "speeds": (ELBOW + "[identification]\nmin_velocity = [1, 2]", "min_velocity: has 2 numbers, the arm has 1 joints"),
    "urdf in mdh": ("urdf = 'x.urdf'\n" + ELBOW, 'urdf: has no meaning with kinematics = "mdh"'),
    "syntax": ("a = = 1", r"x.toml: not valid TOML: .*line 4"),
    "depth": ("a = " + "[" * 100_000, "not valid TOML: nested too deeply"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(RobotError, match=message) as caught:
        load(tmp_path, HEAD + text)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.path == str(tmp_path / "x.toml")


def test_every_problem_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(RobotError) as caught:
        load(tmp_path, HEAD + ELBOW + "alfa = 1\nd = nan\n")
    assert len(str(caught.value).splitlines()) == 2
    assert {field for field, _ in caught.value.problems} == {'joint "elbow".alfa', 'joint "elbow".d'}


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (HEAD.replace("format = 1", "format = 2"), "format: should be 1, got 2"),
        (HEAD.replace("format = 1\n", ""), "format: is missing"),
        (HEAD.replace('"x"', '"a/b"'), "name: "),
        (HEAD.replace("mdh", "craig"), "kinematics: should be 'urdf', 'mdh' or 'dh', got 'craig'"),
        (HEAD.replace("mdh", "urdf"), 'urdf: is missing; kinematics = "urdf" needs'),
        (HEAD.replace("mdh", "urdf") + 'urdf = "no.urdf"\n', 'urdf: cannot read ".*no.urdf": No such file'),
    ],
)
def test_refused_head(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(RobotError, match=message):
        load(tmp_path, head + ELBOW)


def test_urdf_errors_name_the_urdf_or_the_field(tmp_path: Path) -> None:
    (tmp_path / "arm.urdf").write_text(URDF.replace("0 0 1", "0 0 0"))
    with pytest.raises(RobotError, match=r'arm.urdf: joint "j": <axis> is zero'):
        load_robot(tmp_path / "arm.urdf")
    with pytest.raises(RobotError, match=r'x.toml: urdf: joint "j": <axis> is zero'):
        load(tmp_path, HEAD.replace("mdh", "urdf") + 'urdf = "arm.urdf"')
    (tmp_path / "arm.urdf").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RobotError, match=r"arm.urdf: not UTF-8 text"):
        load_robot(tmp_path / "arm.urdf")


def test_odd_link_is_a_warning(tmp_path: Path) -> None:
    robot = load(tmp_path, HEAD + ELBOW + "mass = 1\ninertia = [1, 0, 1, 0, 0, 3]")
    assert len(robot.warnings) == 1
    assert 'joint "elbow"' in robot.warnings[0]


def test_source_must_be_a_description() -> None:
    for source in ({}, {"format": 1}, None, [1], {"joint": 3}, {"joint": [3]}, {"gravity": 3}):
        with pytest.raises(RobotError, match=r"model.yaml: "):
            robot_from_source(source, "model.yaml")  # type: ignore[arg-type]
    with pytest.raises(RobotError, match="a path has no meaning here"):
        robot_from_source({"format": 1, "name": "x", "kinematics": "urdf", "urdf": "x.urdf"})


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_clearly(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for suffix in ("toml", "urdf"):
        path = tmp_path_factory.getbasetemp() / f"random.{suffix}"
        path.write_bytes(data)
        with pytest.raises(RobotError):
            load_robot(path)
