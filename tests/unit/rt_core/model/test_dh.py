"""DH tables against products of the textbook matrices, and one arm in three descriptions."""

from __future__ import annotations

import math

import numpy as np
import pinocchio as pin
import pytest

from rt_core.model.dh import DhChain, DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.inertia import transform_inertial
from rt_core.model.robot import JointKind, RobotModel
from rt_core.model.urdf import chain_from_urdf
from rt_core.model.urdf_writer import urdf_from_model


def turn_x(angle: float) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[1, 0, 0, 0], [0, c, -s, 0], [0, s, c, 0], [0, 0, 0, 1]])


def turn_z(angle: float) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def shift(x: float, y: float, z: float) -> np.ndarray:
    T = np.eye(4)
    T[:3, 3] = x, y, z
    return T


def textbook(rows: list[DhRow], q: np.ndarray, modified: bool) -> list[np.ndarray]:
    """Poses of the convention's own frames in the base."""
    poses, T = [], np.eye(4)
    for row, value in zip(rows, q, strict=True):
        theta = row.theta + (value if row.kind == "revolute" else 0.0)
        d = row.d + (value if row.kind == "prismatic" else 0.0)
        if modified:
            T = T @ turn_x(row.alpha) @ shift(row.a, 0, 0) @ turn_z(theta) @ shift(0, 0, d)
        else:
            T = T @ turn_z(theta) @ shift(0, 0, d) @ shift(row.a, 0, 0) @ turn_x(row.alpha)
        poses.append(T)
    return poses


def ours(chain: DhChain, q: np.ndarray) -> list[np.ndarray]:
    poses, T = [], np.eye(4)
    for joint, frame, value in zip(chain.joints, chain.frames, q, strict=True):
        place = np.eye(4)
        place[:3, :3], place[:3, 3] = joint.rotation, joint.translation
        move = turn_z(value) if joint.kind == "revolute" else shift(0, 0, value)
        T = T @ place @ move
        own = np.eye(4)
        own[:3, :3], own[:3, 3] = frame
        poses.append(T @ own)
    return poses


def random_rows(rng: np.random.Generator) -> list[DhRow]:
    kinds: list[JointKind] = ["revolute", "revolute", "prismatic"]
    return [
        DhRow(f"j{i}", *rng.uniform(-1, 1, 4).tolist(), kind=kinds[int(rng.integers(3))])
        for i in range(int(rng.integers(1, 10)))
    ]


