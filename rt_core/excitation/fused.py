"""Objective and all limits of a Fourier series in few passes over its samples, with derivatives by the adjoint.

It is some ten times faster than the reference code in `rt_core.excitation.objective` and
`rt_core.excitation.constraints`; derivatives by all coefficients cost a few evaluations.

Coefficients are `C` (n, 1 + 2H): mean position, then `a`, then `b`.  Shares of the limits, positive if beyond, are
(rows, N): eight for each joint (position below, above; velocity, acceleration, torque, each up and down), then those of
`rt_core.excitation.workspace_regions.WorkspaceLimits`.  The share of time at low speed is one number per joint.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rt_core.excitation._columns import Columns, columns_adjoint, fill_columns, gram
from rt_core.excitation._measure import measure, measure_gradient
from rt_core.excitation._reversals import reversal_states
from rt_core.excitation._workspace_kernels import (
    points_adjoint,
    workspace_points,
    workspace_shares,
    workspace_shares_adjoint,
)
from rt_core.excitation.constraints import SLOW_POWER, TORQUE_RESERVE, Constraints
from rt_core.excitation.fourier import Basis
from rt_core.excitation.objective import Excitation
from rt_core.jit import jit, kernel
from rt_core.model.regressor import BLOCK
from rt_core.model.regressor_adjoint import AdjointWork, adjoint_work
from rt_core.types import FloatArray

#: Rows of a joint among the shares.
JOINT_ROWS = 8
#: Lower, upper, velocity, acceleration, effort (n,) each.
JointLimits: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


@kernel
def series_states(basis: FloatArray, C: FloatArray, states: FloatArray) -> None:
    """Write `states` (3, n, m) of coefficients `C` (n, h) on `basis` (3, h, m)."""
    n, h = C.shape
    m = states.shape[2]
    for s in range(3):
        for i in range(n):
            out = states[s, i]
            out[:] = 0.0
            for k in range(h):
                weight = C[i, k]
                line = basis[s, k]
                for t in range(m):
                    out[t] += weight * line[t]


@kernel
def series_adjoint(basis: FloatArray, states_bar: FloatArray, C_bar: FloatArray) -> None:
    """Write `C_bar` (n, h), the derivative of `sum(states_bar * states)` by the coefficients."""
    n, h = C_bar.shape
    m = states_bar.shape[2]
    for i in range(n):
        for k in range(h):
            total = 0.0
            for s in range(3):
                line, bar = basis[s, k], states_bar[s, i]
                for t in range(m):
                    total += line[t] * bar[t]
            C_bar[i, k] = total


@jit
def joint_excess(
    states: FloatArray, tau: FloatArray, count: int, limits: JointLimits, overshoot: float, reserve: float
) -> float:
    """Return the sum of the relative excesses of all joints, as `Constraints.excess`; no torque if `tau` is empty."""
    lower, upper, velocity, acceleration, effort = limits
    total = 0.0
    for i in range(lower.size):
        low = high = states[0, i, 0]
        rate = change = peak = 0.0
        for t in range(count):
            low, high = min(low, states[0, i, t]), max(high, states[0, i, t])
            rate = max(rate, abs(states[1, i, t]))
            change = max(change, abs(states[2, i, t]))
        for t in range(count if tau.size else 0):
            peak = max(peak, abs(tau[i, t]))
        middle, reach = 0.5 * (low + high), 0.5 * overshoot * (high - low)
        half = 0.5 * (upper[i] - lower[i])
        total += max((lower[i] - middle + reach) / half, 0.0) + max((middle + reach - upper[i]) / half, 0.0)
        total += max(overshoot * rate / velocity[i] - 1.0, 0.0)
        total += max(overshoot * change / acceleration[i] - 1.0, 0.0)
        total += max(reserve * peak / effort[i] - 1.0, 0.0)
    return total


@jit
def joint_shares(
    states: FloatArray, tau: FloatArray, limits: JointLimits, overshoot: float, reserve: float, shares: FloatArray
) -> None:
    """Write eight rows per joint to `shares` (8 n, m)."""
    lower, upper, velocity, acceleration, effort = limits
    n, m = states.shape[1], states.shape[2]
    for i in range(n):
        half = 0.5 * (upper[i] - lower[i])
        at = 8 * i
        for t in range(m):
            # with samples this far inside, values between them are inside
            shares[at, t] = (lower[i] - states[0, i, t]) / half + (overshoot - 1.0)
            shares[at + 1, t] = (states[0, i, t] - upper[i]) / half + (overshoot - 1.0)
            v = overshoot * states[1, i, t] / velocity[i]
            a = overshoot * states[2, i, t] / acceleration[i]
            f = reserve * tau[i, t] / effort[i]
            shares[at + 2, t], shares[at + 3, t] = v - 1.0, -v - 1.0
            shares[at + 4, t], shares[at + 5, t] = a - 1.0, -a - 1.0
            shares[at + 6, t], shares[at + 7, t] = f - 1.0, -f - 1.0


@jit
def joint_shares_adjoint(
    bar: FloatArray, limits: JointLimits, overshoot: float, reserve: float, states_bar: FloatArray, tau_bar: FloatArray
) -> None:
    """Add the derivative of `sum(bar * shares)` to `states_bar` (3, n, m) and `tau_bar` (n, m)."""
    lower, upper, velocity, acceleration, effort = limits
    n, m = tau_bar.shape
    for i in range(n):
        half = 0.5 * (upper[i] - lower[i])
        at = 8 * i
        for t in range(m):
            states_bar[0, i, t] += (bar[at + 1, t] - bar[at, t]) / half
            states_bar[1, i, t] += overshoot / velocity[i] * (bar[at + 2, t] - bar[at + 3, t])
            states_bar[2, i, t] += overshoot / acceleration[i] * (bar[at + 4, t] - bar[at + 5, t])
            tau_bar[i, t] += reserve / effort[i] * (bar[at + 6, t] - bar[at + 7, t])


@dataclass(eq=False)
class Forward:
    """Results of an evaluation, overwritten by the next one."""

    information: FloatArray  # (p, p)
    shares: FloatArray  # (rows, N) positive where beyond a limit
    slow: FloatArray  # (n,) share of time at low speed


class FusedEvaluation:
    """Evaluate Fourier series on `grid` for `excitation` under `constraints`.

    Parameters
    ----------
    excitation : Excitation
    constraints : Constraints
    grid : Basis
        Of one whole period.
    smoothing : float
        Velocity [rad/s or m/s] of `tanh(v/smoothing)` instead of signs that the model does not smooth; with zero signs
        are kept, and constant in derivatives.
    """

    def __init__(self, excitation: Excitation, constraints: Constraints, grid: Basis, smoothing: float = 0.0) -> None:
        model = excitation.model
        n = model.n
        self.excitation = excitation
        self.constraints = constraints
        self.count = grid.times.size
        self.overshoot = grid.overshoot
        self.columns = Columns.of(model, excitation.layout)
        self.columns.smooth(smoothing)
        self.harmonics = grid.harmonics
        m = -(-self.count // BLOCK) * BLOCK
        self._basis = np.ascontiguousarray(grid.stacked(m))
        c = self.columns
        limits = constraints.limits
        self._torque = constraints.torque is not None
        effort = limits.effort if self._torque else np.full(n, np.inf)
        self._limits = (limits.lower, limits.upper, limits.velocity, limits.acceleration, effort)
        self._scale = 1.0 / (n * self.count)
        workspace = constraints.workspace
        self._regions = workspace.arrays
        self.rows = JOINT_ROWS * n + workspace.rows
        rows = c.row_column.size
        self._states = np.zeros((3, n, m))
        self._Y, self._Y_bar = np.zeros((rows, m)), np.zeros((rows, m))
        self._load, self._tau, self._tau_bar = np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m))
        self._states_bar = np.zeros((3, n, m))
        self._shares = np.zeros((self.rows, m))
        self._frames, self._wrench = np.zeros((n, 12, m)), np.zeros((n, 6, m))
        self._points, self._force = np.zeros((2, workspace.link.size, 3, m))
        self._nearest = np.zeros((workspace.reach.size, 2, m))
        self._gram = np.zeros((c.count, c.count))
        self._work: AdjointWork | None = None

    def evaluate(self, C: FloatArray) -> tuple[float, float]:
        """Return the measure and the sum of all relative excesses over limits of coefficients `C` (n, 1 + 2H)."""
        self._run(C)
        excitation = self.excitation
        value = measure(self.information(), excitation.kind, excitation.scaled)
        return value, self._excess()

    def information(self) -> FloatArray:
        """Return the information per row (p, p) of the last motion evaluated, known information included."""
        gram(self._Y, self.columns.row_start, self.columns.row_column, self._scale, self._gram)
        if self.excitation.known is not None:
            self._gram += self.excitation.known
        return self._gram

    def forward(self, C: FloatArray) -> Forward:
        """Return information and shares of the limits of coefficients `C` (n, 1 + 2H)."""
        self._run(C)
        joint_shares(
            self._states, self._tau, self._limits, self.overshoot, TORQUE_RESERVE,
            self._shares[: JOINT_ROWS * self._tau.shape[0]],
        )  # fmt: skip
        if self._points.size:
            self._place()
        return Forward(self.information().copy(), self._shares[:, : self.count], self._slow())

    def adjoint(
        self, information_bar: FloatArray | None, shares_bar: FloatArray | None, slow_bar: FloatArray | None
    ) -> FloatArray:
        """Return the derivative (n, 1 + 2H) of a function by the coefficients of the last `forward`.

        Given are its derivatives by the information (p, p), symmetric, the shares (rows, N) and the shares of time at
        low speed (n,); None for zero.
        """
        n, m = self._tau.shape
        bar, tau_bar = self._states_bar, self._tau_bar
        bar[:] = 0.0
        tau_bar[:] = 0.0
        if shares_bar is not None:
            padded = np.zeros((self.rows, m))
            padded[:, : self.count] = shares_bar
            joint_shares_adjoint(padded[: JOINT_ROWS * n], self._limits, self.overshoot, TORQUE_RESERVE, bar, tau_bar)
            if self._points.size:
                self._force[:] = 0.0
                workspace_shares_adjoint(
                    self._points, self._regions, self._nearest, padded[JOINT_ROWS * n :], self._force
                )
                geometry, workspace = self.columns.tables.geometry, self.constraints.workspace
                points_adjoint(geometry, self._frames, workspace.link, self._points, self._force, self._wrench, bar[0])
        if slow_bar is not None:
            width = self.constraints.slow_velocity
            x = self._states[1, :, : self.count] / width[:, None]
            inner = x ** (SLOW_POWER - 1)
            slope = -SLOW_POWER * inner / (1.0 + inner * x) ** 2 / width[:, None]
            bar[1, :, : self.count] += slow_bar[:, None] / self.count * slope
        if information_bar is None:
            self._Y_bar[:] = 0.0
        else:
            start, column = self.columns.row_start, self.columns.row_column
            for j in range(n):
                here = column[start[j] : start[j + 1]]
                np.dot(
                    (2.0 * self._scale) * information_bar[np.ix_(here, here)],
                    self._Y[start[j] : start[j + 1]],
                    out=self._Y_bar[start[j] : start[j + 1]],
                )
        if self._work is None:
            self._work = adjoint_work(n)
        columns_adjoint(self.columns.tables, self._states, self._load, self._Y_bar, tau_bar, bar, self._work)
        out = np.empty((n, self._basis.shape[1]))
        series_adjoint(self._basis, bar, out)
        return out

    def value_and_gradient(self, C: FloatArray, order: float | None = None) -> tuple[float, FloatArray]:
        """Return the measure, smooth of `order` if given, and its derivative by `C` (n, 1 + 2H)."""
        excitation = self.excitation
        value, bar = measure_gradient(self.forward(C).information, excitation.kind, excitation.scaled, order)
        return value, self.adjoint(bar, None, None)

    def _run(self, C: FloatArray) -> None:
        series_states(self._basis, C, self._states)
        fill_columns(self.columns.tables, self._states, self.count, self._Y, self._load, self._tau)

    def _place(self) -> None:
        geometry, workspace = self.columns.tables.geometry, self.constraints.workspace
        workspace_points(geometry, self._states[0], workspace.link, workspace.local, self._frames, self._points)
        workspace_shares(self._points, self._regions, self._shares[JOINT_ROWS * self._tau.shape[0] :], self._nearest)

    def _slow(self) -> FloatArray:
        if not self.constraints.settings.slow_share:
            return np.zeros(self._tau.shape[0])
        x = self._states[1, :, : self.count] / self.constraints.slow_velocity[:, None]
        return np.asarray((1.0 / (1.0 + x**SLOW_POWER)).mean(axis=1))

    def _excess(self) -> float:
        tau = self._tau if self._torque else self._tau[:, :0]
        total = joint_excess(self._states, tau, self.count, self._limits, self.overshoot, TORQUE_RESERVE)
        torque = self.constraints.torque
        if torque is not None and torque.peaked:
            q, dq, ddq = self._states[:, :, : self.count].transpose(0, 2, 1)
            peak = np.abs(self._torque_at(reversal_states((q, dq, ddq), torque.turning, torque.slow))).max(
                axis=1, initial=0.0
            )
            before = np.abs(tau[:, : self.count]).max(axis=1)
            effort = self._limits[4]
            both = np.maximum(peak, before)
            with_peak, without = (np.maximum(TORQUE_RESERVE * x / effort - 1.0, 0.0) for x in (both, before))
            total += float((with_peak - without).sum())
        if self._points.size:
            self._place()
            rows = self._shares[JOINT_ROWS * self._tau.shape[0] :, : self.count]
            total += float(np.maximum(rows.max(axis=1), 0.0).sum())
        least = self.constraints.settings.slow_share
        if least:
            total += float(np.maximum(1.0 - self._slow() / least, 0.0).sum())
        return total

    def _torque_at(self, states: tuple[FloatArray, FloatArray, FloatArray]) -> FloatArray:
        """Return the torque (n, N) at `states` (N, n)."""
        count, n = states[0].shape
        m = -(-max(count, 1) // BLOCK) * BLOCK
        padded = np.zeros((3, n, m))
        for s in range(3):
            padded[s, :, :count] = states[s].T
        load, tau = np.zeros((n, m)), np.zeros((n, m))
        fill_columns(self.columns.tables, padded, count, np.zeros((0, m)), load, tau)
        return tau[:, :count]
