"""Kernels of a chain of elementary transforms: poses, residuals and their derivatives.

A chain of `n` joints has `n + 1` placements; joint `k` rotates about or slides along the z axis of the frame at the end
of placement `k`, and placement `n` leads to the measured frame.  A placement is a product of elements: translations
along or rotations about one axis, or fixed rotations.  An element may be a parameter; its derivative is its
instantaneous screw: with world axis `w` and world origin `o` of the frame before it, a rotation moves the end point `p`
by `w x (p - o)` and turns it by `w`, a translation moves it by `w`.

Transforms are packed as rotation (9, row-major) and translation (3).  Positions in m, angles in rad.
"""

import math
from typing import NamedTuple

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.types import BoolArray, FloatArray, IntArray

#: Codes of elements: translations 0 to 2, rotations 3 to 5, and a fixed rotation.
TX, TY, TZ, RX, RY, RZ, TURN = range(7)
#: Losses: squares, Huber, Tukey's bisquare.
SQUARES, HUBER, BISQUARE = range(3)


class Elements(NamedTuple):
    """Elements of a chain."""

    code: IntArray  # (E,) kind
    place: IntArray  # (E,) placement
    column: IntArray  # (E,) parameter; -1: none
    nominal: FloatArray  # (E,) value
    turn: FloatArray  # (E, 9) rotation of the elements `TURN`


class Postures(NamedTuple):
    """Postures of `n` joints, and measurements."""

    revolute: BoolArray  # (n,)
    q: FloatArray  # (N, n)
    cosine: FloatArray  # (N, n)
    sine: FloatArray  # (N, n)
    measured: FloatArray  # (N, 12)


class Criterion(NamedTuple):
    """Loss of a pose's residual."""

    scale: FloatArray  # (2,) of positions and rotations
    loss: int
    tuning: float
    width: int  # of the residual


@jit
def assemble(elements: Elements, x: FloatArray, placements: FloatArray, screws: FloatArray) -> None:
    """Multiply the elements into `placements` (n + 1, 12), and write each parameter's screw in its placement.

    `x` (P,) are errors.  A screw of `screws` (P, 6) is axis and origin in the frame at the start of the placement.
    """
    code, place, column, nominal, turn = elements
    placements[:] = 0.0
    for k in range(placements.shape[0]):
        placements[k, 0] = placements[k, 4] = placements[k, 8] = 1.0
    for e in range(code.size):
        T = placements[place[e]]
        what = code[e]
        if what == TURN:
            R = turn[e]
            for i in range(3):
                a, b, c = T[3 * i], T[3 * i + 1], T[3 * i + 2]
                for j in range(3):
                    T[3 * i + j] = a * R[j] + b * R[3 + j] + c * R[6 + j]
            continue
        axis = what % 3
        value = nominal[e]
        if column[e] >= 0:
            value += x[column[e]]
            for i in range(3):
                screws[column[e], i] = T[3 * i + axis]
                screws[column[e], 3 + i] = T[9 + i]
        if what < RX:
            for i in range(3):
                T[9 + i] += T[3 * i + axis] * value
        elif value != 0.0:
            c, s = np.cos(value), np.sin(value)
            if abs(c) < 1e-15:  # right angles are exact, as in `rt_core.model.dh`
                c = 0.0
            if abs(s) < 1e-15:
                s = 0.0
            u, v = (axis + 1) % 3, (axis + 2) % 3
            for i in range(3):
                a, b = T[3 * i + u], T[3 * i + v]
                T[3 * i + u] = c * a + s * b
                T[3 * i + v] = c * b - s * a


@kernel
def walk(
    placements: FloatArray, revolute: BoolArray, q: FloatArray, cosine: FloatArray, sine: FloatArray, frames: FloatArray
) -> None:
    """Fill `frames` (n + 2, 12): the start of each placement, and the measured frame, at a posture `q` (n,)."""
    n = q.shape[0]
    F = frames[0]
    for j in range(12):
        F[j] = 0.0
    F[0] = F[4] = F[8] = 1.0
    for k in range(n + 1):
        A, F, G = placements[k], frames[k], frames[k + 1]
        for i in range(3):
            a, b, c = F[3 * i], F[3 * i + 1], F[3 * i + 2]
            for j in range(3):
                G[3 * i + j] = a * A[j] + b * A[3 + j] + c * A[6 + j]
            G[9 + i] = F[9 + i] + a * A[9] + b * A[10] + c * A[11]
        if k < n:
            if revolute[k]:
                for i in range(3):
                    a, b = G[3 * i], G[3 * i + 1]
                    G[3 * i] = cosine[k] * a + sine[k] * b
                    G[3 * i + 1] = cosine[k] * b - sine[k] * a
            else:
                for i in range(3):
                    G[9 + i] += G[3 * i + 2] * q[k]


