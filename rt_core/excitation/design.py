"""Search for the Fourier series that determines the base parameters best within all limits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, get_args

import numpy as np

from rt_core.excitation._space import SearchSpace
from rt_core.excitation.constraints import Constraints, Heartbeat, Margin
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.fused import FusedEvaluation
from rt_core.excitation.gradient import Descent, GradientSearch
from rt_core.excitation.limits import Limits
from rt_core.excitation.objective import Excitation, Spectrum, WeakParameter
from rt_core.excitation.search import EvaluationProgress, Pulse, Search
from rt_core.excitation.settings import ExcitationSettings, Optimiser, Swarm
from rt_core.model.robot import RobotModel
from rt_core.optimise.problem import Problem
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import SearchOutcome, SearchProgress
from rt_core.optimise.settings import Budget, Settings
from rt_core.types import FloatArray

#: Optimisers that use only the cost, and all optimisers.
SWARMS: tuple[Swarm, ...] = get_args(Swarm)
OPTIMISERS: tuple[Optimiser, ...] = (*SWARMS, "gradient")

#: Called after each iteration with the index of the start; ends the design by returning False.
Callback: TypeAlias = Callable[[int, SearchProgress], bool | None]

#: Samples per period of the highest harmonic for reported values, more than in the search.
REPORTED = 100
#: Smallest share to which a motion beyond a limit may be scaled in the end.
MIN_SHRINK = 0.5
_SHRINK = 0.98
#: Share of the progress that is the first search; the rest is the second one, which is rarely needed.
_FIRST_SEARCH = 0.7
#: Factor on the penalty of the second search, which follows one that ended beyond a limit.
STEEPER = 100.0
#: Random motions within the limits of the joints for a typical condition number.
_TYPICAL = 21
#: Relative reserve when scaling to a limit, for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ExcitationDesign:
    """Designed trajectory with its measure, spectrum and margins."""

    series: FourierSeries  # coefficients; `series.sample` gives positions, velocities and accelerations
    settings: ExcitationSettings
    optimiser: Optimiser
    seed: int  # of the start that found it: one start with this seed gives the same design
    value: float  # measure of `settings.objective`, on a finer grid than in the search
    spectrum: Spectrum  # condition numbers and singular values, on the same grid
    parameters: tuple[str, ...]  # base parameters that count, in the order of the regressor's columns
    left_out: tuple[str, ...]  # base parameters that do not count (`rt_core.excitation.objective.Excitation`)
    weakest: tuple[WeakParameter, ...]  # parameters with the largest part in the direction that is determined least
    margins: tuple[Margin, ...]  # distance from each limit
    unchecked: tuple[str, ...]  # what was not checked, in words
    searches: tuple[Search, ...] = ()  # one for each start

    @property
    def accepted(self) -> bool:
        """Whether every limit is kept."""
        return all(margin.share >= 0.0 for margin in self.margins)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Limits that are assumed because the robot description has none, in words."""
        found: dict[str, list[str]] = {}
        for margin in self.margins:
            if margin.assumed:
                what = "position" if margin.quantity in ("lower", "upper") else margin.quantity
                found.setdefault(what, []).append(margin.where)
        joints = {what: list(dict.fromkeys(names)) for what, names in found.items()}
        return tuple(
            f"{what} of {'every joint' if len(names) == self.series.n else ', '.join(names)}"
            for what, names in joints.items()
        )

    @property
    def worst(self) -> Margin:
        """The smallest margin."""
        return min(self.margins, key=lambda margin: margin.share)

    @property
    def condition_number(self) -> float:
        """Condition number of the stacked base regressor, columns scaled as in the settings."""
        return self.spectrum.condition_number


class InfeasibleError(ExcitationError):
    """No trajectory within the limits was found; `design` is the best one, and must not be used."""

    def __init__(self, message: str, design: ExcitationDesign) -> None:
        super().__init__(message)
        self.design = design


