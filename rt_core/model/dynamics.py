"""Inverse dynamics of the rigid links by the recursive Newton-Euler algorithm.

Link-fixed coordinates, proper accelerations (gravity enters as an upward acceleration of the base), link parameters
about the link frame's origin in Pinocchio's order.  Featherstone, *Rigid Body Dynamics Algorithms* (2008), section 5.3;
Khalil and Dombre (2002), section 9.5.
"""

from typing import NamedTuple

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray

#: Width of one link's row in the work array of `rnea_single`: R (9), p (3), w (3), dw (3), a (3), f (3), n (3).
RNEA_WORK = 27


class Links(NamedTuple):
    """The rigid links of an arm."""

    geometry: FloatArray
    """`RobotModel.geometry` (n, 37)"""
    gravity: FloatArray
    """In the base frame [m/s^2] (3,)"""
    inertial: FloatArray
    """Link parameters (n, 10)"""


@jit
def rnea_single(
    links: Links, q: FloatArray, dq: FloatArray, ddq: FloatArray, tau: FloatArray, work: FloatArray
) -> None:
    """Compute the joint torques of one state into `tau` (n,); `work` is (n, RNEA_WORK) scratch."""
    geometry, gravity, inertial = links
    n = geometry.shape[0]
    wx = wy = wz = dwx = dwy = dwz = 0.0
    ax, ay, az = -gravity[0], -gravity[1], -gravity[2]
    for i in range(n):
        g = geometry[i]
        s = work[i]
        c, sn = np.cos(q[i]), np.sin(q[i])
        for k in range(9):
            s[k] = g[k] + c * g[9 + k] + sn * g[18 + k]
        for k in range(3):
            s[9 + k] = g[27 + k] + q[i] * g[30 + k]
        px, py, pz = s[9], s[10], s[11]
        # acceleration of the link's origin, still in the parent's coordinates
        tx, ty, tz = wy * pz - wz * py, wz * px - wx * pz, wx * py - wy * px
        ox = ax + dwy * pz - dwz * py + wy * tz - wz * ty
        oy = ay + dwz * px - dwx * pz + wz * tx - wx * tz
        oz = az + dwx * py - dwy * px + wx * ty - wy * tx
        ux = s[0] * wx + s[3] * wy + s[6] * wz
        uy = s[1] * wx + s[4] * wy + s[7] * wz
        uz = s[2] * wx + s[5] * wy + s[8] * wz
        vx = s[0] * dwx + s[3] * dwy + s[6] * dwz
        vy = s[1] * dwx + s[4] * dwy + s[7] * dwz
        vz = s[2] * dwx + s[5] * dwy + s[8] * dwz
        ax = s[0] * ox + s[3] * oy + s[6] * oz
        ay = s[1] * ox + s[4] * oy + s[7] * oz
        az = s[2] * ox + s[5] * oy + s[8] * oz
        ex, ey, ez = g[33], g[34], g[35]
        cx, cy, cz = (uy * ez - uz * ey) * dq[i], (uz * ex - ux * ez) * dq[i], (ux * ey - uy * ex) * dq[i]
        if g[36] > 0.5:
            wx, wy, wz = ux + ex * dq[i], uy + ey * dq[i], uz + ez * dq[i]
            dwx, dwy, dwz = vx + ex * ddq[i] + cx, vy + ey * ddq[i] + cy, vz + ez * ddq[i] + cz
        else:
            wx, wy, wz = ux, uy, uz
            dwx, dwy, dwz = vx, vy, vz
            ax += ex * ddq[i] + 2.0 * cx
            ay += ey * ddq[i] + 2.0 * cy
            az += ez * ddq[i] + 2.0 * cz
        m, hx, hy, hz = inertial[i, 0], inertial[i, 1], inertial[i, 2], inertial[i, 3]
        ixx, ixy, iyy = inertial[i, 4], inertial[i, 5], inertial[i, 6]
        ixz, iyz, izz = inertial[i, 7], inertial[i, 8], inertial[i, 9]
        tx, ty, tz = wy * hz - wz * hy, wz * hx - wx * hz, wx * hy - wy * hx
        s[21] = m * ax + dwy * hz - dwz * hy + wy * tz - wz * ty
        s[22] = m * ay + dwz * hx - dwx * hz + wz * tx - wx * tz
        s[23] = m * az + dwx * hy - dwy * hx + wx * ty - wy * tx
        lx = ixx * wx + ixy * wy + ixz * wz
        ly = ixy * wx + iyy * wy + iyz * wz
        lz = ixz * wx + iyz * wy + izz * wz
        s[24] = hy * az - hz * ay + ixx * dwx + ixy * dwy + ixz * dwz + wy * lz - wz * ly
        s[25] = hz * ax - hx * az + ixy * dwx + iyy * dwy + iyz * dwz + wz * lx - wx * lz
        s[26] = hx * ay - hy * ax + ixz * dwx + iyz * dwy + izz * dwz + wx * ly - wy * lx
    for i in range(n - 1, -1, -1):
        g = geometry[i]
        s = work[i]
        if g[36] > 0.5:
            tau[i] = g[33] * s[24] + g[34] * s[25] + g[35] * s[26]
        else:
            tau[i] = g[33] * s[21] + g[34] * s[22] + g[35] * s[23]
        if i > 0:
            parent = work[i - 1]
            fx = s[0] * s[21] + s[1] * s[22] + s[2] * s[23]
            fy = s[3] * s[21] + s[4] * s[22] + s[5] * s[23]
            fz = s[6] * s[21] + s[7] * s[22] + s[8] * s[23]
            parent[21] += fx
            parent[22] += fy
            parent[23] += fz
            parent[24] += s[0] * s[24] + s[1] * s[25] + s[2] * s[26] + s[10] * fz - s[11] * fy
            parent[25] += s[3] * s[24] + s[4] * s[25] + s[5] * s[26] + s[11] * fx - s[9] * fz
            parent[26] += s[6] * s[24] + s[7] * s[25] + s[8] * s[26] + s[9] * fy - s[10] * fx


@jit
def _rnea_batch(links: Links, q: FloatArray, dq: FloatArray, ddq: FloatArray, tau: FloatArray) -> None:
    work = np.empty((q.shape[1], RNEA_WORK))
    for t in range(q.shape[0]):
        rnea_single(links, q[t], dq[t], ddq[t], tau[t], work)


def inverse_dynamics(
    geometry: FloatArray, gravity: FloatArray, inertial: FloatArray, q: FloatArray, dq: FloatArray, ddq: FloatArray
) -> FloatArray:
    """Return the joint torques (N, n) [N*m or N] of the rigid links for states `q, dq, ddq` (N, n).

    Without friction, rotor inertia and offsets.
    """
    q, dq, ddq = (np.ascontiguousarray(np.atleast_2d(x), dtype=np.float64) for x in (q, dq, ddq))
    tau = np.empty_like(q)
    inertial = np.ascontiguousarray(inertial, dtype=np.float64)
    _rnea_batch(Links(geometry, np.asarray(gravity, dtype=np.float64), inertial), q, dq, ddq, tau)
    return tau
