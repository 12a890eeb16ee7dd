"""Comparison of estimators on simulated truth, as `thetad compare` does; every seed is a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from rt_core.identification.methods import COMPARABLE, COMPARED
from service.operations.kind import FanOut, Kind, Outcome, Parameters
from service.operations.parameter_types import Positive, RobotText, Seed, option
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values

if TYPE_CHECKING:
    from rt_core.model.robot import RobotModel
    from service.operations.compare import Conditions, SeedTrials


def _known(name: str) -> str:
    if name not in COMPARABLE:
        raise ValueError(f"unknown method; known: {', '.join(COMPARABLE)}")
    return name


class Compare(Parameters):
    """Parameters of `thetad compare`; seeds count from `first_seed`."""

    robot: RobotText | None = option(None, "robot file or name (the truth)", "R")
    methods: Annotated[list[Annotated[str, AfterValidator(_known)]], Field(min_length=1, max_length=64)] = option(
        list(COMPARED), "what to compare", "M"
    )
    seeds: int = option(3, "motions and noises", "N", ge=1, le=1000)
    first_seed: Seed = 1
    seconds: float = option(40.0, "length of the exciting motion", "S", ge=2.0, lt=1e5)
    noise: Annotated[list[Positive], Field(min_length=1)] | None = option(None, "torque noise per joint [N*m]", "SD")
    outliers: float = option(0.0, "share of training samples", "SHARE", ge=0.0, lt=0.5)


def truth(p: Compare) -> tuple[RobotModel, Conditions]:
    """Return the arm and the conditions of the comparison; raises `DataError` as `check_conditions` does."""
    import numpy as np

    from service.operations.compare import Conditions, check_conditions
    from service.operations.inputs import open_robot

    model = open_robot(p.robot).model
    noise = None if p.noise is None else np.asarray(p.noise, dtype=np.float64)
    conditions = Conditions(seconds=p.seconds, validation_s=p.seconds / 2, noise=noise, outliers=p.outliers)
    check_conditions(model, p.methods, conditions)
    return model, conditions


def _split(p: Compare) -> list[dict[str, Any]]:
    return [{"seed": p.first_seed + k} for k in range(p.seeds)]


def _part(p: Compare, part: dict[str, Any], ws: Workspace) -> dict[str, Any]:
    return _one(p, int(part["seed"]), ws, 0.0, 1.0)


def _one(p: Compare, seed: int, ws: Workspace, start: float, length: float) -> dict[str, Any]:
    """Run all methods on one seed; its progress begins at `start` and covers `length` of the whole."""
    from service.operations.compare import compare_seed

    model, conditions = truth(p)

    def report_progress(done: int, what: str) -> None:
        ws.progress(start + length * done / len(p.methods), f"seed {seed}: {what}")

    return _encoded(compare_seed(model, p.methods, seed, conditions, report_progress))


def _encoded(found: SeedTrials) -> dict[str, Any]:
    """Return a seed's trials as plain JSON, exact, without their durations, which are never the same twice."""
    trials = [
        {name: _exact(value) for name, value in vars(trial).items() if name != "seconds"} for trial in found.trials
    ]
    return {"seed": found.seed, "noise": _exact(found.noise), "trials": trials}


def _exact(value: Any) -> Any:
    """Return plain JSON in which a number that JSON does not have is a text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _decoded(part: dict[str, Any]) -> SeedTrials:
    import numpy as np

    from service.operations.compare import SeedTrials, Trial

    trials = []
    for row in part["trials"]:
        arrays = {name: np.asarray(row[name], dtype=np.float64) for name in ("torque_error", "rmse", "R")}
        parameter = None if row["parameter_error"] is None else float(row["parameter_error"])
        trials.append(Trial(**(row | arrays | {"parameter_error": parameter, "seconds": math.nan})))
    return SeedTrials(part["seed"], np.asarray(part["noise"], dtype=np.float64), tuple(trials))


def _gather(p: Compare, parts: Sequence[dict[str, Any]], ws: Workspace) -> Outcome:
    from service.operations.compare import comparison_document, gather
    from service.reports.comparison import comparison_html, ordered

    model, conditions = truth(p)
    result = gather(model, conditions, [_decoded(part) for part in parts])
    metrics = json_values(comparison_document(result))
    ws.write("report.html", comparison_html(result))
    ws.write_json("metrics.json", metrics)
    failed = [s["method"] for s in metrics["methods"] if s["failed"] == s["seeds"]]
    best = ordered(result)[0]
    error = result.summary(best)["error_in_noise"]
    summary = "no method gave a result" if error is None else f"best: {best}, error {error:.3g} of the noise"
    if failed and error is not None:
        summary += f"; never a result: {', '.join(failed)}"
    return Outcome("method_failed" if failed else "ok", summary, metrics, accepted=not failed)


def _run(p: Compare, ws: Workspace) -> Outcome:
    seeds = [part["seed"] for part in _split(p)]
    return _gather(p, [_one(p, seed, ws, k / len(seeds), 1.0 / len(seeds)) for k, seed in enumerate(seeds)], ws)


KIND = Kind(
    "compare", "compare estimators on simulated truth", Compare, _run, fan_out=FanOut(_split, _part, _gather),
    divided=lambda p: p.seeds > 1,
)  # fmt: skip