class Designer:
    """Objective, constraints and search space for one arm and one set of settings.

    Raises `ExcitationError` if limits contradict each other, leave no motion or do not fit the arm, or the sample grid
    is too coarse.

    Attributes
    ----------
    fused : FusedEvaluation
        Evaluation of a candidate.
    slope : float
        Penalty per unit of relative excess over a limit, summed over joints and quantities.
    """

    def __init__(self, model: RobotModel, settings: ExcitationSettings, known: FloatArray | None = None) -> None:
        limits = Limits.of(model, settings)
        self.constraints = Constraints(model, limits, settings)
        model = model.at_reference_temperature  # a motion does not change temperatures
        self.model = model
        self.settings = settings
        self.excitation = Excitation(model, settings.objective, settings.scaled, columns=settings.columns, known=known)
        self.space = SearchSpace(limits, settings.f0_hz, settings.harmonics, settings.rest)
        self._grid = Basis.grid(settings.grid, settings.f0_hz, settings.harmonics)
        self.fused = FusedEvaluation(self.excitation, self.constraints, self._grid)
        columns = len(self.excitation.layout)
        self.slope = self._slope() if settings.penalty is None else settings.penalty
        if model.n * settings.grid < columns:
            raise ExcitationError(
                f"{settings.grid} samples give {model.n * settings.grid} rows for {columns} parameters: take more"
            )

    def costs(self, X: FloatArray, steeper: float = 1.0, pulse: EvaluationProgress | None = None) -> FloatArray:
        """Return objective plus penalty, `steeper` times `slope` per unit, (m,) at the points `X` (m, d)."""
        out = np.empty(X.shape[0])
        for i, x in enumerate(X):
            value, excess = self.fused.evaluate(self.space.stacked(x))
            out[i] = value + steeper * self.slope * excess
            if pulse is not None:
                pulse.evaluation((i + 1) / X.shape[0], float(out[i]))
        return out

    def design(
        self, optimiser: Optimiser, seed: int, callback: Callable[[SearchProgress], bool | None] | None = None,
        pulse: Pulse | None = None, pull: float | None = None,
    ) -> ExcitationDesign:  # fmt: skip
        """Search from one start and check the result; all random numbers are from `seed`.

        If the result is beyond a limit by more than `within` can correct, a second search continues from it with a
        steeper penalty; the iterations of `callback` then restart, `pulse` goes on.  `pull` is c1 = c2 of a swarm, by
        default 2, and 1.5 for `pso`, which has a constant inertia weight and does not contract with 2
        (`rt_core.optimise.settings`). Raises `ExcitationError` if bodies touch in every posture.
        """
        self.constraints.check_bodies()
        if optimiser == "gradient":
            return self._descend(seed, callback, pulse)
        start, evaluations = self._start(seed), 0
        for steeper, first, length in ((1.0, 0.0, _FIRST_SEARCH), (STEEPER, _FIRST_SEARCH, 1.0 - _FIRST_SEARCH)):
            heartbeat = None if pulse is None else EvaluationProgress(pulse, first, length, self.settings.iterations)
            found = self._search(optimiser, seed, start, steeper, callback, heartbeat, pull)
            evaluations += found.evaluations
            search = Search(seed, np.arange(found.history.size), found.history, evaluations, found.stopped)
            end = None if pulse is None else partial(pulse, first + length, float(found.history[-1]))
            design = self.judge(self.within(self.space.series(found.x)), optimiser, search, end)
            if design.accepted or found.stopped == "cancelled":
                break
            start = found.x
        return design

    def _descend(
        self, seed: int, callback: Callable[[SearchProgress], bool | None] | None, pulse: Pulse | None
    ) -> ExcitationDesign:
        """Search by derivatives; the history has the same cost as that of the swarms."""
        settings = self.settings
        search = GradientSearch(self.excitation, self.constraints, self.space, self._grid, settings.iterations)
        start = self._start(seed)
        history = [float(self.costs(start[None])[0])]
        best, reached = start, 0.0

        def follow(x: FloatArray, _share: float) -> bool:
            nonlocal best
            cost = float(self.costs(x[None])[0])
            best = x.copy() if cost < history[-1] else best
            history.append(min(history[-1], cost))
            return go_on()

        def go_on() -> bool:
            at = len(history) - 1
            state = SearchProgress(
                at, max(search.planned, at), "gradient", history[-1], best.copy(), search.evaluations + at
            )
            return callback is None or callback(state) is not False

        def heartbeat(share: float) -> None:
            nonlocal reached
            reached = max(reached, share)
            if pulse is not None:
                pulse(reached, history[-1])

        found = search.search(start, follow, heartbeat) if go_on() else Descent(start, 0, "cancelled")
        evaluations = found.evaluations + len(history)
        record = Search(seed, np.arange(len(history)), np.array(history), evaluations, found.stopped)
        series = self.space.series(found.x)
        end = partial(heartbeat, 1.0)
        design = self.judge(series, "gradient", record, end)
        return design if design.accepted else self.judge(self.within(series), "gradient", record, end)

    def _search(
        self, optimiser: Swarm, seed: int, start: FloatArray, steeper: float,
        callback: Callable[[SearchProgress], bool | None] | None, pulse: EvaluationProgress | None, pull: float | None,
    ) -> SearchOutcome:  # fmt: skip
        settings = self.settings

        def iterated(progress: SearchProgress) -> bool | None:
            if pulse is not None:
                pulse.iteration()
            return None if callback is None else callback(progress)

        if pull is None:
            pull = 1.5 if optimiser == "pso" else 2.0
        return optimise(
            optimiser, Problem(self.space.lower, self.space.upper, partial(self.costs, steeper=steeper, pulse=pulse)),
            Settings(particles=settings.particles, c1=pull, c2=pull), Budget(swarm_iterations=settings.iterations),
            seed=seed, x0=start, callback=iterated,
        )  # fmt: skip

    def _slope(self) -> float:
        """Return the penalty per unit of relative excess: the largest gain of a motion twice as large.

        It is a typical condition number, or 2 per logarithm of an eigenvalue of the information, which grows with the
        square of the motion.  A steeper penalty would confine the swarm to the first feasible region; `within` corrects
        a small remaining excess.
        """
        kind = self.settings.objective
        if kind != "condition":
            return 2.0 * (len(self.excitation.layout) if kind == "d_optimal" else 1)
        points = (self._start(k) for k in range(_TYPICAL))
        return float(
            np.median([self.excitation.value(self._grid.evaluate(*self.space.coefficients(x))) for x in points])
        )

    def _start(self, seed: int) -> FloatArray:
        """Draw a random motion (d,) within the limits of position, velocity and acceleration."""
        space = self.space
        x = space.lower + (space.upper - space.lower) * np.random.default_rng([seed, 0xE]).random(space.lower.size)
        room = self.constraints.share_of_room(self._grid.evaluate(*space.coefficients(x)), self._grid.overshoot)
        return space.shrunk(x, np.minimum(room, 1.0))

    def within(self, series: FourierSeries) -> FourierSeries:
        """Return `series` scaled just as much as its limits require, or unchanged if that is not possible."""
        harmonics = series.harmonics
        fine = Basis.grid(REPORTED * harmonics, series.f0_hz, harmonics)
        room = self.constraints.share_of_room(fine.states(series), fine.overshoot)
        smaller = series
        if (room < 1.0).any() and (room > MIN_SHRINK).all():
            smaller = series.shrunk(np.where(room < 1.0, (1.0 - _ROUNDING) * room, 1.0))
        share = 1.0
        while share > MIN_SHRINK:
            candidate = smaller if share == 1.0 else smaller.shrunk(share)
            excess = self.constraints.excess(fine.states(candidate), fine.overshoot)
            if excess == 0.0 and self.constraints.keeps_effort(candidate):
                return candidate
            share *= _SHRINK
        return series

    def judge(
        self, series: FourierSeries, optimiser: Optimiser, search: Search, heartbeat: Heartbeat | None = None
    ) -> ExcitationDesign:
        """Return the design of `series`, found by `search`; `heartbeat` is called in between."""
        grid = Basis.grid(REPORTED * series.harmonics, series.f0_hz, series.harmonics)
        states = grid.states(series)
        spectrum = self.excitation.spectrum(states)
        return ExcitationDesign(
            series, self.settings, optimiser, search.seed, self.excitation.value(states), spectrum,
            self.excitation.layout.names, self.excitation.left_out, self.excitation.weakest(spectrum),
            self.constraints.margins(series, heartbeat), self.constraints.unchecked, (search,),
        )  # fmt: skip


