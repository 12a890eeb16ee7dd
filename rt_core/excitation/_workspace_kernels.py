"""Kernels for points of the arm along a motion, their relative violations of regions and clearances, and the adjoint.

A derivative by a point acts like a force on it: the derivative by the joints is the torque of that force, summed from
tip to base.  Distances between segments: C. Ericson, *Real-Time Collision Detection* (2005), 5.1.9.
"""

from typing import TypeAlias

import numpy as np

from rt_core.excitation.workspace_regions import WorkspaceLimits
from rt_core.jit import jit, kernel
from rt_core.model.regressor import BLOCK, sincos_block
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

Vector: TypeAlias = tuple[float, float, float]
_C, _S = 30 * BLOCK, 31 * BLOCK  # rows of `sincos_block`
#: Below this share of the product of two squared lengths, segments count as parallel.
_PARALLEL = 1e-12
#: Squared length [m^2] below which a segment is a point.
_SHORT = 1e-18


@kernel
def workspace_points(
    geometry: FloatArray, q: FloatArray, link: IntArray, local: FloatArray, frames: FloatArray, points: FloatArray
) -> None:
    """Write rotation (row-major) and origin of each link to `frames` (n, 12, m), and `points` (K, 3, m), at `q` (n, m).

    `m` is a multiple of the block; `link` (K,), `local` (K, 3).
    """
    n, m = q.shape
    angle = np.zeros(32 * BLOCK)
    for i in range(n):
        g = geometry[i]
        own = frames[i]
        for start in range(0, m, BLOCK):
            sincos_block(q[i, start : start + BLOCK], angle, BLOCK)
            for b in range(BLOCK):
                t = start + b
                c, s = angle[_C + b], angle[_S + b]
                r0, r1, r2 = g[0] + c * g[9] + s * g[18], g[1] + c * g[10] + s * g[19], g[2] + c * g[11] + s * g[20]
                r3, r4, r5 = g[3] + c * g[12] + s * g[21], g[4] + c * g[13] + s * g[22], g[5] + c * g[14] + s * g[23]
                r6, r7, r8 = g[6] + c * g[15] + s * g[24], g[7] + c * g[16] + s * g[25], g[8] + c * g[17] + s * g[26]
                x, y, z = g[27] + q[i, t] * g[30], g[28] + q[i, t] * g[31], g[29] + q[i, t] * g[32]
                if i == 0:
                    own[0, t], own[1, t], own[2, t] = r0, r1, r2
                    own[3, t], own[4, t], own[5, t] = r3, r4, r5
                    own[6, t], own[7, t], own[8, t] = r6, r7, r8
                    own[9, t], own[10, t], own[11, t] = x, y, z
                else:
                    for k in range(3):
                        a, bb, cc = frames[i - 1, 3 * k, t], frames[i - 1, 3 * k + 1, t], frames[i - 1, 3 * k + 2, t]
                        own[3 * k, t] = a * r0 + bb * r3 + cc * r6
                        own[3 * k + 1, t] = a * r1 + bb * r4 + cc * r7
                        own[3 * k + 2, t] = a * r2 + bb * r5 + cc * r8
                        own[9 + k, t] = frames[i - 1, 9 + k, t] + a * x + bb * y + cc * z
    for k in range(link.size):
        i = link[k]
        x, y, z = local[k, 0], local[k, 1], local[k, 2]
        for axis in range(3):
            out = points[k, axis]
            if i < 0:
                out[:] = local[k, axis]
            else:
                a, bb, cc, origin = (
                    frames[i, 3 * axis], frames[i, 3 * axis + 1], frames[i, 3 * axis + 2], frames[i, 9 + axis],
                )  # fmt: skip
                for t in range(m):
                    out[t] = origin[t] + a[t] * x + bb[t] * y + cc[t] * z


