"""Identification of a robot from a recording, as `thetad identify` does; searches from several seeds in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from rt_core.identification.methods import SEARCHES, Constants, Formulation, Method
from service.operations.elastic.parameters import Lag
from service.operations.errors import OperationError
from service.operations.kind import FanOut, Kind, Outcome, Parameters
from service.operations.parameter_types import (
    ROBOT,
    SPAN,
    NotNegative,
    Positive,
    Reference,
    RobotText,
    Seed,
    SpanText,
    option,
)
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from drivers.files.robots.file import RobotFile
    from rt_core.optimise.run import SearchProgress
    from service.reports.identification_document import IdentificationReport


#: Parameters that do not apply to elastic joints.
RIGID_ONLY = ("method", "loss", "essential", "prior", "weight", "period_s")
_FIT, _SIGNALS = "estimator", "signal preparation (default: the robot file's [identification])"


class Identify(Parameters):
    """Parameters of `thetad identify`; and `multi_start`, the number of seeds to search from, of which the best wins.

    With `period_s` the recording is averaged over the periods of its motion first.
    """

    recording: Reference
    robot: RobotText | None = option(None, ROBOT, "R")
    joints: Literal["rigid", "elastic", "auto"] = option(
        "rigid", "whether the whole arm's joints give way; auto: as the data call for"
    )
    lag: Lag = option("estimate", "elastic joints: how late the link encoders are", "S")
    method: Method = option("wls", "estimator")
    span: SpanText | None = option(None, SPAN, "A:B")
    loss: Literal["bisquare", "huber", "none"] = option("bisquare", "iwls: how outliers lose weight", group=_FIT)
    constants: Constants = option("search", "velocity constants of friction", group=_FIT)
    formulation: Formulation = option("separable", "what a search runs over", group=_FIT)
    essential: bool = option(False, "drop parameters that the data do not support", group=_FIT)
    seed: Seed = option(0, "seed of a search", "N", _FIT)
    starts: int = option(8, "starts of the separable search", "N", _FIT, ge=1, le=10_000)
    bounds: dict[str, tuple[float, float]] = option(
        {}, "range of a parameter in a search, by its name", "NAME=LOW:HIGH", _FIT
    )
    prior: RobotText | None = option(None, "physical: robot file with the prior (default: the robot itself)", "R", _FIT)
    weight: Positive | None = option(None, "physical: weight of the prior (from data)", "W", _FIT)
    cutoff_hz: Positive | None = option(None, "zero-phase low-pass on position and torque", "HZ", _SIGNALS, "--cutoff")
    rate_hz: Positive | None = option(None, "rate of the rows after decimation", "HZ", _SIGNALS, "--rate")
    trim_s: NotNegative | None = option(None, "cut at both ends of each recording", "S", _SIGNALS, "--trim")
    min_velocity: Annotated[list[NotNegative], Field(min_length=1)] | None = option(
        None, "leave out slower samples, one value or one per joint", "V", _SIGNALS
    )
    period_s: Positive | None = option(
        None, "average over the periods of a motion that was repeated first", "S", flag="--period"
    )
    multi_start: int = Field(default=1, ge=1, le=256)

    @model_validator(mode="after")
    def _consistent(self) -> Identify:
        if self.multi_start > 1 and self.method not in SEARCHES:
            raise ValueError(f"multi_start: is for methods that search ({', '.join(SEARCHES)}), not {self.method}")
        foreign = [name for name in RIGID_ONLY if getattr(self, name) != type(self).model_fields[name].default]
        if self.joints != "rigid" and foreign:
            raise ValueError(f"{', '.join(foreign)}: not with joints {self.joints}")
        if self.joints == "rigid" and self.lag != "estimate":
            raise ValueError("lag: is of elastic joints; set joints")
        return self


def identified(
    p: Identify, robot: RobotFile, recording: Recording, progress: Callable[[float, str], None],
    created: str | None = None,
) -> IdentificationReport:  # fmt: skip
    """Identify a robot with rigid joints from a recording, whatever `p` names; `with_joints` is to follow.

    `created` as in `batch_document`.
    """
    from rt_core.identification.estimate import EstimatorOptions
    from service.models.origin import Dataset
    from service.operations.identify import (
        average_recording,
        identify_recording,
        prior_model,
        signal_settings,
        slowest_velocity,
    )
    from service.operations.inputs import open_robot, span_of
    from service.reports.identification_document import report_of

    if p.joints == "elastic":
        from service.operations.elastic.arm import why_not_elastic

        if (reason := why_not_elastic(recording, robot.model)) is not None:
            raise OperationError(f"joints elastic: {reason}")
    settings = signal_settings(
        robot, cutoff_hz=p.cutoff_hz, rate_hz=p.rate_hz, trim_s=p.trim_s,
        min_velocity=slowest_velocity(robot, p.min_velocity),
    )  # fmt: skip
    options = EstimatorOptions(
        method=p.method, formulation=p.formulation, loss=None if p.loss == "none" else p.loss, constants=p.constants,
        essential=p.essential, seed=p.seed, starts=p.starts, bounds=p.bounds or None,
        prior=None if p.prior is None else prior_model(robot.model, open_robot(p.prior).model), weight=p.weight,
    )  # fmt: skip
    if p.period_s is not None:
        recording = average_recording(recording, p.period_s)

    def report_progress(search: SearchProgress) -> None:
        share = search.iteration / search.of if search.of else 1.0
        progress(0.1 + 0.7 * min(share, 1.0), f"search ({search.stage}), cost {search.cost:.4g}")

    progress(0.1, f"{p.method}, seed {p.seed}" if p.method in SEARCHES else p.method)
    data = Dataset(recording, robot, settings, span_of(p.span))
    result = identify_recording(data, options=options, callback=report_progress)
    progress(0.85, "report")
    return report_of(result, data, created)


def with_joints(p: Identify, rigid: IdentificationReport) -> IdentificationReport:
    """Return the result for the joints that `p` asks for; `rigid` is that of `identified`."""
    if p.joints == "rigid":
        return rigid
    from service.operations.elastic.arm import choose_joints
    from service.reports.identification_document import report_of

    data = rigid.data
    found, springs, choice = choose_joints(p.joints, data.recording, rigid.result, data.settings, data.span, p.lag)
    if springs:
        rigid = report_of(found, data, rigid.document["created"], springs)
    return replace(rigid, joint_model=choice)


def _fit(p: Identify, seed: int, ws: Workspace) -> IdentificationReport:
    """Identify with one seed."""
    from service.operations.inputs import open_robot

    robot = open_robot(p.robot)
    ws.progress(0.02, "reading the recording")
    return identified(p.model_copy(update={"seed": seed}), robot, ws.recording(), ws.progress, ws.created)


def _finished(p: Identify, rigid: IdentificationReport, more: dict[str, Any], ws: Workspace) -> Outcome:
    report = with_joints(p, rigid)
    result, metrics = report.result, json_values(report.summary()) | more
    ws.write("report.html", report.html())
    ws.write_json("metrics.json", metrics)
    if report.accepted:
        report.write(ws.folder / "model.yaml")
        summary = f"{result.verdict}: relative torque error {100 * result.metrics.relative_error:.2f} %"
    else:
        summary = f"{result.verdict}: {'; '.join(result.reasons)}"
    return Outcome(result.verdict, summary, metrics, report.accepted)


def _run(p: Identify, ws: Workspace) -> Outcome:
    if p.multi_start > 1:
        return _gather(p, [_part(p, part, ws) for part in _split(p)], ws)
    return _finished(p, _fit(p, p.seed, ws), {}, ws)


def _split(p: Identify) -> list[dict[str, Any]]:
    return [{"seed": p.seed + k} for k in range(p.multi_start)]


def _part(p: Identify, part: dict[str, Any], ws: Workspace) -> dict[str, Any]:
    """Search from one seed; only the cost is kept, because the best search is repeated at the end."""
    return tried(int(part["seed"]), _fit(p, int(part["seed"]), ws))


def tried(seed: int, report: IdentificationReport) -> dict[str, Any]:
    """Return what is told of a search from one seed among several."""
    found, search = report.result, report.result.estimate.search
    return {
        "seed": seed, "cost": None if search is None else float(search.cost), "verdict": found.verdict,
        "relative_error": float(found.metrics.relative_error),
    }  # fmt: skip


def best_seed(p: Identify, parts: Sequence[dict[str, Any]]) -> int:
    """Return the seed of the cheapest search; raises `OperationError` if nothing was searched for."""
    if not parts or any(part["cost"] is None for part in parts):
        raise OperationError(f"multi_start: nothing was searched for by {p.method} that costs could be compared of")
    return int(min(parts, key=lambda part: (part["cost"], part["seed"]))["seed"])


def _gather(p: Identify, parts: Sequence[dict[str, Any]], ws: Workspace) -> Outcome:
    return _finished(p, _fit(p, best_seed(p, parts), ws), {"multi_start": list(parts)}, ws)


KIND = Kind(
    "identify", "fit the dynamic model of a robot to a recording", Identify, _run, recordings=("recording",),
    fan_out=FanOut(_split, _part, _gather), divided=lambda p: p.multi_start > 1,
)  # fmt: skip
