"""The regressor `Y(q, dq, ddq)` of `tau = Y(q, dq, ddq) * phi`, in blocks of samples.

Principle of virtual power: joint `j` moves link `k >= j` by the screw `(w, v)`, so that the ten columns of link `k` in
row `j` are `v . f + w . n`, where force `f` and moment `n` about the link's origin are linear in the link's ten
parameters:

    f = m*a + (dw x + w x w x) h            n = h x a + I*dw + w x (I*w)

All quantities are in link `k`'s own coordinates, `a` is the origin's proper acceleration.

Sixteen samples pass through the chain together, one array lane each, so that the compiler vectorises across samples and
intermediate results stay in the first-level cache.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from rt_core.jit import jit, kernel
from rt_core.model import friction as laws
from rt_core.model.parameters import ParameterLayout
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

#: Samples in a block.
BLOCK = 16
Motion: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]

# Rows of the intermediate array of `link_columns` and of its adjoint, as offsets.
_R0, _R1, _R2, _R3, _R4, _R5, _R6, _R7, _R8 = (BLOCK * i for i in range(9))  # rotation of the link in its parent
_P0, _P1, _P2 = (BLOCK * i for i in range(9, 12))  # link origin in the parent
_W0, _W1, _W2 = (BLOCK * i for i in range(12, 15))  # angular velocity
_D0, _D1, _D2 = (BLOCK * i for i in range(15, 18))  # angular acceleration
_A0, _A1, _A2 = (BLOCK * i for i in range(18, 21))  # proper acceleration of the origin
_U0, _U1, _U2 = (BLOCK * i for i in range(21, 24))  # the parent's angular velocity, turned into the link
_V0, _V1, _V2 = (BLOCK * i for i in range(24, 27))  # its angular acceleration
_X0, _X1, _X2 = (BLOCK * i for i in range(27, 30))  # acceleration of the origin as a point of the parent
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8 = (BLOCK * i for i in range(21, 30))  # after them: [dw]x + [w]x^2
_C, _SN = (BLOCK * i for i in range(30, 32))  # cosine and sine of q
_ROWS = 32
_K0, _K1, _K2, _K3, _K4, _K5 = (BLOCK * i for i in range(6))
_Y0, _Y1, _Y2, _Y3, _Y4, _Y5, _Y6, _Y7, _Y8, _Y9 = (BLOCK * i for i in range(10))

# pi/2 in three parts, the first two exact in 33 bits, so that k*part is exact for |k| < 2**20; and the
# minimax polynomials of sine and cosine on [-pi/4, pi/4] (W. J. Cody and W. Waite 1980; fdlibm's figures).
_TWO_OVER_PI = 0.6366197723675814
_PIO2_A = 1.57079632673412561417e00
_PIO2_B = 6.07710050630396597660e-11
_PIO2_C = 2.02226624879595063154e-21


@jit
def _reduce_block(x: FloatArray, S: FloatArray, lanes: int) -> None:
    """Compute the angle from the nearest multiple of pi/2 into row `_C`, the quadrant into row `_SN`.

    Strict arithmetic: reordered, the three parts of pi/2 would be no better than one.
    """
    for b in range(lanes):
        k = np.floor(x[b] * _TWO_OVER_PI + 0.5)
        S[_C + b] = ((x[b] - k * _PIO2_A) - k * _PIO2_B) - k * _PIO2_C
        S[_SN + b] = k - 4.0 * np.floor(0.25 * k)


@kernel
def sincos_block(x: FloatArray, S: FloatArray, lanes: int) -> None:
    """Compute cosine and sine of `x` (lanes,), |x| < 1e6, into rows `_C` and `_SN` of `S`; errors near 1 ulp."""
    _reduce_block(x, S, lanes)
    for b in range(lanes):
        r = S[_C + b]
        z = r * r
        sine = 2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
        sine = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * sine)
        sine = r + r * z * (-1.66666666666666324348e-01 + z * sine)
        cosine = -2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 - z * 1.13596475577881948265e-11)
        cosine = -1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 + z * cosine)
        cosine = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * cosine)
        quadrant = S[_SN + b]
        swap = quadrant == 1.0 or quadrant == 3.0
        c = sine if swap else cosine
        s = cosine if swap else sine
        S[_C + b] = -c if quadrant == 1.0 or quadrant == 2.0 else c
        S[_SN + b] = -s if quadrant >= 2.0 else s


@kernel
def motion_step(g: FloatArray, q: FloatArray, dq: FloatArray, ddq: FloatArray, S: FloatArray, lanes: int) -> None:
    """Replace the motion of a parent in rows `_W0` to `_A2` of `S` by that of the link behind a joint `g` (37,).

    `q, dq, ddq` (lanes,) are the joint's; rows `_R0` to `_P2` receive its placement, and rows `_U0` to `_X2` the
    parent's velocity and acceleration, turned into the link, and the acceleration of the origin as its point.
    """
    turn = g[36]
    slide = 1.0 - turn
    sincos_block(q, S, lanes)
    for b in range(lanes):
        c, s = S[_C + b], S[_SN + b]
        S[_R0 + b] = g[0] + c * g[9] + s * g[18]
        S[_R1 + b] = g[1] + c * g[10] + s * g[19]
        S[_R2 + b] = g[2] + c * g[11] + s * g[20]
        S[_R3 + b] = g[3] + c * g[12] + s * g[21]
        S[_R4 + b] = g[4] + c * g[13] + s * g[22]
        S[_R5 + b] = g[5] + c * g[14] + s * g[23]
        S[_R6 + b] = g[6] + c * g[15] + s * g[24]
        S[_R7 + b] = g[7] + c * g[16] + s * g[25]
        S[_R8 + b] = g[8] + c * g[17] + s * g[26]
        S[_P0 + b] = g[27] + q[b] * g[30]
        S[_P1 + b] = g[28] + q[b] * g[31]
        S[_P2 + b] = g[29] + q[b] * g[32]
    ex, ey, ez = g[33], g[34], g[35]
    for b in range(lanes):
        tx = S[_W1 + b] * S[_P2 + b] - S[_W2 + b] * S[_P1 + b]
        ty = S[_W2 + b] * S[_P0 + b] - S[_W0 + b] * S[_P2 + b]
        tz = S[_W0 + b] * S[_P1 + b] - S[_W1 + b] * S[_P0 + b]
        ox = S[_A0 + b] + S[_D1 + b] * S[_P2 + b] - S[_D2 + b] * S[_P1 + b] + S[_W1 + b] * tz - S[_W2 + b] * ty
        oy = S[_A1 + b] + S[_D2 + b] * S[_P0 + b] - S[_D0 + b] * S[_P2 + b] + S[_W2 + b] * tx - S[_W0 + b] * tz
        oz = S[_A2 + b] + S[_D0 + b] * S[_P1 + b] - S[_D1 + b] * S[_P0 + b] + S[_W0 + b] * ty - S[_W1 + b] * tx
        ux = S[_R0 + b] * S[_W0 + b] + S[_R3 + b] * S[_W1 + b] + S[_R6 + b] * S[_W2 + b]
        uy = S[_R1 + b] * S[_W0 + b] + S[_R4 + b] * S[_W1 + b] + S[_R7 + b] * S[_W2 + b]
        uz = S[_R2 + b] * S[_W0 + b] + S[_R5 + b] * S[_W1 + b] + S[_R8 + b] * S[_W2 + b]
        vx = S[_R0 + b] * S[_D0 + b] + S[_R3 + b] * S[_D1 + b] + S[_R6 + b] * S[_D2 + b]
        vy = S[_R1 + b] * S[_D0 + b] + S[_R4 + b] * S[_D1 + b] + S[_R7 + b] * S[_D2 + b]
        vz = S[_R2 + b] * S[_D0 + b] + S[_R5 + b] * S[_D1 + b] + S[_R8 + b] * S[_D2 + b]
        xx = S[_R0 + b] * ox + S[_R3 + b] * oy + S[_R6 + b] * oz
        xy = S[_R1 + b] * ox + S[_R4 + b] * oy + S[_R7 + b] * oz
        xz = S[_R2 + b] * ox + S[_R5 + b] * oy + S[_R8 + b] * oz
        cx = (uy * ez - uz * ey) * dq[b]
        cy = (uz * ex - ux * ez) * dq[b]
        cz = (ux * ey - uy * ex) * dq[b]
        S[_U0 + b], S[_U1 + b], S[_U2 + b] = ux, uy, uz
        S[_V0 + b], S[_V1 + b], S[_V2 + b] = vx, vy, vz
        S[_X0 + b], S[_X1 + b], S[_X2 + b] = xx, xy, xz
        S[_W0 + b] = ux + turn * ex * dq[b]
        S[_W1 + b] = uy + turn * ey * dq[b]
        S[_W2 + b] = uz + turn * ez * dq[b]
        S[_D0 + b] = vx + turn * (ex * ddq[b] + cx)
        S[_D1 + b] = vy + turn * (ey * ddq[b] + cy)
        S[_D2 + b] = vz + turn * (ez * ddq[b] + cz)
        S[_A0 + b] = xx + slide * (ex * ddq[b] + 2.0 * cx)
        S[_A1 + b] = xy + slide * (ey * ddq[b] + 2.0 * cy)
        S[_A2 + b] = xz + slide * (ez * ddq[b] + 2.0 * cz)


@kernel
def move_screw(K: FloatArray, S: FloatArray, lanes: int) -> None:
    """Move a joint's screw `K` (6 * BLOCK,), angular and linear, from the parent's origin to the link's."""
    for b in range(lanes):
        vx = K[_K3 + b] + K[_K1 + b] * S[_P2 + b] - K[_K2 + b] * S[_P1 + b]
        vy = K[_K4 + b] + K[_K2 + b] * S[_P0 + b] - K[_K0 + b] * S[_P2 + b]
        vz = K[_K5 + b] + K[_K0 + b] * S[_P1 + b] - K[_K1 + b] * S[_P0 + b]
        ux, uy, uz = K[_K0 + b], K[_K1 + b], K[_K2 + b]
        K[_K0 + b] = S[_R0 + b] * ux + S[_R3 + b] * uy + S[_R6 + b] * uz
        K[_K1 + b] = S[_R1 + b] * ux + S[_R4 + b] * uy + S[_R7 + b] * uz
        K[_K2 + b] = S[_R2 + b] * ux + S[_R5 + b] * uy + S[_R8 + b] * uz
        K[_K3 + b] = S[_R0 + b] * vx + S[_R3 + b] * vy + S[_R6 + b] * vz
        K[_K4 + b] = S[_R1 + b] * vx + S[_R4 + b] * vy + S[_R7 + b] * vz
        K[_K5 + b] = S[_R2 + b] * vx + S[_R5 + b] * vy + S[_R8 + b] * vz