@kernel
def points_adjoint(
    geometry: FloatArray, frames: FloatArray, link: IntArray, points: FloatArray, force: FloatArray, wrench: FloatArray,
    q_bar: FloatArray,
) -> None:  # fmt: skip
    """Add to `q_bar` (n, m) the derivative of `sum(force * points)`; `wrench` (n, 6, m) is scratch."""
    n, m = q_bar.shape
    wrench[:] = 0.0
    for k in range(link.size):
        i = link[k]
        if i < 0:
            continue
        for t in range(m):
            fx, fy, fz = force[k, 0, t], force[k, 1, t], force[k, 2, t]
            x, y, z = points[k, 0, t], points[k, 1, t], points[k, 2, t]
            wrench[i, 0, t] += fx
            wrench[i, 1, t] += fy
            wrench[i, 2, t] += fz
            wrench[i, 3, t] += y * fz - z * fy
            wrench[i, 4, t] += z * fx - x * fz
            wrench[i, 5, t] += x * fy - y * fx
    for i in range(n - 1, -1, -1):
        g = geometry[i]
        e0, e1, e2 = g[33], g[34], g[35]
        for t in range(m):
            zx = frames[i, 0, t] * e0 + frames[i, 1, t] * e1 + frames[i, 2, t] * e2
            zy = frames[i, 3, t] * e0 + frames[i, 4, t] * e1 + frames[i, 5, t] * e2
            zz = frames[i, 6, t] * e0 + frames[i, 7, t] * e1 + frames[i, 8, t] * e2
            fx, fy, fz = wrench[i, 0, t], wrench[i, 1, t], wrench[i, 2, t]
            if g[36] > 0.5:
                x, y, z = frames[i, 9, t], frames[i, 10, t], frames[i, 11, t]
                mx = wrench[i, 3, t] - (y * fz - z * fy)
                my = wrench[i, 4, t] - (z * fx - x * fz)
                mz = wrench[i, 5, t] - (x * fy - y * fx)
                q_bar[i, t] += zx * mx + zy * my + zz * mz
            else:
                q_bar[i, t] += zx * fx + zy * fy + zz * fz
        if i > 0:
            wrench[i - 1] += wrench[i]


@jit
def closest(a: Vector, u: Vector, v: Vector) -> tuple[float, float]:
    """Return `s` and `t` of the nearest points `a + s u` and `t v` of two segments, `a` from the second's start."""
    (ax, ay, az), (ux, uy, uz), (vx, vy, vz) = a, u, v
    uu, vv = ux * ux + uy * uy + uz * uz, vx * vx + vy * vy + vz * vz
    ua, va = ux * ax + uy * ay + uz * az, vx * ax + vy * ay + vz * az
    if uu <= _SHORT and vv <= _SHORT:
        return 0.0, 0.0
    if uu <= _SHORT:
        return 0.0, min(max(va / vv, 0.0), 1.0)
    if vv <= _SHORT:
        return min(max(-ua / uu, 0.0), 1.0), 0.0
    uv = ux * vx + uy * vy + uz * vz
    volume = uu * vv - uv * uv
    s = 0.0
    if volume > _PARALLEL * uu * vv:
        s = min(max((uv * va - ua * vv) / volume, 0.0), 1.0)
    t = (uv * s + va) / vv
    if t < 0.0:
        t = 0.0
        s = min(max(-ua / uu, 0.0), 1.0)
    elif t > 1.0:
        t = 1.0
        s = min(max((uv - ua) / uu, 0.0), 1.0)
    return s, t


@jit
def workspace_shares(
    points: FloatArray, regions: tuple[IntArray, IntArray, FloatArray, IntArray, FloatArray], shares: FloatArray,
    nearest: FloatArray,
) -> None:  # fmt: skip
    """Write the relative violations to `shares` (rows, m), and the nearest points of pairs to `nearest` (P, 2, m).

    `regions` is `WorkspaceLimits.arrays`.
    """
    region_point, region_kind, region_shape, pairs, reach = regions
    m = points.shape[2]
    at = 0
    for r in range(region_point.size):
        p = points[region_point[r]]
        shape = region_shape[r]
        if region_kind[r] == 0:
            for axis in range(3):
                low, high = shape[axis], shape[3 + axis]
                inverse = 2.0 / (high - low)
                for t in range(m):
                    shares[at + axis, t] = (low - p[axis, t]) * inverse
                    shares[at + 3 + axis, t] = (p[axis, t] - high) * inverse
            at += 6
        else:
            for t in range(m):
                x, y, z = p[0, t] - shape[0], p[1, t] - shape[1], p[2, t] - shape[2]
                shares[at, t] = region_kind[r] * (np.sqrt(x * x + y * y + z * z) / shape[3] - 1.0)
            at += 1
    for k in range(reach.size):
        a, b, c, d = points[pairs[k, 0]], points[pairs[k, 1]], points[pairs[k, 2]], points[pairs[k, 3]]
        for i in range(m):
            ax, ay, az = a[0, i] - c[0, i], a[1, i] - c[1, i], a[2, i] - c[2, i]
            ux, uy, uz = b[0, i] - a[0, i], b[1, i] - a[1, i], b[2, i] - a[2, i]
            vx, vy, vz = d[0, i] - c[0, i], d[1, i] - c[1, i], d[2, i] - c[2, i]
            one, other = closest((ax, ay, az), (ux, uy, uz), (vx, vy, vz))
            x, y, z = ax + one * ux - other * vx, ay + one * uy - other * vy, az + one * uz - other * vz
            shares[at, i] = 1.0 - np.sqrt(x * x + y * y + z * z) / reach[k]
            nearest[k, 0, i] = one
            nearest[k, 1, i] = other
        at += 1


