"""Adjoint of the link columns of the regressor: from derivatives by the columns to derivatives by the states.

With the notation of `rt_core.model.regressor`, the columns of link `k` in row `j` are bilinear in the screw
`(w_j, v_j)` of joint `j` and in the link's motion.  Derivatives pass back through these products, then through the
recursion from link to parent.  A vector that a revolute joint rotates, `u = R(q)' u'`, changes with `q` by `-e x u`, so
that a derivative by it gives `-e . (u x du)` for `q` and `R du` for `u'`, without a derivative by the rotation.

As there, a block has sixteen samples, and one step of the recursion works in one array at constant offsets, so that the
compiler can prove that its parts do not overlap.
"""

from typing import NamedTuple

import numpy as np

from rt_core.jit import kernel
from rt_core.model.regressor import BLOCK, motion_step, move_screw, own_screw
from rt_core.types import FloatArray

# One link's motion, as rows of `BLOCK` lanes.
_R0, _R1, _R2, _R3, _R4, _R5, _R6, _R7, _R8 = (BLOCK * i for i in range(9))  # rotation of the link in its parent
_P0, _P1, _P2 = (BLOCK * i for i in range(9, 12))  # link origin in the parent
_W0, _W1, _W2 = (BLOCK * i for i in range(12, 15))  # angular velocity
_D0, _D1, _D2 = (BLOCK * i for i in range(15, 18))  # angular acceleration
_A0, _A1, _A2 = (BLOCK * i for i in range(18, 21))  # proper acceleration of the origin
_U0, _U1, _U2 = (BLOCK * i for i in range(21, 24))  # the parent's angular velocity, turned into the link
_V0, _V1, _V2 = (BLOCK * i for i in range(24, 27))  # its angular acceleration
_X0, _X1, _X2 = (BLOCK * i for i in range(27, 30))  # acceleration of the origin as a point of the parent
_MOTION = 30  # rows that are kept of each link
# Rows for working, named after what they hold.
_K0, _K1, _K2, _L0, _L1, _L2 = (BLOCK * i for i in range(30, 36))  # screw, angular and linear
_Y0, _Y1, _Y2, _Y3, _Y4, _Y5, _Y6, _Y7, _Y8, _Y9 = (BLOCK * i for i in range(36, 46))  # derivative by the columns
_BW0, _BW1, _BW2, _BD0, _BD1, _BD2, _BA0, _BA1, _BA2 = (BLOCK * i for i in range(46, 55))  # by the link's motion
_BK0, _BK1, _BK2, _BL0, _BL1, _BL2 = (BLOCK * i for i in range(55, 61))  # by the screw
_Q0, _Q1, _Q2 = (BLOCK * i for i in range(61, 64))  # of q: revolute -(sum of u x du), prismatic by the origin
_PW0, _PW1, _PW2, _PD0, _PD1, _PD2, _PA0, _PA1, _PA2 = (BLOCK * i for i in range(64, 73))  # the parent's motion
_NW0, _NW1, _NW2, _ND0, _ND1, _ND2, _NA0, _NA1, _NA2 = (BLOCK * i for i in range(73, 82))  # derivative by it
_PK0, _PK1, _PK2, _PL0, _PL1, _PL2 = (BLOCK * i for i in range(82, 88))  # the screw at the parent
_ROWS = 88
_S0, _S1, _S2, _S3, _S4, _S5 = (BLOCK * i for i in range(6))


class AdjointWork(NamedTuple):
    """Scratch arrays of `link_columns_adjoint`."""

    motion: FloatArray
    screws: FloatArray
    screws_bar: FloatArray
    rows: FloatArray


def adjoint_work(n: int) -> AdjointWork:
    """Return the scratch arrays for `n` joints."""
    return AdjointWork(
        np.zeros((n, _MOTION * BLOCK)), np.zeros((n, n, 6 * BLOCK)), np.zeros((n, 6 * BLOCK)), np.zeros(_ROWS * BLOCK)
    )


@kernel
def _chain(geometry: FloatArray, gravity: FloatArray, states: FloatArray, work: AdjointWork) -> None:
    """Compute the motion of all links into `motion`, screws of joints `j <= i` at link `i` into `screws[i, j]`."""
    n = geometry.shape[0]
    motion, screws, S = work.motion, work.screws, work.rows
    S[_W0:_A0] = 0.0
    for k in range(3):
        for b in range(BLOCK):
            S[_A0 + k * BLOCK + b] = -gravity[k]
    for i in range(n):
        motion_step(geometry[i], states[0, i], states[1, i], states[2, i], S, BLOCK)
        motion[i, :] = S[: _MOTION * BLOCK]
        for j in range(i):
            screws[i, j, :] = screws[i - 1, j]
            move_screw(screws[i, j], S, BLOCK)
        own_screw(screws[i, i], geometry[i], BLOCK)


