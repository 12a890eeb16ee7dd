"""Poses of the link frames, and link parameters of one description in the frames of another."""

import numpy as np

from rt_core.model.inertia import transform_inertial
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

_POSTURES = 5
_TOLERANCE = 1e-3  # [m], and of a rotation matrix: descriptions are rounded to about this


class FramesError(ValueError):
    """Two descriptions of different chains; the message names the first difference."""


def link_poses(model: RobotModel, q: FloatArray) -> FloatArray:
    """Return the poses (..., n, 4, 4) of the link frames in the base frame at joint positions `q` (..., n)."""
    poses = np.zeros((*q.shape, 4, 4))
    pose = np.eye(4)
    for i, g in enumerate(model.geometry):
        at = q[..., i, None]
        step = np.zeros((*q.shape[:-1], 4, 4))
        step[..., :3, :3] = (g[0:9] + np.cos(at) * g[9:18] + np.sin(at) * g[18:27]).reshape(*q.shape[:-1], 3, 3)
        step[..., :3, 3] = g[27:30] + at * g[30:33]
        step[..., 3, 3] = 1.0
        pose = pose @ step
        poses[..., i, :, :] = pose
    return poses


def chain_points(model: RobotModel, q: FloatArray) -> FloatArray:
    """Return the origins (..., n + 1, 3) [m] of the links and of the flange in the base frame at `q` (..., n)."""
    poses = link_poses(model, q)
    flange = poses[..., -1, :3, 3] + poses[..., -1, :3, :3] @ model.tip_translation
    return np.concatenate((poses[..., :3, 3], flange[..., None, :]), axis=-2)


def _shift(model: RobotModel, own: FloatArray, others: FloatArray) -> FloatArray:
    """Return the translation (4, 4) that brings the joint axes of `others` (n, 4, 4) closest to those of `own`.

    Only the shift across an axis shows; one that no axis shows, such as along the axes of a planar arm, is zero.
    """
    rows, right = [np.zeros((3, 3))], [np.zeros(3)]
    for joint, pose, other in zip(model.joints, own, others, strict=True):
        if joint.kind == "revolute":
            axis = pose[:3, :3] @ joint.axis
            across = np.eye(3) - np.outer(axis, axis)
            rows.append(across)
            right.append(across @ (pose[:3, 3] - other[:3, 3]))
    out = np.eye(4)
    out[:3, 3] = np.linalg.lstsq(np.vstack(rows), np.concatenate(right), rcond=_TOLERANCE)[0]
    return out


def inertial_in_frames_of(model: RobotModel, other: RobotModel) -> FloatArray:
    """Return the link parameters (n, 10) of `other` about the link frames of `model`.

    The conventions may differ, such as DH and URDF, for the same arm with the same zero positions: then each link's two
    frames are fixed to one another.  The base frames may differ, too, by a fixed shift, or by any pose if the first
    link frames are the same; base and link names do not count.  Raises
    `FramesError` if `other` has no link parameters or other joints, or its links move differently.
    """
    if other.inertial is None:
        raise FramesError(f"{other.name} has no link parameters to serve as a prior")
    if other.n != model.n:
        raise FramesError(f"the prior {other.name} has {other.n} joints, the robot {model.name} has {model.n}")
    rng = np.random.default_rng(0)
    postures = np.vstack((np.zeros(model.n), rng.uniform(-1.0, 1.0, (_POSTURES, model.n))))
    own, others = (np.array([link_poses(m, q) for q in postures]) for m in (model, other))
    bases = (np.eye(4), own[0, 0] @ np.linalg.inv(others[0, 0]), _shift(model, own[0], others[0]))
    found = [np.linalg.inv(own) @ base @ others for base in bases]
    spreads = [np.abs(between - between[0]).max(axis=(0, 2, 3)) for between in found]
    best = int(np.argmin([spread.max() for spread in spreads]))
    between, spread = found[best], spreads[best]
    if spread.max() > _TOLERANCE:
        i = int(np.argmax(spread > _TOLERANCE))
        raise FramesError(
            f"link {i + 1} ({model.joints[i].name}) of the prior {other.name} moves differently from that of the robot "
            f"{model.name} (by {spread[i]:.2g}): their base frames, joint axes or zero positions differ"
        )
    return np.array(
        [transform_inertial(phi, T[:3, :3], T[:3, 3]) for phi, T in zip(other.inertial, between[0], strict=True)]
    )