@jit
def rotation_vector(R: FloatArray, out: FloatArray) -> None:
    """Write the rotation vector `out` (3,) [rad] of a rotation matrix `R` (9,), also near half a turn."""
    v0, v1, v2 = 0.5 * (R[7] - R[5]), 0.5 * (R[2] - R[6]), 0.5 * (R[3] - R[1])
    s = math.sqrt(v0 * v0 + v1 * v1 + v2 * v2)
    c = 0.5 * (R[0] + R[4] + R[8] - 1.0)
    angle = math.atan2(s, c)
    if c > -0.9:
        factor = 1.0 if s < 1e-12 else angle / s
        out[0], out[1], out[2] = factor * v0, factor * v1, factor * v2
        return
    big = 0
    for i in range(1, 3):
        if R[4 * i] > R[4 * big]:
            big = i
    length = math.sqrt(max((R[4 * big] - c) / (1.0 - c), 0.0))
    for i in range(3):
        symmetric = 0.5 * (R[3 * i + big] + R[3 * big + i])
        out[i] = (symmetric - (c if i == big else 0.0)) / (length * (1.0 - c))
    sign = -1.0 if out[0] * v0 + out[1] * v1 + out[2] * v2 < 0.0 else 1.0
    for i in range(3):
        out[i] *= sign * angle


@kernel
def difference(end: FloatArray, measured: FloatArray, k: int, turn: FloatArray, r: FloatArray) -> None:
    """Residual `r` (k,) of one pose: model minus measurement, in the measuring frame.

    `end` (12,) is the model's pose and `measured` (12,) the measured one; with `k = 6` the last three are the rotation
    vector of `R_model R_measured^T`.  `turn` (9,) is scratch.
    """
    for i in range(3):
        r[i] = end[9 + i] - measured[9 + i]
    if k == 6:
        for i in range(3):
            for j in range(3):
                turn[3 * i + j] = (
                    end[3 * i] * measured[3 * j]
                    + end[3 * i + 1] * measured[3 * j + 1]
                    + end[3 * i + 2] * measured[3 * j + 2]
                )
        rotation_vector(turn, r[3:6])


@kernel
def columns(
    frames: FloatArray, screws: FloatArray, place: IntArray, rotary: BoolArray, r: FloatArray, J: FloatArray
) -> None:
    """Fill `J` (p, k): the derivative of the residual `r` (k,) with respect to parameters with `screws` (p, 6).

    The derivative of the rotation vector is `J_l^-1(r)`, the inverse left Jacobian (Sola et al. 2018, eq. 146).
    """
    end = frames[frames.shape[0] - 1]
    turns = r.shape[0] == 6
    factor = 0.0
    if turns:
        square = r[3] * r[3] + r[4] * r[4] + r[5] * r[5]
        factor = 1.0 / 12.0
        if square > 1e-6:
            angle = math.sqrt(square)
            factor = 1.0 / square - 1.0 / (2.0 * angle * math.tan(0.5 * angle))
    for c in range(place.shape[0]):
        F, S = frames[place[c]], screws[c]
        w0 = F[0] * S[0] + F[1] * S[1] + F[2] * S[2]
        w1 = F[3] * S[0] + F[4] * S[1] + F[5] * S[2]
        w2 = F[6] * S[0] + F[7] * S[1] + F[8] * S[2]
        if not rotary[c]:
            J[c, 0], J[c, 1], J[c, 2] = w0, w1, w2
            if turns:
                J[c, 3] = J[c, 4] = J[c, 5] = 0.0
            continue
        d0 = end[9] - F[9] - F[0] * S[3] - F[1] * S[4] - F[2] * S[5]
        d1 = end[10] - F[10] - F[3] * S[3] - F[4] * S[4] - F[5] * S[5]
        d2 = end[11] - F[11] - F[6] * S[3] - F[7] * S[4] - F[8] * S[5]
        J[c, 0] = w1 * d2 - w2 * d1
        J[c, 1] = w2 * d0 - w0 * d2
        J[c, 2] = w0 * d1 - w1 * d0
        if turns:
            e0, e1, e2 = r[4] * w2 - r[5] * w1, r[5] * w0 - r[3] * w2, r[3] * w1 - r[4] * w0
            J[c, 3] = w0 - 0.5 * e0 + factor * (r[4] * e2 - r[5] * e1)
            J[c, 4] = w1 - 0.5 * e1 + factor * (r[5] * e0 - r[3] * e2)
            J[c, 5] = w2 - 0.5 * e2 + factor * (r[3] * e1 - r[4] * e0)