@kernel
def own_screw(K: FloatArray, g: FloatArray, lanes: int) -> None:
    """Write the screw of a joint `g` (37,) at its own link into `K` (6 * BLOCK,)."""
    turn = g[36]
    slide = 1.0 - turn
    for b in range(lanes):
        K[_K0 + b], K[_K1 + b], K[_K2 + b] = turn * g[33], turn * g[34], turn * g[35]
        K[_K3 + b], K[_K4 + b], K[_K5 + b] = slide * g[33], slide * g[34], slide * g[35]


@kernel
def link_columns(geometry: FloatArray, gravity: FloatArray, state: FloatArray, lanes: int, out: FloatArray) -> None:
    """Compute the columns of all links for the first `lanes` samples of a block.

    `state` (3 or more, n, BLOCK) begins with `q, dq, ddq`; `out` (n, n, 10 * BLOCK) receives in `out[k, j]` the ten
    columns of link `k` in row `j <= k`, one after the other; entries with `j > k` stay unchanged.

    All intermediate rows are in one array at constant offsets, so that the compiler can prove that they do not overlap.
    """
    q, dq, ddq = state[0], state[1], state[2]
    n = q.shape[0]
    S = np.empty(_ROWS * BLOCK)
    S[_W0:_A0] = 0.0
    screws = np.empty((n, 6 * BLOCK))  # (angular, linear) of joint j at the present link's origin
    for k in range(3):
        for b in range(lanes):
            S[_A0 + k * BLOCK + b] = -gravity[k]
    for i in range(n):
        g = geometry[i]
        motion_step(g, q[i], dq[i], ddq[i], S, lanes)
        for b in range(lanes):  # B = [dw]x + [w]x^2
            S[_B0 + b] = -S[_W1 + b] * S[_W1 + b] - S[_W2 + b] * S[_W2 + b]
            S[_B1 + b] = S[_W0 + b] * S[_W1 + b] - S[_D2 + b]
            S[_B2 + b] = S[_W0 + b] * S[_W2 + b] + S[_D1 + b]
            S[_B3 + b] = S[_W0 + b] * S[_W1 + b] + S[_D2 + b]
            S[_B4 + b] = -S[_W0 + b] * S[_W0 + b] - S[_W2 + b] * S[_W2 + b]
            S[_B5 + b] = S[_W1 + b] * S[_W2 + b] - S[_D0 + b]
            S[_B6 + b] = S[_W0 + b] * S[_W2 + b] - S[_D1 + b]
            S[_B7 + b] = S[_W1 + b] * S[_W2 + b] + S[_D0 + b]
            S[_B8 + b] = -S[_W0 + b] * S[_W0 + b] - S[_W1 + b] * S[_W1 + b]
        for j in range(i + 1):
            K = screws[j]
            if j < i:
                move_screw(K, S, lanes)
            else:
                own_screw(K, g, lanes)
            Y = out[i, j]
            for b in range(lanes):
                Y[_Y0 + b] = K[_K3 + b] * S[_A0 + b] + K[_K4 + b] * S[_A1 + b] + K[_K5 + b] * S[_A2 + b]
                Y[_Y1 + b] = (
                    S[_B0 + b] * K[_K3 + b] + S[_B3 + b] * K[_K4 + b] + S[_B6 + b] * K[_K5 + b]
                    + S[_A1 + b] * K[_K2 + b] - S[_A2 + b] * K[_K1 + b]
                )  # fmt: skip
                Y[_Y2 + b] = (
                    S[_B1 + b] * K[_K3 + b] + S[_B4 + b] * K[_K4 + b] + S[_B7 + b] * K[_K5 + b]
                    + S[_A2 + b] * K[_K0 + b] - S[_A0 + b] * K[_K2 + b]
                )  # fmt: skip
                Y[_Y3 + b] = (
                    S[_B2 + b] * K[_K3 + b] + S[_B5 + b] * K[_K4 + b] + S[_B8 + b] * K[_K5 + b]
                    + S[_A0 + b] * K[_K1 + b] - S[_A1 + b] * K[_K0 + b]
                )  # fmt: skip
            for b in range(lanes):
                ux = K[_K1 + b] * S[_W2 + b] - K[_K2 + b] * S[_W1 + b]
                uy = K[_K2 + b] * S[_W0 + b] - K[_K0 + b] * S[_W2 + b]
                uz = K[_K0 + b] * S[_W1 + b] - K[_K1 + b] * S[_W0 + b]
                Y[_Y4 + b] = K[_K0 + b] * S[_D0 + b] + ux * S[_W0 + b]
                Y[_Y5 + b] = K[_K0 + b] * S[_D1 + b] + K[_K1 + b] * S[_D0 + b] + ux * S[_W1 + b] + uy * S[_W0 + b]
                Y[_Y6 + b] = K[_K1 + b] * S[_D1 + b] + uy * S[_W1 + b]
                Y[_Y7 + b] = K[_K0 + b] * S[_D2 + b] + K[_K2 + b] * S[_D0 + b] + ux * S[_W2 + b] + uz * S[_W0 + b]
                Y[_Y8 + b] = K[_K1 + b] * S[_D2 + b] + K[_K2 + b] * S[_D1 + b] + uy * S[_W2 + b] + uz * S[_W1 + b]
                Y[_Y9 + b] = K[_K2 + b] * S[_D2 + b] + uz * S[_W2 + b]


