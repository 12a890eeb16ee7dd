"""Inverse kinematics of a chain by damped least squares, within the joints' limits.

The damping `lam = w |r|^2 + eps` decreases with the squared residual: steps are bounded near singularities and the
final convergence is quadratic (Sugihara, IEEE Transactions on Robotics 2011, 27(5), eq. 21).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rt_core.calibration._chain import difference, walk
from rt_core.calibration.error_model import ErrorModel
from rt_core.jit import jit
from rt_core.model.dh import DhRow
from rt_core.model.forward import solve_definite
from rt_core.model.robot import Joint
from rt_core.types import BoolArray, FloatArray

_ITERATIONS = 200
#: Damping at the target, and its factor on the squared residual.
_MIN_DAMPING = 1e-10
_DAMPING = 0.1
#: Longest step of a joint [rad or m].
_MAX = 0.5
_EXACT = 1e-12  # [m]


@jit
def joint_jacobian(frames: FloatArray, revolute: BoolArray, J: FloatArray) -> None:
    """Fill `J` (6, n): velocities of the measured frame for each joint, in the chain's base; `frames` as of `walk`."""
    n = revolute.shape[0]
    end = frames[n + 1]
    for k in range(n):
        F = frames[k + 1]
        z0, z1, z2 = F[2], F[5], F[8]
        if revolute[k]:
            d0, d1, d2 = end[9] - F[9], end[10] - F[10], end[11] - F[11]
            J[0, k], J[1, k], J[2, k] = z1 * d2 - z2 * d1, z2 * d0 - z0 * d2, z0 * d1 - z1 * d0
            J[3, k], J[4, k], J[5, k] = z0, z1, z2
        else:
            J[0, k], J[1, k], J[2, k] = z0, z1, z2
            J[3, k] = J[4, k] = J[5, k] = 0.0


class Chain(NamedTuple):
    """An arm, and the range of its joints."""

    placements: FloatArray  # (n + 1, 12)
    revolute: BoolArray  # (n,)
    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)


class Target(NamedTuple):
    """Where the measured frame is to be."""

    frame: FloatArray  # (12,)
    width: int  # coordinates: 3 of the position, or all 6
    length: float  # weight of the angles [m]
    tolerance: float  # [m]


@jit
def descend(chain: Chain, target: Target, q: FloatArray) -> float:
    """Move `q` (n,) to `target`; return the remaining distance."""
    placements, revolute, lower, upper = chain
    frame, width, length, tolerance = target
    n = q.shape[0]
    frames = np.empty((n + 2, 12))
    turn = np.empty(9)
    r = np.empty(width)
    J = np.empty((6, n))
    A = np.empty((n, n))
    g = np.empty(n)
    cosine, sine = np.empty(n), np.empty(n)
    norm = math.inf
    for step in range(_ITERATIONS + 1):
        for k in range(n):
            cosine[k], sine[k] = math.cos(q[k]), math.sin(q[k])
        walk(placements, revolute, q, cosine, sine, frames)
        difference(frames[n + 1], frame, width, turn, r)
        joint_jacobian(frames, revolute, J)
        square = 0.0
        for i in range(width):
            factor = 1.0 if i < 3 else length
            r[i] *= factor
            square += r[i] * r[i]
            for k in range(n):
                J[i, k] *= factor
        norm = math.sqrt(square)
        if norm < tolerance or step == _ITERATIONS:
            return norm
        for a in range(n):
            g[a] = 0.0
            for i in range(width):
                g[a] -= J[i, a] * r[i]
            for b in range(a + 1):
                total = 0.0
                for i in range(width):
                    total += J[i, a] * J[i, b]
                A[a, b] = total
            A[a, a] += _DAMPING * square + _MIN_DAMPING
        if not solve_definite(A, g):
            return norm
        largest = 0.0
        for a in range(n):
            largest = max(largest, abs(g[a]))
        shrink = min(1.0, _MAX / largest) if largest > 0.0 else 1.0
        for a in range(n):
            q[a] = min(max(q[a] + shrink * g[a], lower[a]), upper[a])
    return norm


def limits_of(model: ErrorModel) -> tuple[FloatArray, FloatArray]:
    """Return joint limits (n,) each; half a turn to either side, or a metre, if the description has none."""
    given: Sequence[DhRow | Joint] = model.geometry.rows or model.geometry.joints
    wide = [np.pi if joint.kind == "revolute" else 1.0 for joint in given]
    lower = [j.lower if np.isfinite(j.lower) else -w for j, w in zip(given, wide, strict=True)]
    upper = [j.upper if np.isfinite(j.upper) else w for j, w in zip(given, wide, strict=True)]
    return np.array(lower), np.array(upper)


def inverse_kinematics(
    model: ErrorModel, x: FloatArray, position: FloatArray, rotation: FloatArray | None, start: FloatArray, *,
    length: float = 0.2, tolerance: float = 1e-10,
) -> tuple[FloatArray, float]:  # fmt: skip
    """Return joint positions (n,) near `start`, within the limits, and the remaining error [m] at a target.

    The target is a `position` (3,) [m] and a `rotation` (3, 3), None for any, of the arm with errors `x` (P,). Rotation
    angles are weighted by `length` [m].  A target out of reach has an error far above `tolerance`.
    """
    frame = np.append(np.eye(3).ravel() if rotation is None else np.ravel(rotation), position)
    lower, upper = limits_of(model)
    q = np.clip(np.array(start, dtype=np.float64), lower, upper)
    placements, _ = model.assembled(x)
    width = 3 if rotation is None else 6
    left = descend(Chain(placements, model.revolute, lower, upper), Target(frame, width, length, tolerance), q)
    return q, float(left)


def postures_at(model: ErrorModel, x: FloatArray, q: FloatArray, points: FloatArray) -> FloatArray:
    """Return postures (N, n) near `q` (N, n) with the measured frame at `points` (N, 3) [m], without joint limits."""
    placements, _ = model.assembled(x)
    wide = np.full(q.shape[1], np.inf)
    chain = Chain(placements, model.revolute, -wide, wide)
    found = np.array(q, dtype=np.float64)
    for posture, point in zip(found, points, strict=True):
        descend(chain, Target(np.append(np.eye(3).ravel(), point), 3, 1.0, _EXACT), posture)
    return found


def dexterity(model: ErrorModel, x: FloatArray, q: FloatArray, length: float) -> FloatArray:
    """Return the reciprocal condition number (N,) of the joint Jacobian at postures `q` (N, n), 0 at a singularity.

    Positions are divided by `length` [m] (Salisbury and Craig 1982).
    """
    placements, _ = model.assembled(x)
    frames = np.empty((model.revolute.size + 2, 12))
    J = np.empty((6, model.revolute.size))
    found = np.empty(len(q))
    for i, posture in enumerate(np.asarray(q, dtype=np.float64)):
        walk(placements, model.revolute, posture, np.cos(posture), np.sin(posture), frames)
        joint_jacobian(frames, model.revolute, J)
        s = np.linalg.svd(np.vstack((J[:3] / length, J[3:])), compute_uv=False)
        found[i] = s[-1] / s[0] if s[0] > 0.0 else 0.0
    return found
