"""Design of a trajectory that excites a robot's parameters; from several seeds in parallel on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from rt_core.excitation.settings import DesignSettings, ExcitationSettings, Frequency, Objective, Optimiser
from rt_core.excitation.shapes import Capsule, Region
from service.jobs.kinds import excite_known
from service.operations.errors import OperationCancelledError, OperationError
from service.operations.kind import FanOut, Kind, Outcome, Parameters
from service.operations.parameter_types import RobotText, Seed, option, settings_in
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.excitation.design import Designer, ExcitationDesign
    from rt_core.excitation.search import Pulse
    from rt_core.excitation.validation import Validation

DEFAULT_F0_HZ = 0.1
_MAX_ROWS = 100_000
_ROWS_A_HARMONIC = 20
#: Particles times iterations times starts times harmonics.  A harmonic takes 0.1 to 0.5 ms an evaluation, and two
#: searches of TCS-PSO evaluate 2.7 times as often as this counts: some hours on one processor at the most.
_MAX_WORK = 10_000_000
#: Points of a search's history that are kept, and the smallest step of the progress.
_HISTORY = 300
_STEP = 1e-3
#: Share of the job after the searches, and number of searches for a validation trajectory.
_ENDED, _TRIES = 0.99, 10


class Excite(Parameters, DesignSettings):
    """What to design, as `rt_core.excitation.settings.DesignSettings` explains it.

    One of `f0_hz` and `period_s` says how long a period is, 10 s without either.  `rate_hz` is that of the table; a
    period has a whole number of its rows, at least 20 for each harmonic.  `workspace` is a box [m] for the tip: low and
    high of x, y and z.  `urdf_bodies` takes the collision shapes of the robot's URDF besides `bodies`; `skip_pairs` are
    not compared.  `after` are trajectories that were recorded already: what they left open is excited; with
    `changed_robot` also those that were designed on another version of the robot's description.  With `validation` a
    second trajectory is designed, to judge a model on that was identified on the first.  `floor` bounds nothing: a
    motion below it is warned of.
    """

    robot: RobotText | None = None
    objective: Objective = option("condition", "what is made good")
    optimiser: Optimiser = option("gradient", "how it is searched for")
    harmonics: int = option(5, "of the Fourier series", "N", ge=2, le=50)
    f0_hz: Frequency | None = None
    period_s: Annotated[float, Field(ge=0.01, le=1e4)] | None = option(
        None, "length of a period (default: 10)", "S", flag="--period"
    )
    rate_hz: float = option(100.0, "of the tables", "HZ", flag="--rate", ge=1e-2, le=1e5)
    seed: Seed = option(0, "of everything random", "N")
    starts: int = option(4, "independent searches, the best counts", "N", ge=1, le=256)
    particles: int = Field(default=70, ge=2, le=10_000)
    iterations: int = Field(default=200, ge=1, le=100_000)
    regions: Annotated[tuple[Region, ...], Field(max_length=20)] = ()
    bodies: Annotated[tuple[Capsule, ...], Field(max_length=50)] = ()
    urdf_bodies: bool = False
    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1, max_length=1000)] | None = None
    skip_pairs: Annotated[tuple[tuple[str, str], ...], Field(max_length=1000)] = ()
    after: list[excite_known.EarlierMotion] = Field(default_factory=list, max_length=20)
    changed_robot: bool = option(
        False, "follow an earlier design although the robot's description is another version than that of it"
    )
    validation: bool = option(False, "design a second one to validate on")
    floor: Annotated[float, Field(ge=-1e3, le=1e3)] | None = option(
        None, "warn of a joint below this height in the base [m] (default: 0 on an arm that stands on the floor)", "Z"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Excite:
        if self.f0_hz is not None and self.period_s is not None:
            raise ValueError("f0_hz and period_s say the same: give one of them")
        rows, least = self.rate_hz / self.frequency, _ROWS_A_HARMONIC * self.harmonics
        if not rows <= _MAX_ROWS:
            raise ValueError(f"the table would have {rows:g} rows, more than {_MAX_ROWS}: lower rate_hz")
        if abs(rows - round(rows)) > 1e-6 or round(rows) < least:
            raise ValueError(
                f"a period of {1.0 / self.frequency:g} s has {rows:g} rows at rate_hz {self.rate_hz:g}, which must be "
                f"a whole number of at least {least} for {self.harmonics} harmonics: "
                f"try rate_hz {max(least, math.ceil(rows)) * self.frequency:.15g}"
            )
        particles = 1 if self.optimiser == "gradient" else self.particles
        second = _TRIES if self.validation else 0  # by derivatives, whatever the first is searched with
        work = (particles * self.starts + second) * self.iterations * self.harmonics
        if work > _MAX_WORK:
            raise ValueError(
                f"particles times iterations times starts times harmonics is {work}, more than {_MAX_WORK}: "
                "lower one of them"
            )
        self.settings()  # raises errors of combinations
        return self

    @property
    def frequency(self) -> float:
        """Base frequency [Hz]."""
        return 1.0 / self.period_s if self.period_s is not None else self.f0_hz or DEFAULT_F0_HZ

    def settings(self) -> ExcitationSettings:
        """Return the settings of one start; raises `ExcitationError`."""
        return settings_in(self, ExcitationSettings, f0_hz=self.frequency, starts=1)


def _designer(p: Excite) -> tuple[RobotFile, Designer]:
    from rt_core.excitation.design import Designer
    from rt_core.excitation.errors import ExcitationError
    from service.operations.inputs import open_robot

    robot = open_robot(p.robot)
    try:
        settings = p.settings()
        if p.urdf_bodies:
            settings = replace(settings, bodies=(*settings.bodies, *excite_known.urdf_capsules(robot).capsules))
        excite_known.check_earlier(p.after, robot, changed=p.changed_robot)
        designer = Designer(robot.model, settings, excite_known.earlier_information(p.after, robot.model, settings))
        designer.constraints.check_bodies()
        return robot, designer
    except ExcitationError as error:
        raise OperationError(str(error)) from error


def _split(p: Excite) -> list[dict[str, Any]]:
    return [{"seed": p.seed + k} for k in range(p.starts)]


def _part(p: Excite, part: dict[str, Any], ws: Workspace) -> dict[str, Any]:
    ws.progress(0.0, "base parameters")
    return _start(p, _designer(p)[1], int(part["seed"]), _progress_of(ws, 0.02, 0.95))


def _start(p: Excite, designer: Designer, seed: int, report_progress: Pulse) -> dict[str, Any]:
    """Run one start; return plain JSON."""
    design = designer.design(p.optimiser, seed, pulse=report_progress)
    search = design.searches[0].thinned(_HISTORY)
    return {
        "seed": seed, "series": design.series.as_dict(), "iterations": search.iterations.tolist(),
        "history": search.history.tolist(), "evaluations": search.evaluations, "stopped": search.stopped,
    }  # fmt: skip


def _progress_of(ws: Workspace, first: float, length: float, what: str = "search") -> Pulse:
    reported = 0.0

    def report_progress(share: float, cost: float) -> None:
        nonlocal reported
        if ws.cancelled():
            raise OperationCancelledError
        done = first + length * share
        if done - reported >= _STEP:
            reported = done
            ws.progress(done, f"{what}: lowest cost {cost:.4g}")

    return report_progress


def _run(p: Excite, ws: Workspace) -> Outcome:
    ws.progress(0.0, "base parameters")
    robot, designer = _designer(p)
    searches = 0.95 * p.starts / (p.starts + 1.0) if p.validation else 0.95
    length = searches / p.starts
    parts = [
        _start(p, designer, part["seed"], _progress_of(ws, 0.02 + k * length, length))
        for k, part in enumerate(_split(p))
    ]
    return _finish(p, robot, designer, parts, ws, 0.02 + searches)


def _gather(p: Excite, parts: Sequence[dict[str, Any]], ws: Workspace) -> Outcome:
    robot, designer = _designer(p)
    return _finish(p, robot, designer, parts, ws, 0.02)


def _finish(
    p: Excite, robot: RobotFile, designer: Designer, parts: Sequence[dict[str, Any]], ws: Workspace, first: float
) -> Outcome:
    """Choose the best start and write it; without one within the limits write only the figures."""
    import numpy as np

    from rt_core.excitation.design import InfeasibleError, best_design
    from rt_core.excitation.fourier import FourierSeries
    from rt_core.excitation.search import Search
    from rt_core.excitation.validation import Validation
    from service.jobs.kinds.excite_files import clear, write_motion
    from service.reports.excitation import excitation_html, point_table

    unseen = excite_known.not_compared(robot, wanted=p.urdf_bodies)
    designs = []
    for k, part in enumerate(parts):
        report_progress = partial(ws.progress, first + 0.02 * k / len(parts), "checking the limits")
        report_progress()
        iterations, history = np.array(part["iterations"]), np.array(part["history"])
        search = Search(part["seed"], iterations, history, part["evaluations"], part["stopped"])
        judged = designer.judge(FourierSeries.from_dict(part["series"]), p.optimiser, search, report_progress)
        designs.append(replace(judged, unchecked=(*judged.unchecked, *unseen)))
    try:
        best = best_design(designs)
    except InfeasibleError as error:
        reasons = [str(error), *_stand_ins(error.design)]
        metrics = _metrics(p, designer, error.design, "infeasible", reasons)
        clear(ws)
        ws.write_json("metrics.json", metrics)
        ws.write("report.html", excitation_html(robot.model, error.design, "infeasible", reasons, _facts(p, robot)))
        return Outcome("infeasible", f"infeasible: {'; '.join(reasons)}", metrics, accepted=False)
    determination = best.spectrum.determination
    verdict = "ok" if determination == "good" else determination
    worst = best.worst
    second = _validation(p, robot, best, ws, first + 0.02) if p.validation else None
    missing = [second] if isinstance(second, str) else []
    floor = p.floor
    if floor is None and robot.model.gravity[2] < 0.0 and not robot.model.gravity[:2].any():
        floor = 0.0
    reasons = [*_weakness(best), *missing, *_stand_ins(best), *_below_floor(robot, best, floor)]
    if not best.settings.rest:
        reasons.append("rest=false: the motion begins and ends at speed, and `thetad run` refuses it")
    left = f"{100 * worst.share:.2g} % left to the {worst.quantity} limit of {worst.where}"
    head = "" if verdict == "ok" else f"{verdict}: "
    summary = f"{head}condition number {best.condition_number:.4g}; {'; '.join([*reasons, left])}"
    facts = _facts(p, robot)
    known = None
    clear(ws)
    if isinstance(second, Validation):
        known = _known(second)
        write_motion(robot, second.design, p.rate_hz, ws, "validation", known)
        facts.append(("validation", f"{100 * second.difference:.3g} % different, validation.json"))
    metrics = _metrics(p, designer, best, verdict, reasons) | {"validation": known}
    ws.write_json("metrics.json", metrics)
    design = {name: value for name, value in metrics.items() if name != "searches"}  # metrics.json has them
    write_motion(robot, best, p.rate_hz, ws, "trajectory", design)
    ws.write("points.csv", point_table(robot.model, best.series, p.rate_hz))
    ws.write("report.html", excitation_html(robot.model, best, verdict, reasons, facts, floor))
    return Outcome(verdict, summary, metrics, accepted=verdict == "ok" and not missing)


def _validation(p: Excite, robot: RobotFile, best: ExcitationDesign, ws: Workspace, first: float) -> Validation | str:
    """Design a second trajectory, or return why there is none."""
    from rt_core.excitation.errors import ExcitationError
    from rt_core.excitation.validation import APART, design_validation

    report_progress = _progress_of(ws, first, _ENDED - first, "validation")
    seed = p.seed + p.starts + APART
    try:
        # By derivatives in any case: swarms end at much the same motion from any seed.
        found = design_validation(robot.model, best.settings, best, seed=seed, tries=_TRIES, pulse=report_progress)
    except ExcitationError as error:
        return f"no trajectory to validate on: {error}"
    unseen = excite_known.not_compared(robot, wanted=p.urdf_bodies)
    return replace(found, design=replace(found.design, unchecked=(*found.design.unchecked, *unseen)))


def _known(second: Validation) -> dict[str, Any]:
    """Return the properties of the validation trajectory."""
    design = second.design
    known: dict[str, Any] = json_values(
        {
            "difference": second.difference, "optimiser": design.optimiser, "condition_number": design.condition_number,
            "determination": design.spectrum.determination, "margins": design.margins, "worst": design.worst,
            "assumed": design.assumed, "unchecked": design.unchecked,
        }
    )  # fmt: skip
    return known


def _weakness(design: ExcitationDesign) -> list[str]:
    """Return why the motion must not be used to determine parameters; empty if it may."""
    from rt_core.excitation.objective import MAX_INFLATION

    spectrum = design.spectrum
    if spectrum.determination == "undetermined":
        names = ", ".join(weak.name for weak in design.weakest[:2])
        return [f"the motion does not tell apart what is in {names} and others"]
    if spectrum.determination == "poor":
        worst = int(spectrum.inflation.argmax())
        return [
            f"the standard deviation of {design.parameters[worst]} is {spectrum.inflation[worst]:.3g} times what it "
            f"were alone, above {MAX_INFLATION:g}: take a higher base frequency, more iterations or wider limits"
        ]
    return []


def _stand_ins(design: ExcitationDesign) -> list[str]:
    """Return the assumed limits, as one reason."""
    return [f"assumed limits: {' and '.join(design.assumed)}"] if design.assumed else []


def _below_floor(robot: RobotFile, design: ExcitationDesign, floor: float | None) -> list[str]:
    """Return what goes below the floor [m], as one reason."""
    from service.reports.excitation import path_points

    lowest = path_points(robot.model, design)[..., 2].min(axis=0)
    if floor is None or lowest.min() >= floor:
        return []
    name = [*(joint.name for joint in robot.model.joints), "the flange"][int(lowest.argmin())]
    height = f"{name} goes down to {lowest.min():.3g} m, below the floor at {floor:g} m"
    return [f"{height}: bound the motion by workspace or regions, or give the floor's height as floor"]


def _facts(p: Excite, robot: RobotFile) -> list[tuple[str, str]]:
    return [*_earlier(p), ("robot", f"{robot.model.name}, {robot.model.n} joints, sha256 {robot.sha256[:12]}")]


def _earlier(p: Excite) -> list[tuple[str, str]]:
    if not p.after:
        return []
    seconds = sum(motion.seconds for motion in p.after)
    return [("counted besides", f"{len(p.after)} earlier trajectories, {seconds:g} s of them")]


def _metrics(
    p: Excite, designer: Designer, design: ExcitationDesign, verdict: str, reasons: Sequence[str]
) -> dict[str, Any]:
    from service.reports.excitation import excitation_facts, verdict_text

    spectrum = design.spectrum
    found: dict[str, Any] = json_values(
        {
            "verdict": verdict, "verdict_text": verdict_text(verdict, design), "reasons": reasons,
            "facts": [*excitation_facts(design), *_earlier(p)], "objective": p.objective, "scaled": p.scaled,
            "columns": p.columns, "optimiser": design.optimiser, "seed": design.seed, "value": design.value,
            "condition_number": spectrum.condition_number, "condition_number_scaled": spectrum.condition_scaled,
            "condition_number_unscaled": spectrum.condition_unscaled, "singular_values": spectrum.singular_values,
            "parameters": design.parameters, "inflation": spectrum.inflation, "left_out": design.left_out,
            "weakest": design.weakest, "margins": design.margins, "worst": design.worst, "assumed": design.assumed,
            "unchecked": design.unchecked, "penalty": designer.slope, "searches": design.searches,
        }
    )  # fmt: skip
    return found


KIND = Kind(
    "excite", "design a trajectory that determines the parameters of a robot well", Excite, _run,
    fan_out=FanOut(_split, _part, _gather), divided=lambda p: p.starts > 1,
)  # fmt: skip
