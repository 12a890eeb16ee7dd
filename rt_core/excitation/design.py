"""Search for the Fourier series that determines the base parameters best within all limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np

from rt_core.excitation._space import SearchSpace
from rt_core.excitation.constraints import Constraints, Heartbeat, Margin
from rt_core.excitation.errors import ExcitationError, InfeasibleError
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.fused import FusedEvaluation
from rt_core.excitation.gradient import Descent, GradientSearch
from rt_core.excitation.limits import Limits
from rt_core.excitation.objective import Excitation, Spectrum, WeakParameter
from rt_core.excitation.search import EvaluationProgress, Pulse, Search
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.robot import RobotModel
from rt_core.optimise.problem import Problem
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import Outcome, Progress
from rt_core.optimise.settings import Budget, Settings
from rt_core.types import FloatArray

Swarm = Literal["pso", "pso_linear", "tcs_pso", "ga"]
Optimiser = Literal[Swarm, "gradient"]
#: Those that know nothing but the cost, and all.
SWARMS: tuple[Swarm, ...] = get_args(Swarm)
OPTIMISERS: tuple[Optimiser, ...] = (*SWARMS, "gradient")

#: Told after each iteration, with the index of the start; ends the design by returning False.
Callback: TypeAlias = Callable[[int, Progress], bool | None]

#: Samples to a period of the highest harmonic for what is reported, more than the search uses.
REPORTED = 100
#: A motion that is beyond a limit in the end may be made smaller, to this share at the least.
MIN_SHRINK = 0.5
_SHRINK = 0.98
#: Share of a design that the first search counts for; the rest is that of the second, which most do not need.
_FIRST_SEARCH = 0.7
#: A search that ends beyond a limit is followed by another one from there, with a penalty so many times steeper.
STEEPER = 100.0
#: Random motions within the limits of the joints, from which the size of the condition number is taken.
_TYPICAL = 21
#: Below a limit by this share after shrinking: the scaling itself rounds.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ExcitationDesign:
    """A designed trajectory and what is known of it.

    Attributes
    ----------
    series : FourierSeries
        Coefficients; `series.sample` gives positions, velocities and accelerations.
    settings : ExcitationSettings
    optimiser : str
    seed : int
        Of the start that found it: `settings.starts` of one and this seed give the same design.
    value : float
        Measure of `settings.objective`, on a finer grid than that of the search.
    spectrum : Spectrum
        Condition numbers and singular values, on the same grid.
    parameters : tuple of str
        Base parameters that count, in the order of the regressor's columns.
    left_out : tuple of str
        Those that no motion can be judged by (`rt_core.excitation.objective.Excitation`).
    weakest : tuple of WeakParameter
        Those with the largest part in the direction that is determined least.
    margins : tuple of Margin
        Distance from each limit.
    unchecked : tuple of str
        What was not looked at, in words.
    searches : tuple of Search
        One for each start.
    """

    series: FourierSeries
    settings: ExcitationSettings
    optimiser: Optimiser
    seed: int
    value: float
    spectrum: Spectrum
    parameters: tuple[str, ...]
    left_out: tuple[str, ...]
    weakest: tuple[WeakParameter, ...]
    margins: tuple[Margin, ...]
    unchecked: tuple[str, ...]
    searches: tuple[Search, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether every limit is kept."""
        return all(margin.share >= 0.0 for margin in self.margins)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Limits that the robot description does not state and stand-ins take the place of, in words."""
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
        """Of the stacked base regressor, columns scaled or not as the settings have it."""
        return self.spectrum.condition_number


class Designer:
    """What all searches for one arm and one set of settings have in common.

    Attributes
    ----------
    fused : FusedEvaluation
        What the search evaluates.
    slope : float
        Penalty for each unit of relative excess over a limit, summed over joints and quantities.

    Raises
    ------
    ExcitationError
        If limits contradict each other, leave no motion or do not fit the arm, or if no sample grid is fine enough.
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
        """Objective and penalty, `steeper` times `slope` a unit, (m,) at the points `X` (m, d) of the search space."""
        out = np.empty(X.shape[0])
        for i, x in enumerate(X):
            value, excess = self.fused.evaluate(self.space.stacked(x))
            out[i] = value + steeper * self.slope * excess
            if pulse is not None:
                pulse.evaluation((i + 1) / X.shape[0], float(out[i]))
        return out

    def design(
        self,
        optimiser: Optimiser,
        seed: int,
        callback: Callable[[Progress], bool | None] | None = None,
        pulse: Pulse | None = None,
        pull: float | None = None,
    ) -> ExcitationDesign:
        """Search from one start, and look closely at what it found; everything random comes from `seed`.

        If that is beyond a limit by more than `within` can mend, a second search goes on from there with a steeper
        penalty; `callback` then sees the iterations begin again, `pulse` goes on.  `pull` is c1 = c2 of a swarm, by
        default 2, and 1.5 for `pso`: one of constant inertia weight does not contract with 2
        (`rt_core.optimise.settings`).

        Raises
        ------
        ExcitationError
            If bodies touch in every posture.
        """
        self.constraints.check_bodies()
        if optimiser == "gradient":
            return self._descend(seed, callback, pulse)
        start, evaluations = self._start(seed), 0
        for steeper, first, length in ((1.0, 0.0, _FIRST_SEARCH), (STEEPER, _FIRST_SEARCH, 1.0 - _FIRST_SEARCH)):
            beat = None if pulse is None else EvaluationProgress(pulse, first, length, self.settings.iterations)
            found = self._search(optimiser, seed, start, steeper, callback, beat, pull)
            evaluations += found.evaluations
            search = Search(seed, np.arange(found.history.size), found.history, evaluations, found.stopped)
            end = None if pulse is None else partial(pulse, first + length, float(found.history[-1]))
            design = self.judge(self.within(self.space.series(found.x)), optimiser, search, end)
            if design.accepted or found.stopped == "cancelled":
                break
            start = found.x
        return design

    def _descend(
        self, seed: int, callback: Callable[[Progress], bool | None] | None, pulse: Pulse | None
    ) -> ExcitationDesign:
        """Search by derivatives; its history is of the same cost as that of the others."""
        settings = self.settings
        search = GradientSearch(self.excitation, self.constraints, self.space, self._grid, settings.iterations)
        start = self._start(seed)
        history = [float(self.costs(start[None])[0])]
        best, told = start, 0.0

        def follow(x: FloatArray, _share: float) -> bool:
            nonlocal best
            cost = float(self.costs(x[None])[0])
            best = x.copy() if cost < history[-1] else best
            history.append(min(history[-1], cost))
            return go_on()

        def go_on() -> bool:
            at = len(history) - 1
            state = Progress(at, max(search.planned, at), "gradient", history[-1], best.copy(), search.evaluations + at)
            return callback is None or callback(state) is not False

        def beat(share: float) -> None:
            nonlocal told
            told = max(told, share)
            if pulse is not None:
                pulse(told, history[-1])

        found = search.search(start, follow, beat) if go_on() else Descent(start, 0, "cancelled")
        evaluations = found.evaluations + len(history)
        record = Search(seed, np.arange(len(history)), np.array(history), evaluations, found.stopped)
        series = self.space.series(found.x)
        end = partial(beat, 1.0)
        design = self.judge(series, "gradient", record, end)
        return design if design.accepted else self.judge(self.within(series), "gradient", record, end)

    def _search(
        self,
        optimiser: Swarm,
        seed: int,
        start: FloatArray,
        steeper: float,
        callback: Callable[[Progress], bool | None] | None,
        pulse: EvaluationProgress | None,
        pull: float | None,
    ) -> Outcome:
        settings = self.settings

        def told(progress: Progress) -> bool | None:
            if pulse is not None:
                pulse.iteration()
            return None if callback is None else callback(progress)

        if pull is None:
            pull = 1.5 if optimiser == "pso" else 2.0
        return optimise(
            optimiser,
            Problem(self.space.lower, self.space.upper, partial(self.costs, steeper=steeper, pulse=pulse)),
            Settings(particles=settings.particles, c1=pull, c2=pull),
            Budget(swarm_iterations=settings.iterations),
            seed=seed,
            x0=start,
            callback=told,
        )

    def _slope(self) -> float:
        """Penalty a unit of relative excess: what a motion that is larger by its own size can gain at most.

        That is a typical condition number; and 2 for the logarithm of each eigenvalue of the information, which goes
        with the square of the motion.  A steeper penalty shuts the swarm into the first feasible place that it finds;
        the little that is left beyond a limit in the end, `within` takes away.
        """
        kind = self.settings.objective
        if kind != "condition":
            return 2.0 * (len(self.excitation.layout) if kind == "d_optimal" else 1)
        points = (self._start(k) for k in range(_TYPICAL))
        return float(
            np.median([self.excitation.value(self._grid.evaluate(*self.space.coefficients(x))) for x in points])
        )

    def _start(self, seed: int) -> FloatArray:
        """Draw a random motion (d,) that keeps the limits of position, velocity and acceleration."""
        space = self.space
        x = space.lower + (space.upper - space.lower) * np.random.default_rng([seed, 0xE]).random(space.lower.size)
        room = self.constraints.share_of_room(self._grid.evaluate(*space.coefficients(x)), self._grid.overshoot)
        return space.shrunk(x, np.minimum(room, 1.0))

    def within(self, series: FourierSeries) -> FourierSeries:
        """Return `series` made just so much smaller that it keeps its limits, if that is possible, or as it is."""
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
        self, series: FourierSeries, optimiser: Optimiser, search: Search, beat: Heartbeat | None = None
    ) -> ExcitationDesign:
        """Singular values of `series`, which `search` found, and its margin from each limit, which tells `beat`."""
        grid = Basis.grid(REPORTED * series.harmonics, series.f0_hz, series.harmonics)
        states = grid.states(series)
        spectrum = self.excitation.spectrum(states)
        return ExcitationDesign(
            series,
            self.settings,
            optimiser,
            search.seed,
            self.excitation.value(states),
            spectrum,
            self.excitation.layout.names,
            self.excitation.left_out,
            self.excitation.weakest(spectrum),
            self.constraints.margins(series, beat),
            self.constraints.unchecked,
            (search,),
        )