@kernel
def _through_columns(S: FloatArray) -> None:
    """Add the derivatives through the ten columns to those by motion and screw."""
    for b in range(BLOCK):
        k0, k1, k2 = S[_K0 + b], S[_K1 + b], S[_K2 + b]
        l0, l1, l2 = S[_L0 + b], S[_L1 + b], S[_L2 + b]
        w0, w1, w2 = S[_W0 + b], S[_W1 + b], S[_W2 + b]
        d0, d1, d2 = S[_D0 + b], S[_D1 + b], S[_D2 + b]
        a0, a1, a2 = S[_A0 + b], S[_A1 + b], S[_A2 + b]
        y0, h0, h1, h2 = S[_Y0 + b], S[_Y1 + b], S[_Y2 + b], S[_Y3 + b]
        # Force columns: y0 of l.a, and h of  l x d + w x (w x l) + a x k.
        wh = w0 * h0 + w1 * h1 + w2 * h2
        ww = w0 * w0 + w1 * w1 + w2 * w2
        wl = w0 * l0 + w1 * l1 + w2 * l2
        lh = l0 * h0 + l1 * h1 + l2 * h2
        S[_BL0 + b] += a0 * y0 + d1 * h2 - d2 * h1 + w0 * wh - ww * h0
        S[_BL1 + b] += a1 * y0 + d2 * h0 - d0 * h2 + w1 * wh - ww * h1
        S[_BL2 + b] += a2 * y0 + d0 * h1 - d1 * h0 + w2 * wh - ww * h2
        S[_BA0 + b] += l0 * y0 + k1 * h2 - k2 * h1
        S[_BA1 + b] += l1 * y0 + k2 * h0 - k0 * h2
        S[_BA2 + b] += l2 * y0 + k0 * h1 - k1 * h0
        bd0 = h1 * l2 - h2 * l1
        bd1 = h2 * l0 - h0 * l2
        bd2 = h0 * l1 - h1 * l0
        bk0 = h1 * a2 - h2 * a1
        bk1 = h2 * a0 - h0 * a2
        bk2 = h0 * a1 - h1 * a0
        # h . (w (w.l) - l (w.w))
        bw0 = h0 * wl + l0 * wh - 2.0 * w0 * lh
        bw1 = h1 * wl + l1 * wh - 2.0 * w1 * lh
        bw2 = h2 * wl + l2 * wh - 2.0 * w2 * lh
        # Moment columns: k'Sd + (k x w)'Sw with the symmetric S of their derivatives.
        s00, s01, s11 = S[_Y4 + b], S[_Y5 + b], S[_Y6 + b]
        s02, s12, s22 = S[_Y7 + b], S[_Y8 + b], S[_Y9 + b]
        u0, u1, u2 = k1 * w2 - k2 * w1, k2 * w0 - k0 * w2, k0 * w1 - k1 * w0
        m0, m1, m2 = s00 * w0 + s01 * w1 + s02 * w2, s01 * w0 + s11 * w1 + s12 * w2, s02 * w0 + s12 * w1 + s22 * w2
        S[_BK0 + b] += bk0 + s00 * d0 + s01 * d1 + s02 * d2 + w1 * m2 - w2 * m1
        S[_BK1 + b] += bk1 + s01 * d0 + s11 * d1 + s12 * d2 + w2 * m0 - w0 * m2
        S[_BK2 + b] += bk2 + s02 * d0 + s12 * d1 + s22 * d2 + w0 * m1 - w1 * m0
        S[_BD0 + b] += bd0 + s00 * k0 + s01 * k1 + s02 * k2
        S[_BD1 + b] += bd1 + s01 * k0 + s11 * k1 + s12 * k2
        S[_BD2 + b] += bd2 + s02 * k0 + s12 * k1 + s22 * k2
        S[_BW0 + b] += bw0 + s00 * u0 + s01 * u1 + s02 * u2 + m1 * k2 - m2 * k1
        S[_BW1 + b] += bw1 + s01 * u0 + s11 * u1 + s12 * u2 + m2 * k0 - m0 * k2
        S[_BW2 + b] += bw2 + s02 * u0 + s12 * u1 + s22 * u2 + m0 * k1 - m1 * k0


