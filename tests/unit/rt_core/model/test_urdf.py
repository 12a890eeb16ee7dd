"""URDF chains against Pinocchio, refusals, and the way back to a URDF."""

import re
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rt_core.model.inertia import six
from rt_core.model.robot import Joint, JointDynamics, RobotModel
from rt_core.model.urdf import UrdfChain, UrdfError, chain_from_urdf, reduced_urdf, rotation_from_rpy
from rt_core.model.urdf_writer import rpy_from_rotation, urdf_from_model

LIMIT = '<limit lower="-1" upper="2" velocity="3" effort="40"/>'


def link(name: str, inertial: str = "") -> str:
    return f'<link name="{name}">{inertial}</link>'


def joint(name: str, parent: str, child: str, kind: str = "revolute", body: str = LIMIT) -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{body}</joint>'


def robot(*elements: str) -> str:
    return f'<robot name="r">{"".join(elements)}</robot>'


def inertial(rng: np.random.Generator) -> str:
    xyz = " ".join(map(repr, rng.uniform(-0.3, 0.3, 3).tolist()))
    rpy = " ".join(map(repr, rng.uniform(-3, 3, 3).tolist()))
    root = rng.uniform(-1, 1, (3, 3))
    second = root @ root.T * 0.05
    moments = six(np.trace(second) * np.eye(3) - second)
    entries = " ".join(
        f'{key}="{value!r}"'
        for key, value in zip(("ixx", "ixy", "iyy", "ixz", "iyz", "izz"), moments.tolist(), strict=True)
    )
    mass = float(rng.uniform(0.1, 5))
    return f'<inertial><origin xyz="{xyz}" rpy="{rpy}"/><mass value="{mass!r}"/><inertia {entries}/></inertial>'


def random_urdf(seed: int) -> str:
    """A chain with fixed links before, between, beside and after its 1 to 6 moving joints."""
    rng = np.random.default_rng(seed)
    elements = [link("base", inertial(rng))]
    parent = "base"

    def origin() -> str:
        xyz = " ".join(map(repr, rng.uniform(-0.5, 0.5, 3).tolist()))
        rpy = " ".join(map(repr, rng.uniform(-3, 3, 3).tolist()))
        return f'<origin xyz="{xyz}" rpy="{rpy}"/>'

    def fixed(name: str, on: str) -> str:
        elements.append(link(name, inertial(rng) if rng.random() < 0.7 else ""))
        elements.append(joint(f"j_{name}", on, name, "fixed", origin()))
        return name

    for i in range(int(rng.integers(1, 7))):
        if rng.random() < 0.5:
            parent = fixed(f"between_{i}", parent)
        if rng.random() < 0.5:
            fixed(f"beside_{i}", parent)
        axis = " ".join(map(repr, rng.uniform(-1, 1, 3).tolist()))
        kind = str(rng.choice(["revolute", "prismatic"]))
        child = f"link_{i}"
        elements.append(joint(f"q{i}", parent, child, kind, origin() + f'<axis xyz="{axis}"/>' + LIMIT))
        elements.append(link(child, inertial(rng) if rng.random() < 0.8 else ""))
        parent = child
    if rng.random() < 0.5:
        parent = fixed("tool", parent)
        fixed("finger", parent)
    rng.shuffle(elements)
    return robot(*elements)


