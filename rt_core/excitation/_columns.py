"""Base regressor and prior torque along a motion in one pass over its samples, and the adjoint of both.

Only columns of the regressor that can differ from zero are kept, joint by joint: `Y[row_start[j]:row_start[j + 1]]` are
the columns `row_column` of joint `j`, so that the information `W'W` is a sum of products of small dense matrices.  The
prior torque is from the same link columns.  Samples are padded to whole blocks, with the first state and zero columns.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rt_core.jit import kernel
from rt_core.model import friction as laws
from rt_core.model.parameters import ParameterLayout, standard_layout, standard_parameters
from rt_core.model.regressor import BLOCK, joint_column, link_columns
from rt_core.model.regressor_adjoint import AdjointWork, link_columns_adjoint
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray, IntArray

#: Size of the groups of columns in a product, of which only the lower half is computed.
_GROUP = 24


class ColumnTables(NamedTuple):
    """Arm, columns and terms of the torque for the kernels."""

    geometry: FloatArray  # (n, 37)
    gravity: FloatArray  # (3,)
    inertial: FloatArray  # (n, 10) link parameters, zero where unknown
    copies: IntArray  # (c, 2) link columns that are kept: `(k * n + j) * 10 + element` and the row of `Y`
    law: IntArray  # (E,) joint effects that are kept or known, as in `ParameterLayout`
    shape: FloatArray  # (E, 3)
    motor: FloatArray  # (E, n)
    theta: FloatArray  # (E,) their values in the prior torque
    row: IntArray  # (E, n) row of `Y` of the effect in each joint's torque; -1 where it is not kept


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns that are kept, and their tables."""

    count: int
    row_start: IntArray  # (n + 1,); see the module docstring
    row_column: IntArray  # (R,), likewise
    tables: ColumnTables
    signed: BoolArray  # (E,) effects with a sign that the model does not smooth

    def smooth(self, width: float) -> None:
        """Replace signs that the model does not smooth by `tanh(v/width)`; zero restores the signs."""
        self.tables.shape[self.signed, 2] = width

    @classmethod
    def of(cls, model: RobotModel, layout: ParameterLayout) -> "Columns":
        """Return the tables for the columns of `layout`."""
        n = model.n
        known = replace(model, armature=True, offset=True)  # known rotors and offsets act, parameters or not
        every = standard_layout(known)
        phi = standard_parameters(known, every)
        keys: dict[tuple[int, tuple[float, ...], tuple[float, ...]], int] = {}
        theta: list[float] = []

        def effect(of: ParameterLayout, c: int) -> int:
            key = (int(of.law[c]), tuple(of.shape[c].tolist()), tuple(of.motor[c].tolist()))
            if key not in keys:
                keys[key] = len(keys)
                theta.append(0.0)
            return keys[key]

        kept = {c: effect(layout, c) for c in range(len(layout)) if layout.law[c] != laws.LAW_LINK}
        if model.inertial is not None:
            for at in np.flatnonzero(~every.is_link & (phi != 0.0)):
                theta[effect(every, int(at))] += float(phi[at])
        motor = np.array([key[2] for key in keys]).reshape(-1, n)
        rows = np.full((len(keys), n), -1)
        copies: list[tuple[int, int]] = []
        columns: list[int] = []
        starts = [0]
        for j in range(n):
            for c in range(len(layout)):
                if layout.law[c] == laws.LAW_LINK:
                    k, element = divmod(int(layout.source[c]), 10)
                    if k < j:
                        continue
                    copies.append(((k * n + j) * 10 + element, len(columns)))
                elif layout.motor[c, j] != 0.0:
                    rows[kept[c], j] = len(columns)
                else:
                    continue
                columns.append(c)
            starts.append(len(columns))
        shape = np.array([key[1] for key in keys]).reshape(-1, 3)
        law = np.array([key[0] for key in keys], dtype=np.int64)
        tables = ColumnTables(
            model.geometry, np.asarray(model.gravity, dtype=np.float64),
            np.zeros((n, 10)) if model.inertial is None else np.ascontiguousarray(model.inertial, dtype=np.float64),
            np.array(copies, dtype=np.int64).reshape(-1, 2), law, shape, motor, np.array(theta), rows,
        )  # fmt: skip
        signed = np.isin(law, laws.SIGNED) & (shape[:, 2] == 0.0)
        return cls(len(layout), np.array(starts), np.array(columns, dtype=np.int64), tables, signed)


@kernel
def fill_columns(
    tables: ColumnTables, states: FloatArray, count: int, Y: FloatArray, load: FloatArray, tau: FloatArray
) -> None:
    """Write columns `Y` (R, m), link torque `load` (n, m) and torque `tau` (n, m) at `states` (3, n, m).

    `m` is a multiple of the block; only the first `count` samples count.  Without rows in `Y` only torque is computed.
    """
    n, m = tau.shape
    geometry, gravity, inertial, copies, law, shape, motor, theta, row = tables
    state = np.zeros((4, n, BLOCK))
    links = np.zeros((n, n, 10 * BLOCK))
    value = np.zeros(BLOCK)
    total = np.zeros(BLOCK)
    links_flat = links.reshape(-1)
    Y_flat = Y.reshape(-1)
    keeps = Y.shape[0] > 0
    for start in range(0, m, BLOCK):
        for s in range(3):
            for i in range(n):
                state[s, i, :] = states[s, i, start : start + BLOCK]
        link_columns(geometry, gravity, state, BLOCK, links)
        if keeps:
            for c in range(copies.shape[0]):
                origin = np.uint64(copies[c, 0] * BLOCK)
                target = np.uint64(copies[c, 1] * m + start)
                for b in range(np.uint64(BLOCK)):
                    Y_flat[target + b] = links_flat[origin + b]
        for j in range(n):
            total[:] = 0.0
            for k in range(j, n):
                for e in range(10):
                    weight = inertial[k, e]
                    if weight != 0.0:
                        origin = np.uint64(((k * n + j) * 10 + e) * BLOCK)
                        for b in range(np.uint64(BLOCK)):
                            total[b] += weight * links_flat[origin + b]
            state[3, j, :] = total
            load[j, start : start + BLOCK] = total
            tau[j, start : start + BLOCK] = total
        for c in range(law.shape[0]):
            if not keeps and theta[c] == 0.0:
                continue
            joint_column(law[c], shape[c], motor[c], state, state[3], value)
            for j in range(n):
                weight = motor[c, j]
                if weight == 0.0:
                    continue
                if keeps and row[c, j] >= 0:
                    target = np.uint64(row[c, j] * m + start)
                    for b in range(np.uint64(BLOCK)):
                        Y_flat[target + b] = weight * value[b]
                if theta[c] != 0.0:
                    factor = weight * theta[c]
                    for b in range(BLOCK):
                        tau[j, start + b] += factor * value[b]
    if keeps:
        Y[:, count:] = 0.0