@kernel
def joint_column(
    law: int, shape: FloatArray, motor: FloatArray, state: FloatArray, load: FloatArray, value: FloatArray
) -> None:
    """Compute one joint effect for one block, before its distribution to the rows: `value` (BLOCK,).

    `shape` (3,) and `motor` (n,) are the column's rows of the layout; `state` (3 or more, n, BLOCK) begins with `q, dq,
    ddq`, `load` is (n, BLOCK).  For a temperature term it is the effect per kelvin, to be multiplied by `warm_column`.
    """
    q, dq, ddq = state[0], state[1], state[2]
    n = motor.shape[0]
    for b in range(BLOCK):
        value[b] = 1.0 if law == laws.LAW_OFFSET else 0.0
    if law == laws.LAW_OFFSET:
        return
    for m in range(n):
        weight = motor[m]
        if weight != 0.0:
            rate = ddq[m] if law == laws.LAW_ARMATURE else dq[m]
            for b in range(BLOCK):
                value[b] += weight * rate[b]
    if law in (laws.LAW_ARMATURE, laws.LAW_VISCOUS):
        return
    if law == laws.LAW_COULOMB and shape[0] == 0.0 and shape[2] == 0.0:
        for b in range(BLOCK):
            value[b] = np.sign(value[b])
        return
    for b in range(BLOCK):
        position = 0.0
        force = 0.0
        for m in range(n):
            position += motor[m] * q[m, b]
            force += motor[m] * load[m, b]
        value[b] = laws.friction_effect(law, shape, position, value[b], force)