def best_design(designs: Sequence[ExcitationDesign]) -> ExcitationDesign:
    """Return the accepted design of the lowest measure, with the searches of all.

    Raises
    ------
    InfeasibleError
        If none is accepted.
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
    model: RobotModel,
    settings: ExcitationSettings | None = None,
    optimiser: Optimiser = "tcs_pso",
    seed: int = 0,
    callback: Callback | None = None,
    known: FloatArray | None = None,
) -> ExcitationDesign:
    """Design a trajectory that determines the base parameters of `model` well.

    The objective and `Designer.slope` times the sum of all relative excesses over limits is minimised (HYP), from
    `settings.starts` seeds.  What a search ends with is made smaller if it is beyond a limit by a little, and
    judged on a fine grid; of those that keep every limit, the best is returned.

    Parameters
    ----------
    model : RobotModel
    settings : ExcitationSettings or None
    optimiser : {"pso", "pso_linear", "tcs_pso", "ga", "gradient"}
    seed : int
        Start `k` has the seed `seed + k`; the same seed gives the same design to the bit.
    callback : callable or None
        Called after each iteration with the index of the start and the optimiser's `Progress`; ends the design by
        returning False, and the best so far is what counts.
    known : (p, p) float64 or None
        Information a row that is there already (`rt_core.excitation.sequential`), in the order of the design's
        parameters.

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