@jit
def workspace_shares_adjoint(
    points: FloatArray, regions: tuple[IntArray, IntArray, FloatArray, IntArray, FloatArray], nearest: FloatArray,
    bar: FloatArray, force: FloatArray,
) -> None:  # fmt: skip
    """Add to `force` (K, 3, m) the derivative of `sum(bar * shares)` by the points; `bar` (rows, m).

    The nearest points move along their segments, which changes their distance only to second order: the derivative is
    that at fixed shares of the segments.  It is zero where two axes meet.
    """
    region_point, region_kind, region_shape, pairs, reach = regions
    m = points.shape[2]
    at = 0
    for r in range(region_point.size):
        p, f = points[region_point[r]], force[region_point[r]]
        shape = region_shape[r]
        if region_kind[r] == 0:
            for axis in range(3):
                inverse = 2.0 / (shape[3 + axis] - shape[axis])
                for t in range(m):
                    f[axis, t] += inverse * (bar[at + 3 + axis, t] - bar[at + axis, t])
            at += 6
        else:
            for t in range(m):
                if bar[at, t] != 0.0:
                    x, y, z = p[0, t] - shape[0], p[1, t] - shape[1], p[2, t] - shape[2]
                    size = np.sqrt(x * x + y * y + z * z)
                    if size > 0.0:
                        weight = region_kind[r] * bar[at, t] / (shape[3] * size)
                        f[0, t] += weight * x
                        f[1, t] += weight * y
                        f[2, t] += weight * z
            at += 1
    for k in range(reach.size):
        for i in range(m):
            if bar[at, i] == 0.0:
                continue
            u, v = nearest[k, 0, i], nearest[k, 1, i]
            apart = np.zeros(3)
            for axis in range(3):
                one = points[pairs[k, 0], axis, i] * (1.0 - u) + points[pairs[k, 1], axis, i] * u
                other = points[pairs[k, 2], axis, i] * (1.0 - v) + points[pairs[k, 3], axis, i] * v
                apart[axis] = one - other
            size = np.sqrt(apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2])
            if not size > 0.0:
                continue
            for axis in range(3):
                weight = -bar[at, i] * apart[axis] / (reach[k] * size)
                force[pairs[k, 0], axis, i] += (1.0 - u) * weight
                force[pairs[k, 1], axis, i] += u * weight
                force[pairs[k, 2], axis, i] -= (1.0 - v) * weight
                force[pairs[k, 3], axis, i] -= v * weight
        at += 1


def workspace_shares_at(workspace: WorkspaceLimits, model: RobotModel, q: FloatArray) -> FloatArray:
    """Return relative violations (rows, N) at joint positions `q` (N, n), N at least 1; positive if violated.

    They are relative to half a box's edge, a sphere's radius, and the required distance of two axes.
    """
    count, n = q.shape
    m = -(-count // BLOCK) * BLOCK
    padded = np.empty((n, m))
    padded[:, :count] = q.T
    padded[:, count:] = q[0][:, None]
    points, shares = np.empty((workspace.link.size, 3, m)), np.empty((workspace.rows, m))
    workspace_points(model.geometry, padded, workspace.link, workspace.local, np.empty((n, 12, m)), points)
    workspace_shares(points, workspace.arrays, shares, np.empty((workspace.reach.size, 2, m)))
    return shares[:, :count]


def always_touching(
    workspace: WorkspaceLimits, model: RobotModel, lower: FloatArray, upper: FloatArray
) -> tuple[str, ...]:
    """Return the pairs of bodies that are too near each other in all of 1000 random postures in the limits."""
    if not workspace.pair_names:
        return ()
    q = np.random.default_rng(0).uniform(lower, upper, size=(1000, lower.size))
    beyond = workspace_shares_at(workspace, model, q)[-len(workspace.pair_names) :]
    return tuple(name for name, row in zip(workspace.pair_names, beyond, strict=True) if (row > 0.0).all())