@kernel
def _screw_to_parent(S: FloatArray, slide: float) -> None:
    """Convert the derivative by a screw at the link to that by the screw at the parent, in the same rows."""
    for b in range(BLOCK):
        k0, k1, k2 = S[_BK0 + b], S[_BK1 + b], S[_BK2 + b]
        l0, l1, l2 = S[_BL0 + b], S[_BL1 + b], S[_BL2 + b]
        if slide == 0.0:
            S[_Q0 + b] -= S[_K1 + b] * k2 - S[_K2 + b] * k1 + S[_L1 + b] * l2 - S[_L2 + b] * l1
            S[_Q1 + b] -= S[_K2 + b] * k0 - S[_K0 + b] * k2 + S[_L2 + b] * l0 - S[_L0 + b] * l2
            S[_Q2 + b] -= S[_K0 + b] * k1 - S[_K1 + b] * k0 + S[_L0 + b] * l1 - S[_L1 + b] * l0
        v0 = S[_R0 + b] * l0 + S[_R1 + b] * l1 + S[_R2 + b] * l2
        v1 = S[_R3 + b] * l0 + S[_R4 + b] * l1 + S[_R5 + b] * l2
        v2 = S[_R6 + b] * l0 + S[_R7 + b] * l1 + S[_R8 + b] * l2
        p0, p1, p2 = S[_P0 + b], S[_P1 + b], S[_P2 + b]
        S[_BK0 + b] = S[_R0 + b] * k0 + S[_R1 + b] * k1 + S[_R2 + b] * k2 + p1 * v2 - p2 * v1
        S[_BK1 + b] = S[_R3 + b] * k0 + S[_R4 + b] * k1 + S[_R5 + b] * k2 + p2 * v0 - p0 * v2
        S[_BK2 + b] = S[_R6 + b] * k0 + S[_R7 + b] * k1 + S[_R8 + b] * k2 + p0 * v1 - p1 * v0
        S[_BL0 + b], S[_BL1 + b], S[_BL2 + b] = v0, v1, v2
        if slide != 0.0:
            S[_Q0 + b] += v1 * S[_PK2 + b] - v2 * S[_PK1 + b]
            S[_Q1 + b] += v2 * S[_PK0 + b] - v0 * S[_PK2 + b]
            S[_Q2 + b] += v0 * S[_PK1 + b] - v1 * S[_PK0 + b]


@kernel
def _motion_to_parent(
    S: FloatArray, g: FloatArray, dqi: FloatArray, q_bar: FloatArray, dq_bar: FloatArray, ddq_bar: FloatArray
) -> None:
    """Convert the derivative by a link's motion to that by its parent's, and by the joint's own (BLOCK,) states."""
    turn = g[36]
    slide = 1.0 - turn
    e0, e1, e2 = g[33], g[34], g[35]
    for b in range(BLOCK):
        rate = dqi[b]
        bw0, bw1, bw2 = S[_BW0 + b], S[_BW1 + b], S[_BW2 + b]
        bd0, bd1, bd2 = S[_BD0 + b], S[_BD1 + b], S[_BD2 + b]
        ba0, ba1, ba2 = S[_BA0 + b], S[_BA1 + b], S[_BA2 + b]
        u0, u1, u2 = S[_U0 + b], S[_U1 + b], S[_U2 + b]
        c0, c1, c2 = turn * bd0 + 2.0 * slide * ba0, turn * bd1 + 2.0 * slide * ba1, turn * bd2 + 2.0 * slide * ba2
        ddq_bar[b] += turn * (e0 * bd0 + e1 * bd1 + e2 * bd2) + slide * (e0 * ba0 + e1 * ba1 + e2 * ba2)
        across = (u1 * e2 - u2 * e1) * c0 + (u2 * e0 - u0 * e2) * c1 + (u0 * e1 - u1 * e0) * c2
        dq_bar[b] += turn * (e0 * bw0 + e1 * bw1 + e2 * bw2) + across
        bu0 = bw0 + rate * (e1 * c2 - e2 * c1)
        bu1 = bw1 + rate * (e2 * c0 - e0 * c2)
        bu2 = bw2 + rate * (e0 * c1 - e1 * c0)
        v0, v1, v2 = S[_V0 + b], S[_V1 + b], S[_V2 + b]
        x0, x1, x2 = S[_X0 + b], S[_X1 + b], S[_X2 + b]
        r0, r1, r2 = S[_R0 + b], S[_R1 + b], S[_R2 + b]
        r3, r4, r5 = S[_R3 + b], S[_R4 + b], S[_R5 + b]
        r6, r7, r8 = S[_R6 + b], S[_R7 + b], S[_R8 + b]
        p0, p1, p2 = S[_P0 + b], S[_P1 + b], S[_P2 + b]
        w0, w1, w2 = S[_PW0 + b], S[_PW1 + b], S[_PW2 + b]
        d0, d1, d2 = S[_PD0 + b], S[_PD1 + b], S[_PD2 + b]
        o0 = r0 * ba0 + r1 * ba1 + r2 * ba2
        o1 = r3 * ba0 + r4 * ba1 + r5 * ba2
        o2 = r6 * ba0 + r7 * ba1 + r8 * ba2
        t0, t1, t2 = w1 * p2 - w2 * p1, w2 * p0 - w0 * p2, w0 * p1 - w1 * p0
        s0, s1, s2 = o1 * w2 - o2 * w1, o2 * w0 - o0 * w2, o0 * w1 - o1 * w0  # derivative by t
        S[_NW0 + b] = r0 * bu0 + r1 * bu1 + r2 * bu2 + t1 * o2 - t2 * o1 + p1 * s2 - p2 * s1
        S[_NW1 + b] = r3 * bu0 + r4 * bu1 + r5 * bu2 + t2 * o0 - t0 * o2 + p2 * s0 - p0 * s2
        S[_NW2 + b] = r6 * bu0 + r7 * bu1 + r8 * bu2 + t0 * o1 - t1 * o0 + p0 * s1 - p1 * s0
        S[_ND0 + b] = r0 * bd0 + r1 * bd1 + r2 * bd2 + p1 * o2 - p2 * o1
        S[_ND1 + b] = r3 * bd0 + r4 * bd1 + r5 * bd2 + p2 * o0 - p0 * o2
        S[_ND2 + b] = r6 * bd0 + r7 * bd1 + r8 * bd2 + p0 * o1 - p1 * o0
        S[_NA0 + b], S[_NA1 + b], S[_NA2 + b] = o0, o1, o2
        m0 = u1 * bu2 - u2 * bu1 + v1 * bd2 - v2 * bd1 + x1 * ba2 - x2 * ba1
        m1 = u2 * bu0 - u0 * bu2 + v2 * bd0 - v0 * bd2 + x2 * ba0 - x0 * ba2
        m2 = u0 * bu1 - u1 * bu0 + v0 * bd1 - v1 * bd0 + x0 * ba1 - x1 * ba0
        z0 = o1 * d2 - o2 * d1 + s1 * w2 - s2 * w1  # derivative by the link's origin
        z1 = o2 * d0 - o0 * d2 + s2 * w0 - s0 * w2
        z2 = o0 * d1 - o1 * d0 + s0 * w1 - s1 * w0
        turned = e0 * (S[_Q0 + b] - m0) + e1 * (S[_Q1 + b] - m1) + e2 * (S[_Q2 + b] - m2)
        slid = g[30] * (S[_Q0 + b] + z0) + g[31] * (S[_Q1 + b] + z1) + g[32] * (S[_Q2 + b] + z2)
        q_bar[b] += turn * turned + slide * slid


