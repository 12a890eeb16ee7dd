"""Validation of a model on a recording, as `thetad validate` does."""

from service.operations.kind import Kind, Outcome, Parameters
from service.operations.parameter_types import SPAN, Reference, SpanText, option
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values


class Validate(Parameters):
    """Parameters of `thetad validate`."""

    model: Reference
    recording: Reference
    span: SpanText | None = option(None, SPAN, "A:B")


def _run(p: Validate, ws: Workspace) -> Outcome:
    from service.operations.inputs import span_of
    from service.reports.validation import report_validation

    ws.progress(0.05, "reading the model")
    model = ws.model()
    ws.progress(0.1, "reading the recording")
    recording = ws.recording()
    ws.progress(0.3, "predicting")
    report = report_validation(model, recording, span_of(p.span))
    ws.progress(0.7, "report")
    result, metrics = report.result, json_values(report.summary())
    ws.write("report.html", report.html())
    ws.write_json("metrics.json", metrics)
    summary = f"{result.verdict}: relative torque error {100 * result.metrics.relative_error:.2f} %"
    return Outcome(result.verdict, "; ".join((summary, *result.reasons)), metrics, accepted=result.verdict == "ok")


KIND = Kind(
    "validate", "compare a model's torque with a recording's", Validate, _run, recordings=("recording",),
    models=("model",),
)  # fmt: skip
