"""Robot files: shipped robots, kinematics, identity, lookup, the manual, and refusals with the text of each."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.files.robots.file import (
    RobotError,
    RobotFile,
    RobotNotFoundError,
    known_robots,
    load_robot,
    robot_from_source,
)
from rt_core.model.inertia import mass_com_inertia
from rt_core.model.urdf import chain_from_urdf
from rt_core.model.urdf_writer import urdf_from_model
from tests.lab.robot_texts import ELBOW, HEAD, URDF, load

MANUAL = (Path(__file__).resolve().parents[5] / "docs" / "robots.md").read_text(encoding="utf-8")


def assert_same(one: RobotFile, two: RobotFile) -> None:
    np.testing.assert_equal(asdict(replace(one, path=None)), asdict(replace(two, path=None)))


# --- the shipped robots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(known_robots()))
def test_shipped_robot_survives_its_source(name: str) -> None:
    robot = load_robot(name)
    assert robot.model.name == name
    assert robot.warnings == ()
    again = robot_from_source(json.loads(json.dumps(robot.source)))
    assert again.path is None
    assert_same(robot, again)


def poses(model: Any, q: np.ndarray) -> np.ndarray:
    """Joint axes and points on them, and the tip, in the base: what two descriptions of one arm share."""
    rotation, translation, out = np.eye(3), np.zeros(3), []
    for joint, value in zip(model.joints, q, strict=True):
        translation = translation + rotation @ joint.translation
        rotation = rotation @ joint.rotation
        axis = rotation @ joint.axis
        out.extend([axis, translation - axis * (axis @ translation)])
        c, s = math.cos(value), math.sin(value)
        x, y, z = axis
        K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = (np.eye(3) + s * K + (1 - c) * K @ K) @ rotation
    return np.array([*out, translation + rotation @ model.tip_translation])


@pytest.mark.parametrize(
    ("name", "urdf", "base"),
    [("staubli_tx40", "staubli_tx40/tx40.urdf", None), ("franka_panda", "franka_panda/panda_arm.urdf", None),
     ("kuka_lwr4", "kuka_lwr4/kuka_lwr4.urdf", "lwr_base_link")],
)  # fmt: skip
def test_tables_equal_the_published_urdf(data_dir: Path, name: str, urdf: str, base: str | None) -> None:
    model = load_robot(name).model
    chain = chain_from_urdf((data_dir / urdf).read_text(), base_link=base)
    assert [j.name for j in model.joints] == [j.name for j in chain.joints]
    for q in np.random.default_rng(1).uniform(-2, 2, (5, model.n)):
        np.testing.assert_allclose(poses(model, q), poses(chain, q), atol=1e-9)
    for ours, theirs in zip(model.joints, chain.joints, strict=True):
        limits = [[j.lower, j.upper, j.velocity, j.effort] for j in (ours, theirs)]
        np.testing.assert_allclose(limits[0], limits[1], atol=1e-9)
    if model.inertial is not None:  # the frames may differ along the axis; masses and centres' lines do not
        np.testing.assert_allclose(model.inertial[:, 0], chain.inertial[:, 0])


def test_kr300_equals_the_published_table(data_dir: Path) -> None:
    model = load_robot("kuka_kr300_elastic").model
    published = json.loads((data_dir / "kuka_kr300_elastic/kr300.json").read_text())
    q = np.radians([10, -80, 70, 30, -40, 50])
    T = np.eye(4)
    theta = q + np.radians(published["theta_offset_deg"])
    for t, d, a, alpha in zip(theta, published["d_m"], published["a_m"], published["alpha_rad"], strict=True):
        ct, st_, ca, sa = math.cos(t), math.sin(t), math.cos(alpha), math.sin(alpha)
        T = T @ np.array(
            [[ct, -st_ * ca, st_ * sa, a * ct], [st_, ct * ca, -ct * sa, a * st_], [0, sa, ca, d], [0, 0, 0, 1]]
        )
    np.testing.assert_allclose(poses(model, q)[-1], T[:3, 3], atol=1e-12)
    np.testing.assert_array_equal(np.diag(model.transmission.matrix), published["gear_ratio"])
    np.testing.assert_array_equal(model.gravity, [0, 0, 9.81])


def test_no_payload_is_bounded_by_placeholder_masses() -> None:
    model = load_robot("staubli_tx40").model
    assert model.payload_bound == pytest.approx(23.01)
    assert replace(model, payload=2.0).payload_bound == 2.0
    for masses in (np.ones(6), np.array([3.0, 2.0, 1.0, 0.0, 1.0, 1.0])):
        assert replace(model, inertial=np.column_stack((masses, model.inertial[:, 1:]))).payload_bound is None


def test_tx40_wrist_is_coupled_and_its_zero_shifted() -> None:
    transmission = load_robot("staubli_tx40").model.transmission
    q = transmission.joint_position(np.zeros(6))
    np.testing.assert_allclose(q, [0, -math.pi / 2, math.pi / 2, 0, 0, 0], atol=1e-14)
    np.testing.assert_allclose(transmission.joint_torque(np.array([0, 0, 0, 0, 0, 1.0])), [0, 0, 0, 0, 32, 32])


# --- the three kinematics --------------------------------------------------------------------------------------------


def test_one_arm_written_as_mdh_dh_and_urdf(tmp_path: Path) -> None:
    link = "mass = 2.0\ninertia = [0.02, 0.001, 0.03, 0.002, -0.001, 0.04]\n"
    mdh = load(
        tmp_path,
        HEAD
        + f'[[joint]]\nname = "1"\nd = 0.4\n{link}com = [0.1, 0.2, 0.3]\n'
        + f'[[joint]]\nname = "2"\na = 0.1\nalpha_deg = -90\nlower_deg = -90\nupper_deg = 45\n{link}com = [0.3, 0, 0]\n'
        + "[tip]\ntranslation = [0.5, 0, 0]\nrpy_deg = [0, 0, 90]\n",
    )
    # Standard frame 1 is modified frame 1 shifted by 0.1 along x and turned by -90 deg about x (z -> y, y -> -z).
    turned = "mass = 2.0\ninertia = [0.02, -0.002, 0.04, 0.001, 0.001, 0.03]\n"
    dh = load(
        tmp_path,
        HEAD.replace("mdh", "dh")
        + f'[[joint]]\nname = "1"\nd = 0.4\na = 0.1\nalpha_deg = -90\n{turned}com = [0.0, -0.3, 0.2]\n'
        + f'[[joint]]\nname = "2"\na = 0.5\nlower_deg = -90\nupper_deg = 45\n{link}com = [-0.2, 0, 0]\n'
        + "[tip]\nrpy_deg = [0, 0, 90]\n",
    )
    (tmp_path / "x.urdf").write_text(urdf_from_model(mdh.model, mdh.model.inertial))
    urdf = load(tmp_path, HEAD.replace("mdh", "urdf") + 'urdf = "x.urdf"')
    bare = load_robot(tmp_path / "x.urdf")
    for q in np.random.default_rng(0).uniform(-2, 2, (5, 2)):
        for other in (dh, urdf, bare):
            np.testing.assert_allclose(poses(other.model, q), poses(mdh.model, q), atol=1e-14)
    assert mdh.model.joints[1].upper == math.radians(45)
    np.testing.assert_allclose(mdh.model.tip_rotation, dh.model.tip_rotation, atol=1e-15)
    # Frame 2 of both is carried by the same link; the standard one 0.5 m further out, so com.x differs by 0.5.
    np.testing.assert_allclose(dh.model.inertial[1], mdh.model.inertial[1], atol=1e-15)
    # Frame 1: the internal frame of a standard row is at its near end, 0.4 m below the modified one.
    m1, c1, i1 = mass_com_inertia(mdh.model.inertial[0])
    m2, c2, i2 = mass_com_inertia(dh.model.inertial[0])
    assert m1 == m2
    np.testing.assert_allclose(c2, c1 + np.array([0, 0, 0.4]), atol=1e-15)
    np.testing.assert_allclose(i2, i1, atol=1e-15)
    np.testing.assert_allclose(urdf.model.inertial, mdh.model.inertial, atol=1e-14)
    assert_same(bare, robot_from_source(bare.source))


def test_urdf_overrides_by_name(tmp_path: Path) -> None:
    (tmp_path / "arm.urdf").write_text(URDF)
    text = HEAD.replace("mdh", "urdf") + 'urdf = "arm.urdf"\n[[joint]]\nname = "j"\n'
    robot = load(tmp_path, text + "upper = 0.5\narmature = 2.0\nmass = 3.0\ncom = [0.1, 0, 0]\n")
    (joint,) = robot.model.joints
    assert (joint.lower, joint.upper, joint.velocity, joint.effort) == (-1.0, 0.5, 2.0, 3.0)
    np.testing.assert_array_equal(robot.model.dynamics.armature, [2.0])
    np.testing.assert_allclose(robot.model.inertial[0], [3, 0.3, 0, 0, 0, 0, 0.03, 0, 0, 0.03], atol=1e-15)
    with pytest.raises(RobotError, match=r'joint "k": the URDF\'s chain has no such joint; it has j'):
        load(tmp_path, text.replace('"j"', '"k"'))
    with pytest.raises(RobotError, match=r'joint "j".alpha_deg: comes from the URDF'):
        load(tmp_path, text + "alpha_deg = 90")


def test_inertia_about_com_origin_and_by_first_moment(tmp_path: Path) -> None:
    link = "mass = 2.0\n{}\ninertia = [{}, 0, {}, 0, 0, {}]\ninertia_about = {!r}\n"
    variants = [
        link.format("com = [0.5, 0, 0]", 0.1, 0.2, 0.3, "com"),
        link.format("com = [0.5, 0, 0]", 0.1, 0.7, 0.8, "origin"),
        link.format("first_moment = [1.0, 0, 0]", 0.1, 0.2, 0.3, "com"),
    ]
    for text in variants:
        inertial = load(tmp_path, HEAD + ELBOW + text).model.inertial
        np.testing.assert_allclose(inertial[0], [2, 1, 0, 0, 0.1, 0, 0.7, 0, 0, 0.8], atol=1e-15)


@pytest.mark.parametrize(
    ("text", "vector"),
    [("", [0, 0, -9.81]), ('gravity = "ceiling"\n', [0, 0, 9.81]), ('gravity = "microgravity"\n', [0, 0, 0]),
     ('gravity = "+y"\n', [0, 9.81, 0]), ("gravity = [1, -2.5, 3]\n", [1, -2.5, 3])],
)  # fmt: skip
def test_gravity(tmp_path: Path, text: str, vector: list[float]) -> None:
    np.testing.assert_array_equal(load(tmp_path, HEAD + text + ELBOW).model.gravity, vector)


# --- identity --------------------------------------------------------------------------------------------------------


def test_hash_sees_content_only(tmp_path: Path) -> None:
    first = load(tmp_path, HEAD + ELBOW + "a = 1\nd = 2.5\n")
    same = load(
        tmp_path,
        '# a comment\nkinematics="mdh"\nname="x"\nformat=1\ndescription="words"\n'
        'joint = [{d = 2.50, name="elbow", a = 1.0}]',
    )
    assert first.sha256 == same.sha256 != load(tmp_path, HEAD + ELBOW + "a = 1\nd = 2.500001\n").sha256
    rated = load(tmp_path, HEAD + "payload = 3.5\n" + ELBOW + "a = 1\nd = 2.5\n")
    assert (rated.sha256, rated.model.payload_bound, first.model.payload_bound) == (first.sha256, 3.5, None)
    assert len(first.sha256) == 64


def test_hash_of_a_urdf_ignores_shapes_and_layout(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text(URDF)
    first = load_robot(path)
    path.write_text(URDF.replace('<link name="b"/>', '<!-- c -->\n<link  name="b"><visual><geometry/></visual></link>'))
    assert load_robot(path).sha256 == first.sha256
    path.write_text(URDF.replace('effort="3"', 'effort="4"'))
    assert load_robot(path).sha256 != first.sha256


# --- finding ---------------------------------------------------------------------------------------------------------


def test_lookup_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, base = tmp_path / "here", tmp_path / "base"
    for folder in (here, base):
        (folder / "configs" / "robots").mkdir(parents=True)
    monkeypatch.chdir(here)
    (base / "configs/robots/mine.toml").write_text(HEAD + ELBOW)
    (base / "configs/robots/emps.toml").write_text(HEAD + ELBOW)
    assert "mine" in known_robots(base)
    assert "mine" not in known_robots()
    assert load_robot("mine", base).path == base / "configs/robots/mine.toml"
    assert load_robot("emps", base).model.name == "x"
    assert load_robot("emps").model.name == "emps"
    (here / "configs/robots/emps.toml").write_text(HEAD + ELBOW + "d = 1")
    assert load_robot("emps", base).path == here / "configs/robots/emps.toml"
    assert load_robot("configs/robots/mine.toml", base).model.name == "x"


def test_not_found(tmp_path: Path) -> None:
    with pytest.raises(
        RobotNotFoundError, match='did you mean "emps"\\? Available: arm7, arm7_elastic, arm9, emps'
    ) as caught:
        load_robot("emp")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(RobotNotFoundError, match="no such file"):
        load_robot("nowhere/x.toml")
    with pytest.raises(RobotNotFoundError, match="is a directory"):
        load_robot(tmp_path)


# --- the manual ------------------------------------------------------------------------------------------------------


def test_examples_of_the_manual_load(tmp_path: Path) -> None:
    (tmp_path / "lab_arm.urdf").write_text(
        URDF.replace('"j"', '"shoulder"').replace(
            "</robot>",
            '<link name="c"/><joint name="elbow" type="revolute"><parent link="b"/><child link="c"/></joint></robot>',
        )
    )
    whole = [block.partition("```")[0] for block in MANUAL.split("```toml\n")[1:]]
    robots = [load(tmp_path, block) for block in whole if block.startswith("format = 1")]
    assert [robot.source["kinematics"] for robot in robots] == ["urdf", "mdh", "dh"]
    assert all(robot.warnings == () for robot in robots)


REFUSED = {
    "misspelt key": (ELBOW + "alfa = 1", r'x.toml: joint "elbow".alfa: unknown key; did you mean "alpha"\?'),
    "key of another table": (ELBOW + "cutoff_hz = 3", r"cutoff_hz: unknown key here; it belongs in \[identification\]"),
    "single bracket": ("[joint]\nname = 'a'", r"joint: is one table; write \[\[joint\]\]"),
    "no joint": ("", r"joint: there is no \[\[joint\]\]"),
    "unnamed joint": ("[[joint]]", r"joint\[0\].name: is missing"),
    "same name": (ELBOW + ELBOW, 'two joints are named "elbow"'),
    "nan": (ELBOW + "alpha = nan", r'joint "elbow".alpha: should be a finite number, got nan'),
    "limits": (ELBOW + "lower = 2\nupper_deg = 90", r'joint "elbow".lower: 2 must be below the upper limit 1.57'),
    "both units": (ELBOW + "alpha = 1\nalpha_deg = 2", "alpha and alpha_deg are both given"),
    "degrees of a slide": (ELBOW + "kind='prismatic'\nupper_deg = 3", "upper_deg: a prismatic joint has limits in m"),
    "com without mass": (ELBOW + "com = [0, 0, 1]", "com: needs mass too"),
    "some links": (ELBOW + "mass = 1\n[[joint]]\nname = 'b'", 'joint "b".mass: is missing; give the links of all'),
    "negative mass": (ELBOW + "mass = -1", "mass: should be greater than or equal to 0, got -1"),
    "zero stiffness": (ELBOW + "armature = 1\nstiffness = 0", "stiffness: should be greater than 0, got 0"),
    "spring without rotor": (ELBOW + "stiffness = 1e4", 'joint "elbow".stiffness: needs armature above 0 too'),
    "half a spring": (ELBOW + "link_coulomb = 1", 'joint "elbow".link_coulomb: is of a joint with a spring'),
    "zero gear": (ELBOW + "[transmission]\ngear_ratio = [0.0]", "gear_ratio: must not be zero"),
    "gear twice": (ELBOW + "[transmission]\ngear_ratio = [1]\nmatrix = [[1]]", "gear_ratio and matrix are both given"),
    "matrix rows": (ELBOW + "[transmission]\nmatrix = [[1], [2]]", "matrix: has 2 rows, the arm has 1 joints"),
    "matrix diagonal": (ELBOW + "[[joint]]\nname='b'\n[transmission]\nmatrix = [[0, 1], [1, 0]]",
                        "diagonal holds the gear ratios"),
    "friction": (ELBOW + "[model]\nfriction = 'stribek'",
                 "model.friction: should be 'none', 'coulomb_viscous', 'coulomb_viscous_offset', 'stribeck'"),
    "urdf in mdh": ("urdf = 'x.urdf'\n" + ELBOW, 'urdf: has no meaning with kinematics = "mdh"'),
    "syntax": ("a = = 1", r"x.toml: not valid TOML: .*line 4"),
    "depth": ("a = " + "[" * 100_000, "not valid TOML: nested too deeply"),
}  # fmt: skip


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