@kernel
def pose_loss(r: FloatArray, criterion: Criterion) -> float:
    """Return the loss `rho(u)` of the standardised length `u` of a residual `r` (k,), where `rho = u^2` near zero."""
    scale, loss, tuning, _ = criterion
    square = 0.0
    for i in range(r.shape[0]):
        u = r[i] / scale[i // 3]
        square += u * u
    if loss == SQUARES:
        return square
    if loss == HUBER:
        return square if square <= tuning * tuning else 2.0 * tuning * math.sqrt(square) - tuning * tuning
    y = max(1.0 - square / (tuning * tuning), 0.0)
    return tuning * tuning / 3.0 * (1.0 - y * y * y)


@kernel
def residuals(placements: FloatArray, postures: Postures, out: FloatArray) -> None:
    """Fill `out` (N, k) with the residuals of all poses."""
    revolute, q, cosine, sine, measured = postures
    frames = np.empty((q.shape[1] + 2, 12))
    turn = np.empty(9)
    for i in range(q.shape[0]):
        walk(placements, revolute, q[i], cosine[i], sine[i], frames)
        difference(frames[q.shape[1] + 1], measured[i], out.shape[1], turn, out[i])


@kernel
def poses(
    placements: FloatArray, revolute: BoolArray, q: FloatArray, cosine: FloatArray, sine: FloatArray, out: FloatArray
) -> None:
    """Fill `out` (N, 12) with the poses of the measured frame at postures `q` (N, n)."""
    frames = np.empty((q.shape[1] + 2, 12))
    for i in range(q.shape[0]):
        walk(placements, revolute, q[i], cosine[i], sine[i], frames)
        out[i] = frames[q.shape[1] + 1]


@kernel
def jacobian(
    placements: FloatArray, screws: FloatArray, place: IntArray, rotary: BoolArray, postures: Postures, out: FloatArray
) -> None:
    """Fill `out` (N, p, k) with the derivatives of the residuals with respect to parameters with `screws` (p, 6)."""
    revolute, q, cosine, sine, measured = postures
    frames = np.empty((q.shape[1] + 2, 12))
    turn = np.empty(9)
    r = np.empty(out.shape[2])
    for i in range(q.shape[0]):
        walk(placements, revolute, q[i], cosine[i], sine[i], frames)
        difference(frames[q.shape[1] + 1], measured[i], r.shape[0], turn, r)
        columns(frames, screws, place, rotary, r, out[i])


@kernel
def totals(elements: Elements, postures: Postures, criterion: Criterion, errors: FloatArray, out: FloatArray) -> None:
    """Fill `out` (m,) with the sums of losses over the standardised residuals of all poses at `errors` (m, P)."""
    revolute, q, cosine, sine, measured = postures
    placements = np.empty((revolute.shape[0] + 1, 12))
    screws = np.zeros((errors.shape[1], 6))
    frames = np.empty((q.shape[1] + 2, 12))
    turn = np.empty(9)
    r = np.empty(criterion.width)
    for i in range(errors.shape[0]):
        assemble(elements, errors[i], placements, screws)
        out[i] = 0.0
        for j in range(q.shape[0]):
            walk(placements, revolute, q[j], cosine[j], sine[j], frames)
            difference(frames[q.shape[1] + 1], measured[j], criterion.width, turn, r)
            out[i] += pose_loss(r, criterion)