@kernel
def warm_column(law: int, warmth: FloatArray, value: FloatArray) -> None:
    """Multiply `value` (BLOCK,) of a temperature term by `warmth` (BLOCK,) [K] of the joint above the reference."""
    if law in laws.TEMPERATURE:
        for b in range(BLOCK):
            value[b] *= warmth[b]


@kernel
def joint_effect(law: int, shape: FloatArray, motor: FloatArray, state: Motion, load: FloatArray) -> float:
    """Return one joint effect of one sample, per kelvin as in `joint_column`: `state` is `q, dq, ddq` (n,) each."""
    q, dq, ddq = state
    if law == laws.LAW_OFFSET:
        return 1.0
    value = 0.0
    for m in range(motor.shape[0]):
        if motor[m] != 0.0:
            value += motor[m] * (ddq[m] if law == laws.LAW_ARMATURE else dq[m])
    if law in (laws.LAW_ARMATURE, laws.LAW_VISCOUS):
        return value
    if law == laws.LAW_COULOMB and shape[0] == 0.0 and shape[2] == 0.0:
        return float(np.sign(value))
    position = 0.0
    force = 0.0
    for m in range(motor.shape[0]):
        position += motor[m] * q[m]
        force += motor[m] * load[m]
    return laws.friction_effect(law, shape, position, value, force)