def motion(placed: Joint, q: float) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and translation of the link in its parent: the definition in `rt_core.model.robot`, spelt out."""
    if placed.kind == "prismatic":
        return placed.rotation, placed.translation + placed.rotation @ (placed.axis * q)
    return placed.rotation @ pin.exp3(placed.axis * q), placed.translation


def assert_like_pinocchio(chain: UrdfChain, text: str) -> None:
    model = pin.buildModelFromXML(text)
    assert list(model.names)[1:] == [j.name for j in chain.joints]
    for i, placed in enumerate(chain.joints):
        oracle = model.jointPlacements[i + 1]
        np.testing.assert_allclose(placed.rotation, oracle.rotation, atol=1e-12)
        np.testing.assert_allclose(placed.translation, oracle.translation, atol=1e-12)
        dynamic = model.inertias[i + 1].toDynamicParameters()
        np.testing.assert_allclose(chain.inertial[i], dynamic, atol=1e-11 * max(1.0, float(np.abs(dynamic).max())))
    if model.nq == len(chain.joints):
        data = model.createData()
        q = np.random.default_rng(0).uniform(-2, 2, model.nq)
        pin.framesForwardKinematics(model, data, q)
        rotation, translation = np.eye(3), np.zeros(3)
        for placed, value in zip(chain.joints, q, strict=True):
            R, p = motion(placed, value)
            rotation, translation = rotation @ R, rotation @ p + translation
        tip = data.oMf[model.getFrameId(chain.tip_link)]
        np.testing.assert_allclose(rotation @ chain.tip_rotation, tip.rotation, atol=1e-12)
        np.testing.assert_allclose(rotation @ chain.tip_translation + translation, tip.translation, atol=1e-12)


@pytest.mark.parametrize("seed", range(15))
def test_random_chain_equals_pinocchio(seed: int) -> None:
    text = random_urdf(seed)
    chain = chain_from_urdf(text)
    assert_like_pinocchio(chain, text)
    assert chain.unphysical == ()
    np.testing.assert_array_equal(chain_from_urdf(reduced_urdf(text)).inertial, chain.inertial)


@pytest.mark.parametrize(
    ("name", "n", "tip"),
    [("staubli_tx40/tx40", 6, "tool0"), ("franka_panda/panda_arm", 7, "panda_link8"),
     ("kuka_lwr4/kuka_lwr4", 7, "lwr_7_link")],
)  # fmt: skip
def test_published_urdf_equals_pinocchio(data_dir: Path, name: str, n: int, tip: str) -> None:
    text = (data_dir / f"{name}.urdf").read_text()
    chain = chain_from_urdf(text)
    assert len(chain.joints) == n
    assert chain.tip_link == tip
    assert_like_pinocchio(chain, re.sub(r"\b1\.57079632679\b", repr(np.pi / 2), text))  # right angles as meant


def test_details() -> None:
    body = (
        '<origin xyz="1 2 3"/><origin xyz="9 9 9"/><axis xyz="0 0 -2"/>'
        '<limit lower="-1" upper="2" velocity="3" effort="0"/><dynamics damping="0.5" friction="0.25"/>'
    )
    text = robot(
        link("a"), link("b"), link("c"), joint("j1", "a", "b", "revolute", body),
        joint("j2", "b", "c", "continuous", '<limit velocity="0" effort="7"/>'),
    )  # fmt: skip
    chain = chain_from_urdf(text)
    first, second = chain.joints
    np.testing.assert_array_equal(first.translation, [1, 2, 3])  # the first of two origins
    np.testing.assert_array_equal(first.axis, [0, 0, -1])
    np.testing.assert_array_equal(second.axis, [1, 0, 0])  # URDF's default
    assert (first.lower, first.upper, first.velocity, first.effort) == (-1, 2, 3, np.inf)
    assert (second.lower, second.upper, second.velocity, second.effort) == (-np.inf, np.inf, np.inf, 7)
    np.testing.assert_array_equal(chain.dynamics.viscous, [0.5, 0])
    np.testing.assert_array_equal(chain.dynamics.coulomb, [0.25, 0])
    assert not chain.stated.any()
    assert chain.links == ("b", "c")


GRIPPER = robot(
    link("base"),
    link("hand", '<inertial><mass value="1"/><inertia ixx="1" ixy="0" iyy="1" ixz="0" iyz="0" izz="1"/></inertial>'),
    link("left", '<inertial><mass value="2"/><inertia ixx="1" ixy="0" iyy="1" ixz="0" iyz="0" izz="1"/></inertial>'),
    link("right"),
    joint("arm", "base", "hand"),
    joint("finger_l", "hand", "left", "prismatic", '<origin xyz="0 1 0"/>' + LIMIT),
    joint("finger_r", "hand", "right", "prismatic", '<mimic joint="finger_l"/>' + LIMIT),
)


def test_tip_link_freezes_what_is_off_the_chain() -> None:
    chain = chain_from_urdf(GRIPPER, tip_link="hand")
    assert [j.name for j in chain.joints] == ["arm"]
    # 2 kg at (0, 1, 0) on top of 1 kg at the origin
    np.testing.assert_allclose(chain.inertial[0], [3, 0, 2, 0, 2 + 2, 0, 2, 0, 0, 2 + 2])
    model = pin.buildModelFromXML(GRIPPER)
    reduced = pin.buildReducedModel(model, [2, 3], np.zeros(model.nq))
    np.testing.assert_allclose(chain.inertial[0], reduced.inertias[1].toDynamicParameters(), atol=1e-12)


def test_unphysical_inertial_is_named_not_refused() -> None:
    bad = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" iyy="1" ixz="0" iyz="0" izz="3"/></inertial>'
    point = '<inertial><mass value="1"/><inertia ixx="0" ixy="0" iyy="0" ixz="0" iyz="0" izz="0"/></inertial>'
    negative = bad.replace('value="1"', 'value="-1"')
    text = robot(link("a"), link("b", bad), link("c", point), link("d", negative))
    text = text.replace("</robot>", joint("1", "a", "b") + joint("2", "b", "c") + joint("3", "c", "d") + "</robot>")
    assert chain_from_urdf(text).unphysical == ("b", "d")


A, B, C = link("a"), link("b"), link("c")
J1 = joint("j1", "a", "b")
REFUSED = {
    "malformed": ("<robot><link></robot>", "malformed XML.*line 1"),
    "other root": ("<sdf/>", "<sdf>, expected <robot>"),
    "doctype": ('<!DOCTYPE x [<!ENTITY a "b">]>' + robot(A), "DOCTYPE"),
    "xacro": ('<robot xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:macro name="x"/></robot>', "xacro"),
    "no link": (robot(), "no <link>"),
    "unnamed link": (robot("<link/>"), "<link> has no name"),
    "duplicate link": (robot(A, A), 'two links are named "a"'),
    "missing joint": (robot(A, B, C, J1), '"a", "c" are attached by no joint'),
    "missing child": (robot(A, B, joint("j1", "a", "x")), 'joint "j1": child link "x" does not exist'),
    "no child": (robot(A, '<joint name="j1" type="fixed"><parent link="a"/></joint>'), "<child link> is missing"),
    "two parents": (robot(A, B, C, J1, joint("j2", "c", "b")), '"b" is attached by two joints, "j1" and "j2"'),
    "cycle": (robot(A, B, J1, joint("j2", "b", "a")), "cycle"),
    "branch": (robot(A, B, C, J1, joint("j2", "a", "c")), 'branches.*"b", "c".*set tip_link'),
    "gripper": (GRIPPER, 'branches.*"left", "right".*set tip_link'),
    "zero axis": (robot(A, B, joint("j1", "a", "b", body='<axis xyz="0 0 0"/>')), 'joint "j1": <axis> is zero'),
    "nan": (robot(A, B, joint("j1", "a", "b", body='<origin xyz="0 nan 0"/>')), 'joint "j1" <origin>.*finite'),
    "two numbers": (robot(A, B, joint("j1", "a", "b", body='<axis xyz="0 0"/>')), "2 numbers, expected 3"),
    "floating": (robot(A, B, joint("j1", "a", "b", "floating")), 'joint "j1": type="floating" is not supported'),
    "mimic": (robot(A, B, C, J1, joint("j2", "b", "c", body='<mimic joint="j1"/>')), 'joint "j2": <mimic>'),
    "limits": (robot(A, B, joint("j1", "a", "b", body='<limit lower="2" upper="1"/>')), "lower=2 must be below"),
    "negative effort": (robot(A, B, joint("j1", "a", "b", body='<limit effort="-1"/>')), "must not be negative"),
    "no mass": (robot(A, link("b", "<inertial/>"), J1), 'link "b" <inertial>: <mass value> is missing'),
    "no inertia": (robot(A, link("b", '<inertial><mass value="1"/></inertial>'), J1), "<inertia ixx> is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_element_named(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(UrdfError, match=message):
        chain_from_urdf(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tip_link": "x"}, 'tip_link "x" does not exist; links are "a", "b"'),
     ({"base_link": "b", "tip_link": "a"}, 'tip_link "a" does not hang on base_link "b"'),
     ({"base_link": "a", "tip_link": "a"}, "no joint moves")],
)  # fmt: skip
def test_ends_that_do_not_fit(options: dict[str, str], message: str) -> None:
    with pytest.raises(UrdfError, match=message):
        chain_from_urdf(robot(A, B, J1), **options)


def test_a_thousand_links_do_not_exhaust_the_stack() -> None:
    links = [link(str(i)) for i in range(2001)]
    joints = [joint(f"j{i}", str(i), str(i + 1), "fixed" if i < 1999 else "revolute") for i in range(2000)]
    assert len(chain_from_urdf(robot(*links, *joints)).joints) == 1


@given(st.text(max_size=200))
def test_any_text_is_refused_clearly(text: str) -> None:
    with pytest.raises(UrdfError):
        chain_from_urdf(text)


# --- writing ---------------------------------------------------------------------------------------------------------


def random_model(seed: int) -> tuple[RobotModel, np.ndarray, JointDynamics]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    joints = []
    for i in range(n):
        rpy = rng.uniform(-3, 3, 3)
        if rng.random() < 0.4:
            rpy = np.radians(rng.choice([-90.0, 0.0, 90.0, 180.0], 3))
        axis = rng.normal(size=3)
        joints.append(
            Joint(("tip", "base", "tip_joint", "d", "e", "f", "g")[i],
                  "prismatic" if rng.random() < 0.3 else "revolute", rotation_from_rpy(rpy), rng.uniform(-1, 1, 3),
                  axis / np.linalg.norm(axis), *((-1.5, 2.5, 3.0, 40.0) if rng.random() < 0.5 else ()))
        )  # fmt: skip
    inertials = np.array([chain_from_urdf(random_urdf(100 + seed * 10 + i)).inertial[0] for i in range(n)])
    friction = JointDynamics(np.zeros(n), rng.uniform(0, 2, n), rng.uniform(0, 2, n), np.zeros(n))
    tip = rotation_from_rpy(rng.uniform(-3, 3, 3)), rng.uniform(-1, 1, 3)
    model = RobotModel("arm", tuple(joints), tip_rotation=tip[0], tip_translation=tip[1])
    return model, inertials, friction


@pytest.mark.parametrize("seed", range(6))
def test_written_urdf_reads_back(seed: int) -> None:
    model, inertials, friction = random_model(seed)
    text = urdf_from_model(model, inertials, friction, comment="made -- here")
    chain = chain_from_urdf(text)
    for wrote, read in zip(model.joints, chain.joints, strict=True):
        assert (wrote.name, wrote.kind, wrote.lower, wrote.upper) == (read.name, read.kind, read.lower, read.upper)
        assert (wrote.velocity, wrote.effort) == (read.velocity, read.effort)
        np.testing.assert_allclose(read.rotation, wrote.rotation, atol=1e-14)
        np.testing.assert_array_equal(read.translation, wrote.translation)
        np.testing.assert_allclose(read.axis, wrote.axis, atol=1e-15)
    np.testing.assert_allclose(chain.inertial, inertials, atol=1e-12)
    np.testing.assert_allclose(chain.tip_rotation, model.tip_rotation, atol=1e-14)
    np.testing.assert_array_equal(chain.tip_translation, model.tip_translation)
    np.testing.assert_array_equal(chain.dynamics.viscous, friction.viscous)
    np.testing.assert_array_equal(chain.dynamics.coulomb, friction.coulomb)
    assert_like_pinocchio(chain, text.partition("\n")[2])


def test_massless_links_are_written_as_far_as_urdf_can() -> None:
    model = RobotModel("arm", (Joint("j", "revolute", np.eye(3), np.zeros(3), np.array([0.0, 0.0, 1.0])),))
    only_inertia = np.array([[0, 0, 0, 0, 1, 0.1, 2, 0, 0, 3.0]])
    np.testing.assert_array_equal(chain_from_urdf(urdf_from_model(model, only_inertia)).inertial, only_inertia)
    assert not chain_from_urdf(urdf_from_model(model, np.zeros((1, 10)))).stated.any()
    with pytest.raises(UrdfError, match=r'"j_link".*first moments'):
        urdf_from_model(model, np.array([[0, 0.2, 0, 0, 1, 0, 1, 0, 0, 1.0]]))


@given(st.tuples(*[st.floats(-10, 10)] * 3))
def test_rpy_reproduces_the_rotation(rpy: tuple[float, float, float]) -> None:
    R = rotation_from_rpy(rpy)
    np.testing.assert_allclose(rotation_from_rpy(rpy_from_rotation(R)), R, atol=1e-11)
