"""The ten inertial parameters of a link: construction, change of frame, physical consistency.

A vector `phi` of shape (10,) is in Pinocchio's order `m, mx, my, mz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz`: first moments
`m*c`, and the inertia *tensor* about the frame's origin, so that `Ixy = -integral(x*y dm)`.

The 4x4 pseudo-inertia `J = integral([p; 1] [p; 1]^T dm)` holds the same numbers and moves between frames by the
homogeneous matrix alone: `J_a = T_ab J_b T_ab^T`.  A body of positive density has a positive definite `J`
(Wensing, Kim, Slotine: Linear matrix inequalities for physically consistent inertial parameter identification, 2018).
"""

from typing import Literal

import numpy as np

from rt_core.types import FloatArray


def tensor(six: FloatArray) -> FloatArray:
    """Return the symmetric tensor (3, 3) of (6,) `Ixx, Ixy, Iyy, Ixz, Iyz, Izz`."""
    xx, xy, yy, xz, yz, zz = six
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=np.float64)


def six(inertia: FloatArray) -> FloatArray:
    """Return `Ixx, Ixy, Iyy, Ixz, Iyz, Izz` (6,) of a symmetric tensor (3, 3)."""
    return np.array([inertia[0, 0], inertia[0, 1], inertia[1, 1], inertia[0, 2], inertia[1, 2], inertia[2, 2]])


def shifted(mass: float, offset: FloatArray) -> FloatArray:
    """Return the inertia tensor (3, 3) [kg*m^2] of a point mass [kg] at `offset` [m] about the origin."""
    c = np.asarray(offset, dtype=np.float64)
    return np.asarray(mass * (c @ c * np.eye(3) - np.outer(c, c)))


def inertial_vector(
    mass: float, com: FloatArray, inertia: FloatArray, *, about: Literal["com", "origin"] = "com",
    rotation: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the parameters (10,) of a mass [kg], centre of mass `com` (3,) [m] and inertia tensor (3, 3) [kg*m^2].

    Parameters
    ----------
    about : {"com", "origin"}
        Reference point of `inertia`: the centre of mass, or the link frame's origin.
    rotation : (3, 3) array, optional
        Rotation from the axes of `inertia` to those of the link frame; identity by default.
    """
    com = np.asarray(com, dtype=np.float64)
    turned = inertia if rotation is None else rotation @ inertia @ rotation.T
    about_origin = turned + shifted(mass, com) if about == "com" else turned
    return np.concatenate(([mass], mass * com, six(about_origin)))


def mass_com_inertia(phi: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return mass [kg], centre of mass (3,) [m] and inertia tensor about it (3, 3) [kg*m^2] of (10,) parameters.

    Raises `ValueError` if the mass is zero and the first moments are not.
    """
    mass = float(phi[0])
    if mass == 0.0:
        if np.any(phi[1:4] != 0.0):
            raise ValueError("a link of zero mass has first moments: it has no centre of mass")
        return 0.0, np.zeros(3), tensor(phi[4:10])
    com = phi[1:4] / mass
    return mass, com, tensor(phi[4:10]) - shifted(mass, com)


def pseudo_inertia(phi: FloatArray) -> FloatArray:
    """Return the pseudo-inertia (4, 4) of (10,) parameters."""
    inertia = tensor(phi[4:10])
    J = np.empty((4, 4))
    J[:3, :3] = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    J[:3, 3] = J[3, :3] = phi[1:4]
    J[3, 3] = phi[0]
    return J


def from_pseudo_inertia(J: FloatArray) -> FloatArray:
    """Return the parameters (10,) of a (4, 4) pseudo-inertia."""
    sigma = J[:3, :3]
    return np.concatenate(([J[3, 3]], J[:3, 3], six(np.trace(sigma) * np.eye(3) - sigma)))


def transform_inertial(phi: FloatArray, rotation: FloatArray, translation: FloatArray) -> FloatArray:
    """Return the parameters about frame A of a body with parameters `phi` (10,) about frame B.

    `rotation` (3, 3) and `translation` (3,) [m] place B in A: `p_a = rotation @ p_b + translation`.
    """
    T = np.eye(4)
    T[:3, :3] = rotation
    T[:3, 3] = translation
    return from_pseudo_inertia(T @ pseudo_inertia(phi) @ T.T)


def is_physical(phi: FloatArray, tolerance: float = 0.0) -> bool:
    """Return whether a body of positive mass can have these (10,) parameters.

    True if the mass is positive and the smallest principal second moment about the centre of mass exceeds `-tolerance`
    times the largest.  With `tolerance` 0 that is a positive definite pseudo-inertia; a small positive one accepts
    rods, discs, point masses and rounded CAD figures.
    """
    if not np.all(np.isfinite(phi)) or phi[0] <= 0.0:
        return False
    mass, com, _ = mass_com_inertia(phi)
    sigma = pseudo_inertia(phi)[:3, :3] - mass * np.outer(com, com)
    eigenvalues = np.linalg.eigvalsh(sigma)
    if tolerance == 0.0:
        return bool(eigenvalues[0] > 0.0)
    scale = max(float(eigenvalues[-1]), mass * float(com @ com))
    return bool(eigenvalues[0] >= -tolerance * scale)