class ColumnArrays(NamedTuple):
    """An arm and the columns of a layout for the kernels; see `RobotModel` and `ParameterLayout`."""

    geometry: FloatArray
    gravity: FloatArray
    law: IntArray
    source: IntArray
    motor: FloatArray
    shape: FloatArray

    @classmethod
    def of(cls, model: RobotModel, layout: ParameterLayout) -> ColumnArrays:
        """Return the arrays of `model` and `layout`."""
        return cls(model.geometry, model.gravity, layout.law, layout.source, layout.motor, layout.shape)


class Samples(NamedTuple):
    """States (N, n); `load` and `warmth`, above the reference temperature, have no rows if no column needs them."""

    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    load: FloatArray
    warmth: FloatArray


@kernel
def fill_block(samples: Samples, start: int, size: int, state: FloatArray) -> None:
    """Write `size` samples from `start` on to `state` (5, n, BLOCK)."""
    q, dq, ddq, load, warmth = samples
    count, n = q.shape
    loaded, warmed = load.shape[0] == count, warmth.shape[0] == count
    for b in range(size):
        for i in range(n):
            state[0, i, b] = q[start + b, i]
            state[1, i, b] = dq[start + b, i]
            state[2, i, b] = ddq[start + b, i]
            if loaded:
                state[3, i, b] = load[start + b, i]
            if warmed:
                state[4, i, b] = warmth[start + b, i]


