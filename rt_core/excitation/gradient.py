"""Search by derivatives: smooth measure within limits, by an augmented Lagrangian and L-BFGS.

Every sample of every limit is an inequality `g <= 0` with its own multiplier (Nocedal and Wright 2006, section 17.4).
Non-smooth measures are replaced by smooth ones whose order doubles from stage to stage (`_measure`).  A limit that is
violated between the samples of the search is tightened by that amount, and the last stage repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from rt_core.excitation._measure import measure_gradient
from rt_core.excitation._space import SearchSpace
from rt_core.excitation.constraints import Constraints, Margin
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.fused import JOINT_ROWS, FusedEvaluation
from rt_core.excitation.objective import Excitation
from rt_core.optimise.run import Stopped
from rt_core.types import FloatArray

#: Order of the smooth measure by stage, and the velocity that smooths a sign, over the lowest velocity limit of all
#: joints: a sign itself has no slope.
STAGES = (
    (2.0, 0.3), (4.0, 0.2), (8.0, 0.1), (16.0, 0.05), (32.0, 0.03), (64.0, 0.02), (128.0, 0.01), (128.0, 0.01)
)  # fmt: skip
#: Penalty of a squared excess in the first stage, and its growth from stage to stage.
PENALTY, GROWTH = 0.3, 3.0
#: Relative distance from each limit in the search, because multipliers converge from both sides.
SLACK = 2e-3
#: Maximum repetitions of the last stage with tightened limits, and the factor on the violation found.
REPEATS, FURTHER = 6, 1.2
#: Steps in the memory of L-BFGS.
_MEMORY = 20

#: Called after each iteration with the point and the share of the search done; ends it by returning False.
Follow = Callable[[FloatArray, float], bool]
#: Called after each evaluation with the share of the search done.
Heartbeat = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Descent:
    """Result of a search by derivatives: the point (d,), its evaluations with derivatives, and why it ended."""

    x: FloatArray
    evaluations: int
    stopped: Stopped


class GradientSearch:
    """Search by derivatives in `space`; `iterations` of L-BFGS are divided among the stages.

    Attributes
    ----------
    planned : int
        Maximum iterations, unless a limit has to be tightened.
    evaluations : int
        Of the present search, with derivatives.
    """

    def __init__(
        self, excitation: Excitation, constraints: Constraints, space: SearchSpace, grid: Basis, iterations: int
    ) -> None:
        self.space = space
        self.constraints = constraints
        self.fused = FusedEvaluation(excitation, constraints, grid)
        self._slowest = float(constraints.limits.whole["velocity"].min())
        self._each = max(1, -(-iterations // len(STAGES)))
        self.planned = self._each * len(STAGES)
        self.evaluations = 0

    def lagrangian(
        self, x: FloatArray, order: float, penalty: float, multipliers: FloatArray, reserve: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the augmented Lagrangian at `x` (d,), its derivative (d,) and the updated multipliers (m,).

        `multipliers` and `reserve`, by which limits are tightened, are (rows * N + n,): shares of the limits, and of
        the time at low speed.
        """
        fused = self.fused
        excitation, least = fused.excitation, self.constraints.settings.slow_share
        found = fused.forward(self.space.stacked(x))
        value, bar = measure_gradient(found.information, excitation.kind, excitation.scaled, order)
        if excitation.kind == "d_optimal":  # the mean has the size of the other measures
            value, bar = value / bar.shape[0], bar / bar.shape[0]
        slow = 1.0 - found.slow / least if least else np.full(found.slow.size, -1.0)
        shares = np.concatenate((found.shares.ravel(), slow)) + reserve
        active = np.maximum(multipliers + penalty * shares, 0.0)
        value += 0.5 * float(active @ active - multipliers @ multipliers) / penalty
        rows = active[: found.shares.size].reshape(found.shares.shape)
        by_slow = -active[found.shares.size :] / least if least else None
        gradient = fused.adjoint(bar, rows, by_slow)
        return value, self.space.adjoint(gradient), active

    def search(self, start: FloatArray, follow: Follow | None = None, heartbeat: Heartbeat | None = None) -> Descent:
        """Search from the point `start` (d,)."""
        x, stopped = start.copy(), False
        n, count = self.constraints.limits.n, self.fused.count
        reserve = np.full(self.fused.rows * count + n, SLACK)
        multipliers = np.zeros(reserve.size)
        done = 0
        self.evaluations = 0

        def stage(order: float, width: float, penalty: float) -> None:
            nonlocal x, multipliers
            self.fused.columns.smooth(width * self._slowest)

            def function(at: FloatArray) -> tuple[float, FloatArray]:
                self.evaluations += 1
                value, gradient, _ = self.lagrangian(at, order, penalty, multipliers, reserve)
                if heartbeat is not None:
                    heartbeat(min(1.0, done / self.planned))
                return value, gradient

            def iterated(intermediate_result: OptimizeResult) -> None:
                nonlocal done, stopped
                done += 1
                if follow is not None and not follow(intermediate_result.x, min(1.0, done / self.planned)):
                    stopped = True
                    raise StopIteration

            x = minimize(
                function, x, jac=True, method="L-BFGS-B", callback=iterated,
                options={"maxiter": self._each, "maxcor": _MEMORY, "ftol": 1e-10, "gtol": 1e-7},
            ).x  # fmt: skip
            self.evaluations += 1
            multipliers = self.lagrangian(x, order, penalty, multipliers, reserve)[2]

        penalty = PENALTY
        for order, width in STAGES:
            stage(order, width, penalty)
            if stopped:
                return Descent(x, self.evaluations, "cancelled")
            penalty *= GROWTH
        for _ in range(REPEATS):
            beyond = self._beyond(
                self.space.series(x), None if heartbeat is None else partial(heartbeat, min(1.0, done / self.planned))
            )
            if not (beyond > 0.0).any():
                return Descent(x, self.evaluations, "iterations")
            reserve += np.concatenate((np.repeat(beyond[:-n], count), beyond[-n:])) * FURTHER
            stage(*STAGES[-1], penalty)
            if stopped:
                return Descent(x, self.evaluations, "cancelled")
        return Descent(x, self.evaluations, "iterations")

    def _beyond(self, series: FourierSeries, heartbeat: Callable[[], None] | None) -> FloatArray:
        """Return the violations (rows + n,) by the check of the whole period, in the order of the shares."""
        found: dict[tuple[str, str], float] = {}
        for margin in self.constraints.margins(series, heartbeat):
            found[margin.where, margin.quantity] = _excess(margin)
        model = self.constraints.model
        joint = [
            [found.get((one.name, name), 0.0) for name in ("lower", "upper", *(2 * ["velocity"]),
                                                         *(2 * ["acceleration"]), *(2 * ["effort"]))]
            for one in model.joints
        ]  # fmt: skip
        placed = self.constraints.workspace_order()
        assert len(joint) * JOINT_ROWS + len(placed) == self.fused.rows
        slow = [found.get((one.name, "slow time"), 0.0) for one in model.joints]
        return np.array([*np.ravel(joint), *(found[key] for key in placed), *slow])


def _excess(margin: Margin) -> float:
    return max(0.0, -margin.share)