def best_design(designs: Sequence[ExcitationDesign]) -> ExcitationDesign:
    """Return the accepted design with the lowest measure, with the searches of all.

    Raises `InfeasibleError` if none is accepted.
    """
    searches = tuple(search for design in designs for search in design.searches)
    accepted = [design for design in designs if design.accepted]
    if accepted:
        return replace(min(accepted, key=lambda design: design.value), searches=searches)
    nearest = max(designs, key=lambda design: design.worst.share)
    worst = nearest.worst
    of_joint = worst.where in (joint.where for joint in nearest.margins if joint.quantity == "velocity")
    where = f"joint '{worst.where}'" if of_joint else worst.where
    raise InfeasibleError(
        f"no trajectory within the limits was found: {where} breaks its {worst.quantity} limit, reaching "
        f"{worst.reached:.4g} where {worst.allowed:.4g} is allowed, in the best of {len(designs)} "
        f"{'search' if len(designs) == 1 else 'searches'}: widen the limit or its fraction, "
        "or take a lower base frequency, more starts or more iterations",
        replace(nearest, searches=searches),
    )


def design_excitation(
    model: RobotModel, settings: ExcitationSettings | None = None, optimiser: Optimiser = "tcs_pso", seed: int = 0,
    callback: Callback | None = None, known: FloatArray | None = None,
) -> ExcitationDesign:  # fmt: skip
    """Design a trajectory that determines the base parameters of `model` well.

    Each of `settings.starts` searches minimises the objective plus `Designer.slope` times the sum of all relative
    excesses over limits (HYP).  Its result is scaled down if slightly beyond a limit, and checked on a fine grid; the
    best one within all limits is returned.

    Parameters
    ----------
    model : RobotModel
    settings : ExcitationSettings or None
    optimiser : {"pso", "pso_linear", "tcs_pso", "ga", "gradient"}
    seed : int
        Start `k` has the seed `seed + k`; the same seed gives the same design to the bit.
    callback : callable or None
        Called after each iteration with the index of the start and the optimiser's `SearchProgress`; returning False
        ends the design with the best result so far.
    known : (p, p) float64 or None
        Information per row from earlier data (`rt_core.excitation.sequential`), in the order of its parameters.

    Raises
    ------
    InfeasibleError
        If no start gives a trajectory within the limits.
    ExcitationError
        If limits contradict each other or do not fit the arm, or the optimiser is unknown.
    """
    if optimiser not in OPTIMISERS:
        raise ExcitationError(f"unknown optimiser {optimiser!r}; known: {', '.join(OPTIMISERS)}")
    if seed < 0:
        raise ExcitationError(f"seed must not be negative, not {seed}")
    settings = ExcitationSettings() if settings is None else settings
    designer = Designer(model, settings, known)
    designs: list[ExcitationDesign] = []
    for k in range(settings.starts):
        designs.append(designer.design(optimiser, seed + k, None if callback is None else partial(callback, k)))
        if designs[-1].searches[0].stopped == "cancelled":
            break
    return best_design(designs)