@kernel
def _regressor_batch(arrays: ColumnArrays, samples: Samples, out: FloatArray) -> None:
    count, n = samples.q.shape
    geometry, gravity, law, source, motor, shape = arrays
    columns = law.shape[0]
    state = np.zeros((5, n, BLOCK))
    links = np.zeros((n, n, 10 * BLOCK))
    value = np.zeros(BLOCK)
    # Flat arrays and unsigned offsets: no view is made per column and no index is checked for its sign.
    flat = out.reshape(-1)
    links_flat = links.reshape(-1)
    single = np.full(columns, -1)  # the joint of an effect that acts on one joint alone with unit weight
    for c in range(columns):
        plain = law[c] == laws.LAW_ARMATURE or law[c] == laws.LAW_VISCOUS or law[c] == laws.LAW_OFFSET
        plain = plain or (law[c] == laws.LAW_COULOMB and shape[c, 0] == 0.0 and shape[c, 2] == 0.0)
        if plain and np.count_nonzero(motor[c]) == 1 and motor[c, source[c]] == 1.0:
            single[c] = source[c]
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        fill_block(samples, start, size, state)
        link_columns(geometry, gravity, state, BLOCK, links)
        for c in range(columns):
            if law[c] == laws.LAW_LINK:
                k = source[c] // 10
                for j in range(k + 1):
                    origin = np.uint64(((k * n + j) * 10 + source[c] - 10 * k) * BLOCK)
                    target = np.uint64((j * columns + c) * count + start)
                    if size == BLOCK:
                        for b in range(np.uint64(BLOCK)):
                            flat[target + b] = links_flat[origin + b]
                    else:
                        for b in range(np.uint64(size)):
                            flat[target + b] = links_flat[origin + b]
            elif single[c] >= 0:
                j = single[c]
                target = np.uint64((j * columns + c) * count + start)
                rate = state[2, j] if law[c] == laws.LAW_ARMATURE else state[1, j]
                if law[c] == laws.LAW_OFFSET:
                    for b in range(np.uint64(size)):
                        flat[target + b] = 1.0
                elif law[c] == laws.LAW_COULOMB:
                    for b in range(np.uint64(size)):
                        flat[target + b] = np.sign(rate[b])
                else:
                    for b in range(np.uint64(size)):
                        flat[target + b] = rate[b]
            else:
                joint_column(law[c], shape[c], motor[c], state, state[3], value)
                warm_column(law[c], state[4, source[c]], value)
                for j in range(n):
                    weight = motor[c, j]
                    if weight != 0.0:
                        target = np.uint64((j * columns + c) * count + start)
                        for b in range(np.uint64(size)):
                            flat[target + b] = weight * value[b]


def regressor_columns(
    model: RobotModel, layout: ParameterLayout, q: FloatArray, dq: FloatArray, ddq: FloatArray,
    out: FloatArray | None = None, *, load: FloatArray | None = None, temperature: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the regressor of the columns of `layout`, stored by columns: (n, P, N) for states `q, dq, ddq` (N, n).

    A layout with load-dependent friction needs `load` (N, n), the torque of the links at each joint, and one with
    friction that follows temperature needs `temperature` (N, n) [degC]; `ValueError` if it is missing or has another
    shape than `q`.  For a long recording in chunks, pass the same `out` (n, P, N) each time: entries that are
    structurally zero are not written, so it must come from an earlier call or be zero.
    """
    q, dq, ddq = (np.ascontiguousarray(np.atleast_2d(x), dtype=np.float64) for x in (q, dq, ddq))
    shape = (model.n, len(layout), q.shape[0])
    if out is None:
        out = np.zeros(shape)
    elif out.shape != shape or out.dtype != np.float64 or not out.flags.c_contiguous:
        raise ValueError(f"out must be a C-ordered float64 array of shape {shape}, not {out.dtype} {out.shape}")
    if layout.has_load and load is None:
        raise ValueError("load-dependent friction needs the load torque of each joint")
    if layout.has_temperature and temperature is None:
        raise ValueError("friction that follows temperature needs the temperature of each joint")
    given = []
    for name, values in (("load", load), ("temperature", temperature)):
        x = np.zeros((0, model.n)) if values is None else np.atleast_2d(np.asarray(values, dtype=np.float64))
        if values is not None and x.shape != q.shape:
            raise ValueError(
                f"{name} has shape {x.shape}, the states have {q.shape}: give one value a joint and sample"
            )
        given.append(np.ascontiguousarray(x))
    samples = Samples(q, dq, ddq, given[0], given[1] - laws.REFERENCE_TEMPERATURE)
    _regressor_batch(ColumnArrays.of(model, layout), samples, out)
    return out


def regressor(
    model: RobotModel, layout: ParameterLayout, q: FloatArray, dq: FloatArray, ddq: FloatArray, *,
    load: FloatArray | None = None, temperature: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the regressor (N, n, P) of the columns of `layout` for states `q, dq, ddq` (N, n), a view by columns."""
    return regressor_columns(model, layout, q, dq, ddq, load=load, temperature=temperature).transpose(2, 0, 1)
