"""Forward dynamics of a serial chain: mass matrix and bias forces.

`M(q) ddq + b(q, dq) = tau`, rigid links only: `b` holds Coriolis, centrifugal and gravity torques.  One outward pass
computes velocities and the accelerations at `ddq = 0`, one inward pass sums forces (recursive Newton-Euler) and
composite inertias (composite rigid bodies); Featherstone, *Rigid Body Dynamics Algorithms*, 2008, chapters 5 and 6.
All vectors of a link are in its own link frame, about its own origin; gravity enters as an upward acceleration of the
base.

Geometry is `RobotModel.geometry` (n, 37), link parameters are in Pinocchio's order (n, 10).
"""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.dynamics import Links
from rt_core.types import FloatArray

#: Width of one link's row in the scratch array of `mass_and_bias`.
FORWARD_WORK = 37


@kernel
def mass_and_bias(
    links: Links, q: FloatArray, dq: FloatArray, mass: FloatArray, bias: FloatArray, work: FloatArray
) -> None:
    """Compute the symmetric mass matrix `mass` (n, n) and the torques at `ddq = 0`, `bias` (n,), at `q, dq` (n,).

    `work` (n, FORWARD_WORK) is scratch; columns 0 to 11 hold the link's rotation and origin in its parent afterwards.
    """
    geometry, gravity, inertial = links
    n = q.shape[0]
    w0 = w1 = w2 = 0.0
    d0 = d1 = d2 = 0.0
    a0, a1, a2 = -gravity[0], -gravity[1], -gravity[2]
    for i in range(n):
        g = geometry[i]
        k = work[i]
        c = np.cos(q[i])
        s = np.sin(q[i])
        for j in range(9):
            k[j] = g[j] + c * g[9 + j] + s * g[18 + j]
        p0 = g[27] + q[i] * g[30]
        p1 = g[28] + q[i] * g[31]
        p2 = g[29] + q[i] * g[32]
        k[9], k[10], k[11] = p0, p1, p2
        x0, x1, x2 = g[33], g[34], g[35]
        turn = g[36] * dq[i]
        slide = 2.0 * (1.0 - g[36]) * dq[i]
        # Acceleration of the link's origin, parent coordinates.
        e0 = w1 * p2 - w2 * p1
        e1 = w2 * p0 - w0 * p2
        e2 = w0 * p1 - w1 * p0
        b0 = a0 + d1 * p2 - d2 * p1 + w1 * e2 - w2 * e1
        b1 = a1 + d2 * p0 - d0 * p2 + w2 * e0 - w0 * e2
        b2 = a2 + d0 * p1 - d1 * p0 + w0 * e1 - w1 * e0
        # Into link coordinates.
        u0 = k[0] * w0 + k[3] * w1 + k[6] * w2
        u1 = k[1] * w0 + k[4] * w1 + k[7] * w2
        u2 = k[2] * w0 + k[5] * w1 + k[8] * w2
        v0 = k[0] * d0 + k[3] * d1 + k[6] * d2
        v1 = k[1] * d0 + k[4] * d1 + k[7] * d2
        v2 = k[2] * d0 + k[5] * d1 + k[8] * d2
        e0 = u1 * x2 - u2 * x1
        e1 = u2 * x0 - u0 * x2
        e2 = u0 * x1 - u1 * x0
        a0 = k[0] * b0 + k[3] * b1 + k[6] * b2 + slide * e0
        a1 = k[1] * b0 + k[4] * b1 + k[7] * b2 + slide * e1
        a2 = k[2] * b0 + k[5] * b1 + k[8] * b2 + slide * e2
        d0 = v0 + turn * e0
        d1 = v1 + turn * e1
        d2 = v2 + turn * e2
        w0 = u0 + turn * x0
        w1 = u1 + turn * x1
        w2 = u2 + turn * x2
        # Force and moment about the link's origin.
        body = inertial[i]
        m = body[0]
        h0, h1, h2 = body[1], body[2], body[3]
        ixx, ixy, iyy, ixz, iyz, izz = body[4], body[5], body[6], body[7], body[8], body[9]
        e0 = w1 * h2 - w2 * h1
        e1 = w2 * h0 - w0 * h2
        e2 = w0 * h1 - w1 * h0
        k[21] = m * a0 + d1 * h2 - d2 * h1 + w1 * e2 - w2 * e1
        k[22] = m * a1 + d2 * h0 - d0 * h2 + w2 * e0 - w0 * e2
        k[23] = m * a2 + d0 * h1 - d1 * h0 + w0 * e1 - w1 * e0
        e0 = ixx * w0 + ixy * w1 + ixz * w2
        e1 = ixy * w0 + iyy * w1 + iyz * w2
        e2 = ixz * w0 + iyz * w1 + izz * w2
        k[24] = h1 * a2 - h2 * a1 + ixx * d0 + ixy * d1 + ixz * d2 + w1 * e2 - w2 * e1
        k[25] = h2 * a0 - h0 * a2 + ixy * d0 + iyy * d1 + iyz * d2 + w2 * e0 - w0 * e2
        k[26] = h0 * a1 - h1 * a0 + ixz * d0 + iyz * d1 + izz * d2 + w0 * e1 - w1 * e0
        for j in range(10):
            k[27 + j] = body[j]
    for i in range(n - 1, -1, -1):
        g = geometry[i]
        k = work[i]
        x0, x1, x2 = g[33], g[34], g[35]
        revolute = g[36]
        f0, f1, f2 = k[21], k[22], k[23]
        n0, n1, n2 = k[24], k[25], k[26]
        m = k[27]
        h0, h1, h2 = k[28], k[29], k[30]
        ixx, ixy, iyy, ixz, iyz, izz = k[31], k[32], k[33], k[34], k[35], k[36]
        if revolute > 0.5:
            bias[i] = x0 * n0 + x1 * n1 + x2 * n2
            # Force and moment of the composite body for a unit acceleration of joint i.
            s0 = x1 * h2 - x2 * h1
            s1 = x2 * h0 - x0 * h2
            s2 = x0 * h1 - x1 * h0
            t0 = ixx * x0 + ixy * x1 + ixz * x2
            t1 = ixy * x0 + iyy * x1 + iyz * x2
            t2 = ixz * x0 + iyz * x1 + izz * x2
            mass[i, i] = x0 * t0 + x1 * t1 + x2 * t2
        else:
            bias[i] = x0 * f0 + x1 * f1 + x2 * f2
            s0, s1, s2 = m * x0, m * x1, m * x2
            t0 = h1 * x2 - h2 * x1
            t1 = h2 * x0 - h0 * x2
            t2 = h0 * x1 - h1 * x0
            mass[i, i] = m
        for j in range(i, 0, -1):
            r = work[j]
            e0 = r[0] * s0 + r[1] * s1 + r[2] * s2
            e1 = r[3] * s0 + r[4] * s1 + r[5] * s2
            e2 = r[6] * s0 + r[7] * s1 + r[8] * s2
            b0 = r[0] * t0 + r[1] * t1 + r[2] * t2
            b1 = r[3] * t0 + r[4] * t1 + r[5] * t2
            b2 = r[6] * t0 + r[7] * t1 + r[8] * t2
            s0, s1, s2 = e0, e1, e2
            t0 = b0 + r[10] * e2 - r[11] * e1
            t1 = b1 + r[11] * e0 - r[9] * e2
            t2 = b2 + r[9] * e1 - r[10] * e0
            o = geometry[j - 1]
            entry = o[33] * t0 + o[34] * t1 + o[35] * t2
            if o[36] < 0.5:
                entry = o[33] * s0 + o[34] * s1 + o[35] * s2
            mass[i, j - 1] = entry
            mass[j - 1, i] = entry
        if i > 0:
            o = work[i - 1]
            p0, p1, p2 = k[9], k[10], k[11]
            e0 = k[0] * f0 + k[1] * f1 + k[2] * f2
            e1 = k[3] * f0 + k[4] * f1 + k[5] * f2
            e2 = k[6] * f0 + k[7] * f1 + k[8] * f2
            o[21] += e0
            o[22] += e1
            o[23] += e2
            o[24] += k[0] * n0 + k[1] * n1 + k[2] * n2 + p1 * e2 - p2 * e1
            o[25] += k[3] * n0 + k[4] * n1 + k[5] * n2 + p2 * e0 - p0 * e2
            o[26] += k[6] * n0 + k[7] * n1 + k[8] * n2 + p0 * e1 - p1 * e0
            # Composite body into the parent: rotate, then shift by p.
            e0 = k[0] * h0 + k[1] * h1 + k[2] * h2
            e1 = k[3] * h0 + k[4] * h1 + k[5] * h2
            e2 = k[6] * h0 + k[7] * h1 + k[8] * h2
            b00 = k[0] * ixx + k[1] * ixy + k[2] * ixz
            b01 = k[0] * ixy + k[1] * iyy + k[2] * iyz
            b02 = k[0] * ixz + k[1] * iyz + k[2] * izz
            b10 = k[3] * ixx + k[4] * ixy + k[5] * ixz
            b11 = k[3] * ixy + k[4] * iyy + k[5] * iyz
            b12 = k[3] * ixz + k[4] * iyz + k[5] * izz
            b20 = k[6] * ixx + k[7] * ixy + k[8] * ixz
            b21 = k[6] * ixy + k[7] * iyy + k[8] * iyz
            b22 = k[6] * ixz + k[7] * iyz + k[8] * izz
            # Shift: 2 (p.e) 1 - (p e' + e p') + m (p.p 1 - p p'), with e the rotated first moment.
            g0 = e0 + m * p0
            g1 = e1 + m * p1
            g2 = e2 + m * p2
            o[27] += m
            o[28] += g0
            o[29] += g1
            o[30] += g2
            trace = p0 * (e0 + g0) + p1 * (e1 + g1) + p2 * (e2 + g2)
            o[31] += b00 * k[0] + b01 * k[1] + b02 * k[2] + trace - p0 * (e0 + g0)
            o[32] += b00 * k[3] + b01 * k[4] + b02 * k[5] - p0 * e1 - p1 * g0
            o[33] += b10 * k[3] + b11 * k[4] + b12 * k[5] + trace - p1 * (e1 + g1)
            o[34] += b00 * k[6] + b01 * k[7] + b02 * k[8] - p0 * e2 - p2 * g0
            o[35] += b10 * k[6] + b11 * k[7] + b12 * k[8] - p1 * e2 - p2 * g1
            o[36] += b20 * k[6] + b21 * k[7] + b22 * k[8] + trace - p2 * (e2 + g2)


