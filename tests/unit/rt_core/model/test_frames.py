"""Link parameters from one description to another, against Pinocchio's torque; DH tables against textbook matrices."""

import math
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from rt_core.model.dh import DhChain, DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.frames import FramesError, inertial_in_frames_of, link_poses
from rt_core.model.inertia import transform_inertial
from rt_core.model.robot import Joint, RobotModel
from tests.lab.arms.simulated import random_arm, twin


def redescribed(model: RobotModel, seed: int) -> RobotModel:
    """The same arm with other link frames: shifted along each axis and turned about it."""
    rng = np.random.default_rng(seed)
    turned, before = [], np.eye(4)
    inertial = np.zeros((model.n, 10))
    for i, joint in enumerate(model.joints):
        frame = np.eye(4)  # new link frame in the old one: anything that keeps the joint's axis where it is
        Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        Q[:, 0] *= np.linalg.det(Q)
        frame[:3, :3] = Q
        along = joint.axis * rng.normal()
        frame[:3, 3] = along if joint.kind == "revolute" else rng.normal(size=3)
        old = np.eye(4)
        old[:3, :3], old[:3, 3] = joint.rotation, joint.translation
        new = np.linalg.inv(before) @ old @ frame
        turned.append(replace(joint, rotation=new[:3, :3], translation=new[:3, 3], axis=Q.T @ joint.axis))
        back = np.linalg.inv(frame)
        inertial[i] = transform_inertial(model.inertial[i], back[:3, :3], back[:3, 3])
        before = frame
    return replace(model, joints=tuple(turned), inertial=inertial)


@pytest.mark.parametrize("seed", range(2))
def test_link_poses_are_pinocchios(seed: int) -> None:
    model = random_arm(5, seed)
    other = twin(model)
    data = other.createData()
    q = np.random.default_rng(seed).normal(size=5)
    pin.forwardKinematics(other, data, q)
    np.testing.assert_allclose(link_poses(model, q), [T.homogeneous for T in data.oMi[1:]], atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_parameters_of_another_description_give_the_same_torque(seed: int) -> None:
    model = random_arm(5, seed)
    other = redescribed(model, seed)
    states = np.random.default_rng(seed + 9).normal(size=(3, 20, 5))
    expected = inverse_dynamics(model.geometry, model.gravity, model.inertial, *states)
    np.testing.assert_allclose(inverse_dynamics(other.geometry, other.gravity, other.inertial, *states), expected)
    np.testing.assert_allclose(inertial_in_frames_of(model, other), model.inertial, atol=1e-9)


def test_another_base_frame_does_not_matter() -> None:
    model = random_arm(4, 2)
    Q, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    Q[:, 0] *= np.linalg.det(Q)
    first = model.joints[0]
    moved = replace(first, rotation=Q @ first.rotation, translation=Q @ first.translation + [0.1, 0.2, 0.3])
    elsewhere = replace(model, joints=(moved, *model.joints[1:]))
    np.testing.assert_allclose(inertial_in_frames_of(model, elsewhere), model.inertial, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_another_base_frame_and_convention(seed: int) -> None:
    """A shift of the base, as of an arm on a table, with link frames of another convention."""
    model = random_arm(4, seed)
    other = redescribed(model, seed)
    first = replace(other.joints[0], translation=other.joints[0].translation + np.array([-0.25, 0.4, 1.0]))
    found = inertial_in_frames_of(model, replace(other, joints=(first, *other.joints[1:])))
    np.testing.assert_allclose(found, model.inertial, atol=1e-9)


def test_what_is_not_the_same_arm_is_refused() -> None:
    model = random_arm(3, 1, prismatic=0.0)  # behind a slide, a shifted joint is a shifted base
    with pytest.raises(FramesError, match="has 4 joints"):
        inertial_in_frames_of(model, random_arm(4, 1))
    with pytest.raises(FramesError, match="no link parameters"):
        inertial_in_frames_of(model, replace(model, inertial=None))
    joint: Joint = replace(model.joints[1], translation=model.joints[1].translation + 0.01)
    bent = replace(model, joints=(model.joints[0], joint, model.joints[2]))
    with pytest.raises(FramesError, match=r"link [123] .*differ"):
        inertial_in_frames_of(model, bent)


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


@pytest.mark.parametrize("modified", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_frames_equal_the_textbook(seed: int, modified: bool) -> None:
    rng = np.random.default_rng(seed)
    kinds = ("revolute", "revolute", "prismatic")
    count = int(rng.integers(1, 10))
    rows = [DhRow(f"j{i}", *rng.uniform(-1, 1, 4).tolist(), kind=kinds[int(rng.integers(3))]) for i in range(count)]
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
