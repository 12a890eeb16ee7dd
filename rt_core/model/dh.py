"""Serial chains from Denavit-Hartenberg tables, in both conventions.

Modified (Craig) DH: row `i` holds `a_{i-1}, alpha_{i-1}, d_i, theta_i` and
`T_{i-1,i} = Rx(alpha) Tx(a) Rz(theta + q) Tz(d)`.  Joint `i` moves about or along `z_i`, so Craig's frame `i` *is* the
internal link frame.

Standard (classic) DH: row `i` holds `theta_i, d_i, a_i, alpha_i` and
`T_{i-1,i} = Rz(theta + q) Tz(d) Tx(a) Rx(alpha)`.  Joint `i` moves about or along `z_{i-1}`, at the near end of the
link, while DH frame `i` sits at its far end.  The internal link frame `i` is DH frame `i-1` turned or shifted by `q`
alone; `frames[i]` places DH frame `i` in it, and `rt_core.model.inertia.transform_inertial(phi, *frames[i])` converts
parameters about the DH frame.

In both, a prismatic joint has the constant `theta` and moves by `d + q`.  Lengths in m, angles in rad.  Sines and
cosines within 1e-15 of 0 are set to 0, so that right angles give exact placements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.model.robot import Joint, JointKind
from rt_core.types import FloatArray


@dataclass(frozen=True)
class DhRow:
    """Row of a DH table with the joint's name and limits (unknown limits are infinite)."""

    name: str
    a: float = 0.0  # [m]
    alpha: float = 0.0  # [rad]
    d: float = 0.0  # [m]; added to q of a prismatic joint
    theta: float = 0.0  # [rad]; added to q of a revolute joint
    kind: JointKind = "revolute"
    lower: float = -math.inf
    upper: float = math.inf
    velocity: float = math.inf
    effort: float = math.inf


@dataclass(frozen=True)
class DhChain:
    """Joints in the internal form, and the placement of the convention's own frames."""

    joints: tuple[Joint, ...]
    frames: tuple[tuple[FloatArray, FloatArray], ...]  # (3, 3), (3,): DH frame i in link frame i

    @property
    def tip(self) -> tuple[FloatArray, FloatArray]:
        """Rotation (3, 3) and translation (3,) [m] of the last DH frame in the last link frame."""
        return self.frames[-1]


def _cos_sin(angle: float) -> tuple[float, float]:
    c, s = math.cos(angle), math.sin(angle)
    return (0.0 if abs(c) < 1e-15 else c), (0.0 if abs(s) < 1e-15 else s)


def rot_x(angle: float) -> FloatArray:
    """Return the rotation (3, 3) about x by an angle [rad], exact at multiples of a right angle."""
    c, s = _cos_sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def rot_z(angle: float) -> FloatArray:
    """Return the rotation (3, 3) about z by an angle [rad], exact at multiples of a right angle."""
    c, s = _cos_sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _joint(row: DhRow, rotation: FloatArray, translation: FloatArray) -> Joint:
    axis = np.array([0.0, 0.0, 1.0])
    return Joint(row.name, row.kind, rotation, translation, axis, row.lower, row.upper, row.velocity, row.effort)


def chain_from_mdh(rows: Sequence[DhRow]) -> DhChain:
    """Return the joints of a modified-DH table; the convention's frames are the link frames."""
    joints = []
    for row in rows:
        turn = rot_x(row.alpha)
        translation = np.array([row.a, 0.0, 0.0]) + turn @ np.array([0.0, 0.0, row.d])
        joints.append(_joint(row, turn @ rot_z(row.theta), translation))
    return DhChain(tuple(joints), tuple((np.eye(3), np.zeros(3)) for _ in rows))


def chain_from_dh(rows: Sequence[DhRow]) -> DhChain:
    """Return the joints of a standard-DH table; `tip` is the last DH frame."""
    joints, frames = [], []
    rotation, translation = np.eye(3), np.zeros(3)
    for row in rows:
        joints.append(_joint(row, rotation, translation))
        turn = rot_z(row.theta)
        rotation = turn @ rot_x(row.alpha)
        translation = turn @ np.array([row.a, 0.0, row.d])
        frames.append((rotation, translation))
    return DhChain(tuple(joints), tuple(frames))
