"""DH tables against products of the textbook matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rt_core.model.dh import DhChain, DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.robot import JointKind


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
@pytest.mark.parametrize("seed", range(6))
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