@kernel
def solve_definite(matrix: FloatArray, x: FloatArray) -> bool:
    """Solve `matrix @ x = x` in place for a symmetric positive definite (n, n) matrix (lower triangle used).

    The lower triangle is overwritten by its Cholesky factor.  Returns False, leaving `x` undefined,
    if the matrix is not positive definite.
    """
    n = x.shape[0]
    for i in range(n):
        row = matrix[i]
        for j in range(i):
            other = matrix[j]
            total = row[j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total * other[j]  # the diagonal holds reciprocals
        total = row[i]
        for k in range(i):
            total -= row[k] * row[k]
        if not total > 0.0:
            return False
        row[i] = 1.0 / np.sqrt(total)
        total = x[i]
        for k in range(i):
            total -= row[k] * x[k]
        x[i] = total * row[i]
    for i in range(n - 1, -1, -1):
        row = matrix[i]
        x[i] *= row[i]
        for k in range(i):
            x[k] -= row[k] * x[i]
    return True


@kernel
def mass_and_bias_batch(links: Links, q: FloatArray, dq: FloatArray, mass: FloatArray, bias: FloatArray) -> None:
    """Compute `mass_and_bias` for (N, n) states into `mass` (N, n, n) and `bias` (N, n)."""
    work = np.empty((q.shape[1], 37))
    for row in range(q.shape[0]):
        mass_and_bias(links, q[row], dq[row], mass[row], bias[row], work)


def equations_of_motion(
    geometry: FloatArray, gravity: FloatArray, inertial: FloatArray, q: FloatArray, dq: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return `M` (N, n, n) and `b` (N, n) of `M ddq + b = tau` at states `q, dq` (N, n).

    `geometry` (n, 37), `gravity` (3,) and `inertial` (n, 10) as in `RobotModel`.
    """
    q = np.ascontiguousarray(q, dtype=np.float64)
    dq = np.ascontiguousarray(dq, dtype=np.float64)
    count, n = q.shape
    mass = np.empty((count, n, n))
    bias = np.empty((count, n))
    mass_and_bias_batch(Links(geometry, gravity, np.ascontiguousarray(inertial)), q, dq, mass, bias)
    return mass, bias