@pytest.mark.parametrize("modified", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_frames_equal_the_textbook(seed: int, modified: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    chain = chain_from_mdh(rows) if modified else chain_from_dh(rows)
    q = rng.uniform(-3, 3, len(rows))
    np.testing.assert_allclose(ours(chain, q), textbook(rows, q, modified), atol=1e-13)
    np.testing.assert_array_equal([j.axis for j in chain.joints], np.tile([0.0, 0.0, 1.0], (len(rows), 1)))
    np.testing.assert_array_equal(chain.tip[1], chain.frames[-1][1])


def test_right_angles_are_exact() -> None:
    rows = [DhRow("a", alpha=math.radians(-90), theta=math.radians(180), d=0.4), DhRow("b", alpha=1.5707963267948966)]
    for chain in (chain_from_mdh(rows), chain_from_dh(rows)):
        for joint in chain.joints:
            assert set(np.abs(joint.rotation).ravel()) <= {0.0, 1.0}
    np.testing.assert_array_equal(chain_from_mdh(rows).joints[0].translation, [0, 0.4, 0])


def torque(model: RobotModel, inertial: np.ndarray, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    """Pinocchio's inverse dynamics of the chain, built joint by joint."""
    arm = pin.Model()
    parent = 0
    for joint, phi in zip(model.joints, inertial, strict=True):
        kind = pin.JointModelRevoluteUnaligned if joint.kind == "revolute" else pin.JointModelPrismaticUnaligned
        parent = arm.addJoint(parent, kind(joint.axis), pin.SE3(joint.rotation, joint.translation), joint.name)
        arm.appendBodyToJoint(parent, pin.Inertia.FromDynamicParameters(phi), pin.SE3.Identity())
    arm.gravity.linear = model.gravity
    return np.asarray(pin.rnea(arm, arm.createData(), q, dq, ddq))


def test_one_arm_in_standard_dh_modified_dh_and_urdf() -> None:
    """The same three-joint arm with a slide, its links given about each convention's own frame."""
    half = math.pi / 2
    standard = [
        DhRow("turn", a=0.1, alpha=half, d=0.5),
        DhRow("swing", a=0.7, alpha=-half, d=0.05, theta=0.3),
        DhRow("slide", a=0.0, alpha=0.0, d=0.2, kind="prismatic"),
    ]
    # Standard row i holds the a and alpha that modified row i + 1 holds.
    modified = [
        DhRow("turn", d=0.5),
        DhRow("swing", a=0.1, alpha=half, d=0.05, theta=0.3),
        DhRow("slide", a=0.7, alpha=-half, d=0.2, kind="prismatic"),
    ]
    rng = np.random.default_rng(3)
    dh, mdh = chain_from_dh(standard), chain_from_mdh(modified)
    bodies = []  # about the standard frames
    for _ in standard:
        points = rng.uniform(-0.3, 0.3, (5, 3))
        second = points.T @ points
        moments = np.trace(second) * np.eye(3) - second
        bodies.append(
            np.array([5, *points.sum(0), *(moments[i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)))])
        )
    from_dh = np.array([transform_inertial(phi, *frame) for phi, frame in zip(bodies, dh.frames, strict=True)])
    # Modified frame i is standard frame i moved back by its a and alpha.
    from_mdh = []
    for row, phi in zip(standard, bodies, strict=True):
        back = shift(row.a, 0, 0) @ turn_x(row.alpha)
        from_mdh.append(transform_inertial(phi, back[:3, :3], back[:3, 3]))
    gravity = np.array([1.0, -2.0, -9.0])
    by_dh = RobotModel("dh", dh.joints, gravity, *dh.tip)
    by_mdh = RobotModel("mdh", mdh.joints, gravity, *mdh.tip)
    chain = chain_from_urdf(urdf_from_model(by_mdh, np.array(from_mdh)))
    by_urdf = RobotModel("urdf", chain.joints, gravity, chain.tip_rotation, chain.tip_translation)

    for _ in range(10):
        q, dq, ddq = rng.uniform(-2, 2, (3, 3))
        expected = torque(by_dh, from_dh, q, dq, ddq)
        np.testing.assert_allclose(torque(by_mdh, np.array(from_mdh), q, dq, ddq), expected, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(torque(by_urdf, chain.inertial, q, dq, ddq), expected, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(ours(dh, q)[-1], ours(mdh, q)[-1], atol=1e-14)


def test_planar_two_link_arm_has_its_textbook_torque() -> None:
    """Two rods in the x-y plane, gravity along -y: the closed form of every robotics book."""
    l1, l2, m1, m2 = 0.8, 0.5, 2.0, 1.5
    chain = chain_from_dh([DhRow("1", a=l1), DhRow("2", a=l2)])
    rods = []
    for length, mass, frame in ((l1, m1, chain.frames[0]), (l2, m2, chain.frames[1])):
        about_end = mass * length**2 / 3  # the DH frame is at the rod's far end, so its centre is at -length/2
        phi = np.array([mass, -mass * length / 2, 0, 0, 0, 0, about_end, 0, 0, about_end])
        rods.append(transform_inertial(phi, *frame))
    model = RobotModel("two", chain.joints, np.array([0.0, -9.81, 0.0]))
    q, dq, ddq = np.array([0.4, -0.7]), np.array([1.1, -0.3]), np.array([0.5, 2.0])
    c2, s2 = math.cos(q[1]), math.sin(q[1])
    i1, i2 = m1 * l1**2 / 12, m2 * l2**2 / 12
    m22 = i2 + m2 * l2**2 / 4
    m12 = m22 + m2 * l1 * l2 / 2 * c2
    m11 = i1 + m1 * l1**2 / 4 + m22 + m2 * (l1**2 + l1 * l2 * c2)
    h = m2 * l1 * l2 / 2 * s2
    g2 = m2 * 9.81 * l2 / 2 * math.cos(q[0] + q[1])
    g1 = (m1 / 2 + m2) * 9.81 * l1 * math.cos(q[0]) + g2
    expected = [
        m11 * ddq[0] + m12 * ddq[1] - h * (2 * dq[0] * dq[1] + dq[1] ** 2) + g1,
        m12 * ddq[0] + m22 * ddq[1] + h * dq[0] ** 2 + g2,
    ]
    np.testing.assert_allclose(torque(model, np.array(rods), q, dq, ddq), expected, rtol=1e-13)
