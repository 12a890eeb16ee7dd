"""Payload of an arm, from its model without payload and a recording with it, as `thetad payload` finds it."""

from service.operations.kind import Kind, Outcome, Parameters
from service.operations.parameter_types import SPAN, Positive, Reference, SpanText, option
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values


class Payload(Parameters):
    """Parameters of `thetad payload`; `model` is of the arm without payload, `recording` is made with it."""

    model: Reference
    recording: Reference
    span: SpanText | None = option(None, SPAN, "A:B")
    refit_effects: bool = option(False, "friction, rotor inertia and offsets may differ between the two")
    torque_std_percent: float = option(
        0.0, "standard deviation of the torque's scale [%], as of torque constants: intervals of mass and inertia "
        "allow for it", "PERCENT", flag="--torque-std", ge=0.0, lt=100.0,
    )  # fmt: skip
    known: Positive | None = option(None, "weighed mass [kg]: it tells the factor of the torque", "MASS")


def _run(p: Payload, ws: Workspace) -> Outcome:
    from service.operations.inputs import span_of
    from service.operations.payload import payload_in_recording, with_torque_scale
    from service.reports.payload import VERDICT_TEXT, payload_page, payload_summary

    ws.progress(0.05, "reading the model")
    before = ws.model()
    ws.progress(0.1, "reading the recording")
    recording = ws.recording()
    ws.progress(0.3, "looking for the payload")
    span, loaded = span_of(p.span), ws.inputs["recording"].label
    result = payload_in_recording(before, recording, span=span, refit_effects=p.refit_effects)
    result = with_torque_scale(result, 0.01 * p.torque_std_percent, p.known)
    ws.progress(0.8, "report")
    metrics = json_values(payload_summary(result, before, loaded, span, p.refit_effects))
    ws.write("report.html", payload_page(result, before, loaded))
    ws.write_json("metrics.json", metrics)
    mass = metrics["mass"]
    summary = f"{result.verdict}: {VERDICT_TEXT[result.verdict]}"
    if mass["value"] is not None:
        summary += f"; mass {mass['value']:.4g} kg, 95 % {mass['lower']:.4g} to {mass['upper']:.4g}"
    return Outcome(result.verdict, summary, metrics, result.known)


KIND = Kind(
    "payload", "mass, centre of mass and inertia of a payload", Payload, _run, recordings=("recording",),
    models=("model",),
)  # fmt: skip
