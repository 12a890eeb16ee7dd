"""Promotion of a model to the active one, judged on data it was not fitted to; the executor stores the promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.operations.errors import OperationError
from service.operations.kind import Kind, Outcome, Parameters
from service.operations.parameter_types import Reference, RobotText, SpanText
from service.operations.workspace import Workspace

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from drivers.files.robots.file import RobotFile
    from service.models.document import ModelFile
    from service.operations.identify import Validation

#: Rows within so many periods of the cut-off of the fitted data share information with them through the filters.
_GUARD_PERIODS = 4.0


#: Result with the values for the online estimator: theta (p,), constants (p,), covariance (p, p); temperatures (2, n)
#: where friction follows them.
ACTIVE = "active.json"


class Promote(Parameters):
    """The candidate, and the data that it is judged on."""

    model: Reference
    recording: Reference
    span: SpanText | None = None
    robot: RobotText | None = None  # of the arm; set by the queue, as is the following
    springs: list[str] | None = None  # joints whose springs start from the active model; None: none is estimated


def _run(p: Promote, ws: Workspace) -> Outcome:
    from rt_core.identification.model_comparison import BLOCK_S, compare_residuals
    from service.config.load import ConfigError
    from service.operations.elastic.file import known_springs
    from service.operations.identify import signal_settings
    from service.operations.inputs import open_robot, span_of
    from service.operations.validate import validate_model

    ws.progress(0.05, "reading the models")
    candidate = ws.model()
    present = ws.model("present") if "present" in ws.inputs else None
    recording = ws.recording()
    span = span_of(p.span)
    robot = open_robot(p.robot)
    _check(candidate, robot)
    try:
        known_springs(candidate.springs, p.springs)
    except ConfigError as wrong:
        raise OperationError(f"model {candidate.path.name}: {wrong}") from wrong
    if present is not None:
        _check(present, robot)
    settings = signal_settings(robot)  # the arm's own, so that no model is judged by settings that suit it

    def residuals(model: ModelFile) -> Validation:
        fit_error = candidate.fit_error if model is candidate else None
        both = bool(candidate.springs or (present is not None and present.springs))
        return validate_model(model, recording, settings, span, fit_error, both_encoders=both)

    ws.progress(0.2, "predicting with the candidate")
    new = residuals(candidate)
    _check_unseen(candidate, recording, new)
    ws.write_json(ACTIVE, estimator_values(candidate))
    metrics = {
        "candidate": {"model": ws.inputs["model"].sha256, "verdict": new.verdict, **new.metrics.as_dict()},
        "present": None, "rows": [int(count) for count in new.metrics.count],
        "span": "0:1" if span is None else str(span),
    }  # fmt: skip
    error = f"relative torque error {100 * new.metrics.relative_error:.2f} %"
    if new.verdict != "ok":
        ws.write_json("metrics.json", metrics)
        return Outcome(new.verdict, "; ".join((error, *new.reasons)), metrics, accepted=False)
    if present is None:
        ws.write_json("metrics.json", metrics)
        return Outcome("promoted", f"{error}; there was no model before", metrics)
    ws.progress(0.6, "predicting with the present model")
    old = residuals(present)
    paired = compare_residuals(
        new.rows.t, new.rows.tau - new.predicted, old.rows.tau - old.predicted, new.rows.use & old.rows.use,
        max(BLOCK_S, _GUARD_PERIODS / settings.cutoff_hz) if settings.cutoff_hz else BLOCK_S,
    )  # fmt: skip
    metrics["present"] = {"model": ws.inputs["present"].sha256, "verdict": old.verdict, **old.metrics.as_dict()}
    metrics["comparison"] = {"gain": paired.gain, "z": paired.z, "rmse_ratio": paired.ratio.tolist()}
    ws.write_json("metrics.json", metrics)
    against = f"{error} against {100 * old.metrics.relative_error:.2f} %"
    return Outcome(
        "promoted" if paired.better else "not_better", f"{against}; {paired.reason}", metrics, accepted=paired.better
    )


def estimator_values(model: ModelFile) -> dict[str, Any]:
    """Return the values of a model that an estimator adopts, as plain JSON."""
    values = model.values | {"covariance": model.rigid[2].tolist(), "robot": model.robot.sha256}
    return values | ({"elastic": model.springs} if model.springs else {})


def _check(model: ModelFile, robot: RobotFile) -> None:
    if model.document["kind"] != "batch":
        raise OperationError(
            "model: is an online estimate; only a model of `identify`, whose data are known, can be judged on others"
        )
    if model.robot.sha256 != robot.sha256:
        raise OperationError(
            f"model {model.path.name}: is of robot {model.robot.model.name} ({model.robot.sha256[:12]}), the arm is "
            f"{robot.model.name} ({robot.sha256[:12]}): the robot's description has changed, or it is another one"
        )


def _check_unseen(candidate: ModelFile, recording: Recording, validation: Validation) -> None:
    """Refuse data that the candidate was fitted to, in this recording or in another with the same frames."""
    from service.models.origin import share_seen

    cutoff_hz = candidate.settings.cutoff_hz
    guard = 0.0 if not cutoff_hz else _GUARD_PERIODS / cutoff_hz
    seen = share_seen(candidate.document["data"], recording, validation.rows.t, guard)
    if seen > 0.0:
        raise OperationError(
            f"span: the model was fitted to {100 * seen:.0f} % of these data (or to frames within {guard:.2g} s of "
            "them): choose another span or recording"
        )


KIND = Kind(
    "promote", "make a model an arm's active one, if it is better on data that it was not fitted to", Promote, _run,
    recordings=("recording",), models=("model",), needs_arm=True, uses_active=True,
)  # fmt: skip