@kernel
def link_columns_adjoint(
    geometry: FloatArray, gravity: FloatArray, states: FloatArray, bar: FloatArray, states_bar: FloatArray,
    work: AdjointWork,
) -> None:  # fmt: skip
    """Add to `states_bar` (3, n, BLOCK) the derivative of `sum(bar * link_columns)` by `q, dq, ddq`, the `states`.

    `bar` (n, n, 10 * BLOCK) is by the columns as `rt_core.model.regressor.link_columns` writes them, `bar[k, j]` with
    `j <= k`.
    """
    n = geometry.shape[0]
    motion, screws, screws_bar, S = work
    _chain(geometry, gravity, states, work)
    screws_bar[:] = 0.0
    S[_NW0 : _NW0 + 9 * BLOCK] = 0.0
    for i in range(n - 1, -1, -1):
        g = geometry[i]
        slide = 1.0 - g[36]
        S[: _MOTION * BLOCK] = motion[i]
        S[_BW0 : _BW0 + 9 * BLOCK] = S[_NW0 : _NW0 + 9 * BLOCK]
        S[_Q0 : _Q0 + 3 * BLOCK] = 0.0
        for j in range(i + 1):
            S[_K0 : _K0 + 6 * BLOCK] = screws[i, j]
            S[_Y0 : _Y0 + 10 * BLOCK] = bar[i, j]
            S[_BK0 : _BK0 + 6 * BLOCK] = screws_bar[j]
            _through_columns(S)
            if j < i:
                if slide != 0.0:
                    S[_PK0 : _PK0 + 6 * BLOCK] = screws[i - 1, j]
                _screw_to_parent(S, slide)
                screws_bar[j, :] = S[_BK0 : _BK0 + 6 * BLOCK]
        if i > 0:
            S[_PW0 : _PW0 + 9 * BLOCK] = motion[i - 1, _W0 : _W0 + 9 * BLOCK]
        else:
            S[_PW0 : _PW0 + 9 * BLOCK] = 0.0
        _motion_to_parent(S, g, states[1, i], states_bar[0, i], states_bar[1, i], states_bar[2, i])