@kernel
def gram(Y: FloatArray, row_start: IntArray, row_column: IntArray, scale: float, out: FloatArray) -> None:
    """Write `scale * W'W` to `out` (p, p), both halves, from the columns `Y` (R, m)."""
    out[:] = 0.0
    for j in range(row_start.size - 1):
        first, last = row_start[j], row_start[j + 1]
        for begin in range(first, last, _GROUP):
            end = min(begin + _GROUP, last)
            product = np.dot(Y[begin:end], Y[first:end].T)
            for r in range(begin, end):
                line = out[row_column[r]]
                values = product[r - begin]
                for s in range(first, r + 1):
                    line[row_column[s]] += values[s - first]
    for r in range(out.shape[0]):
        for s in range(r + 1):
            out[r, s] *= scale
            out[s, r] = out[r, s]


@kernel
def columns_adjoint(
    tables: ColumnTables, states: FloatArray, load: FloatArray, Y_bar: FloatArray, tau_bar: FloatArray,
    states_bar: FloatArray, work: AdjointWork,
) -> None:  # fmt: skip
    """Add to `states_bar` (3, n, m) the derivative of `sum(Y_bar * Y) + sum(tau_bar * tau)` by the states.

    Arguments as in `fill_columns`.
    """
    n, m = tau_bar.shape
    geometry, gravity, inertial, copies, law, shape, motor, theta, row = tables
    state = np.zeros((3, n, BLOCK))
    found = np.zeros((3, n, BLOCK))
    link_bar = np.zeros((n, BLOCK))
    bar = np.zeros((n, n, 10 * BLOCK))
    bar_flat = bar.reshape(-1)
    Y_flat = Y_bar.reshape(-1)
    value_bar = np.zeros(BLOCK)
    for start in range(0, m, BLOCK):
        for s in range(3):
            for i in range(n):
                state[s, i, :] = states[s, i, start : start + BLOCK]
        found[:] = 0.0
        for j in range(n):
            link_bar[j, :] = tau_bar[j, start : start + BLOCK]
        for c in range(law.shape[0]):
            if law[c] == laws.LAW_OFFSET:
                continue
            value_bar[:] = 0.0
            for j in range(n):
                weight = motor[c, j]
                if weight == 0.0:
                    continue
                factor = weight * theta[c]
                for b in range(BLOCK):
                    value_bar[b] += factor * tau_bar[j, start + b]
                if row[c, j] >= 0:
                    origin = np.uint64(row[c, j] * m + start)
                    for b in range(np.uint64(BLOCK)):
                        value_bar[b] += weight * Y_flat[origin + b]
            if law[c] == laws.LAW_ARMATURE or law[c] == laws.LAW_VISCOUS:
                s = 2 if law[c] == laws.LAW_ARMATURE else 1
                for j in range(n):
                    weight = motor[c, j]
                    if weight != 0.0:
                        for b in range(BLOCK):
                            found[s, j, b] += weight * value_bar[b]
                continue
            if law[c] == laws.LAW_COULOMB and shape[c, 0] == 0.0 and shape[c, 2] == 0.0:
                continue
            for b in range(BLOCK):
                position = velocity = force = 0.0
                for j in range(n):
                    weight = motor[c, j]
                    position += weight * state[0, j, b]
                    velocity += weight * state[1, j, b]
                    force += weight * load[j, start + b]
                by_q, by_v, by_load = laws.friction_slopes(law[c], shape[c], position, velocity, force)
                for j in range(n):
                    weight = motor[c, j] * value_bar[b]
                    found[0, j, b] += weight * by_q
                    found[1, j, b] += weight * by_v
                    link_bar[j, b] += weight * by_load
        for k in range(n):
            for j in range(k + 1):
                for e in range(10):
                    weight = inertial[k, e]
                    target = np.uint64(((k * n + j) * 10 + e) * BLOCK)
                    if weight != 0.0:
                        for b in range(BLOCK):
                            bar_flat[target + np.uint64(b)] = weight * link_bar[j, b]
                    else:
                        for b in range(np.uint64(BLOCK)):
                            bar_flat[target + b] = 0.0
        for c in range(copies.shape[0]):
            target = np.uint64(copies[c, 0] * BLOCK)
            origin = np.uint64(copies[c, 1] * m + start)
            for b in range(np.uint64(BLOCK)):
                bar_flat[target + b] += Y_flat[origin + b]
        link_columns_adjoint(geometry, gravity, state, bar, found, work)
        for s in range(3):
            for i in range(n):
                for b in range(BLOCK):
                    states_bar[s, i, start + b] += found[s, i, b]
