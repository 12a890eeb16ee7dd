"""Results of an identification: model file, facts for people, page, figures for programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rt_core.identification.identify import Identification, finding_text
from rt_core.types import FloatArray
from rt_core.validation import torque_metrics
from service.models.document import batch_document, write_model
from service.models.origin import Dataset
from service.operations.identify import band_text, selection_text, span_text
from service.reports.cells import stiffness_text

#: Keys of a model file that a summary leaves out: only predictions need them.
_BULK = ("theta", "covariance", "robot", "metrics", "format")


@dataclass(frozen=True)
class IdentificationReport:
    """An identification and its input.

    `document` is the model file; of a model that does not explain its recording, without the values that people read.
    `joint_model` says why joints are elastic, or rigid where they need not have been.
    """

    result: Identification
    data: Dataset
    document: dict[str, Any]
    joint_model: dict[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the model explains the recording."""
        return self.result.verdict != "not_explained"

    @property
    def predicted(self) -> FloatArray:
        """Torque (K, n) of the model at the rows."""
        return self.result.rows.predict(self.result.theta)

    def errors_within(self, spans: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
        """Return the torque error within spans of time [s]: relative, and the rms of each joint."""
        rows, found = self.result.rows, []
        for start, stop in spans:
            inside = (rows.t >= start) & (rows.t <= stop)
            metrics = torque_metrics(rows.tau[inside], self.predicted[inside], rows.use[inside])
            rows_used = int(metrics.count.sum())
            found.append({"relative_error": metrics.relative_error, "rmse": metrics.rmse.tolist(), "rows": rows_used})
        return found

    def facts(self) -> list[tuple[str, str]]:
        """Return what was done, as pairs of name and value."""
        result, robot, recording, settings = self.result, self.data.robot, self.data.recording, self.data.settings
        rows, trim = result.rows, settings.trim
        count = ", ".join(str(int(c)) for c in result.metrics.count)
        plain, scaled = result.solution.condition_number, result.solution.scaled_condition_number
        facts = [
            ("robot", f"{robot.model.name}, {robot.model.n} joints, sha256 {robot.sha256[:12]}"),
            ("recording", f"{recording.path}, span {span_text(self.data.span)}, sha256 {recording.sha256[:12]}"),
            ("method", f"{result.options.method}, {len(result.base)} base parameters"),
            ("band", band_text(settings, rows.rate_hz, rows.band_hz)),
            ("window", f"{rows.t[0]:.4g} s to {rows.t[-1]:.4g} s ({trim:.3g} s cut at both ends of each recording)"),
            ("rows", f"{count} per joint{selection_text(settings)}"),
            ("condition number", f"{plain:.0f}, {scaled:.0f} with unit columns"),
            ("relative torque error", f"{100 * result.metrics.relative_error:.2f} %"),
        ]
        if springs := self.document.get("elastic", ()):
            facts.append(("joints", "elastic: rotors and their friction move as motors' encoders say, links as theirs"))
        facts += [(f"stiffness {spring['joint']}", stiffness_text(spring)) for spring in springs]
        if result.temperatures is not None:
            pairs = zip(result.temperatures.lower, result.temperatures.upper, strict=True)
            facts.append(("temperatures", ", ".join(f"{low:.1f} to {high:.1f}" for low, high in pairs) + " degC"))
        if result.impossible_temperatures:
            facts.append(("temperatures that cannot be", f"{result.impossible_temperatures}, left out"))
        if needed := self.document.get("needs_gravity"):
            facts.append(("undetermined without gravity", ", ".join(needed)))
        diagnosis = result.diagnosis
        if diagnosis.gravity_acts and diagnosis.gravity_tells and not diagnosis.gravity_seen:
            facts.append(("gravity", "these data fit equally well with any mounting direction: it is not verified"))
        facts.extend(("note", note) for note in result.notes)
        facts.extend(
            ("tested", f"{finding_text(f, result.model)} ({f.z:.1f} standard deviations, not the cause)")
            for f in result.diagnosis.findings
            if not f.named
        )
        return facts

    def html(self) -> str:
        """Render the report."""
        from service.reports.identification import html_report  # matplotlib takes 0.9 s to import

        model, search = self.data.robot.model, self.result.estimate.search
        title = f"{model.name}: identification from {self.data.recording.file_name or 'a recording'}"
        document, history = self.document if self.accepted else {}, [] if search is None else [search.history]
        return html_report(title, model, self.result, self.facts(), document, history)

    def summary(self) -> dict[str, Any]:
        """Return the `--json` result: the model file without the bulk, metrics on top."""
        document = self.document
        kept = {k: v for k, v in document.items() if k not in _BULK}
        if not self.accepted:
            kept["standard"] = None
        robot = {k: v for k, v in document["robot"].items() if k != "source"}
        metrics: dict[str, Any] = document["metrics"]
        choice = {} if self.joint_model is None else {"joint_model": self.joint_model}
        if springs := document.get("elastic"):  # as in `arm.json` of earlier versions, for one version more
            same = [{name: spring[name] for name in ("unit", "stiffness", "stiffness_cubic")} for spring in springs]
            kept["joints"] = [joint | spring for joint, spring in zip(document["joints"], same, strict=True)]
        return metrics | kept | {"robot": robot} | choice

    def write(self, path: Path) -> None:
        """Write the model file; raises `ModelFileError` as `write_model` does."""
        write_model(self.document, path)


def report_of(
    result: Identification, data: Dataset, created: str | None, springs: Sequence[dict[str, Any]] = ()
) -> IdentificationReport:
    """Return the report of an identification; `created` and `springs` as in `batch_document`."""
    data = replace(data, settings=replace(data.settings, velocity=result.velocity))
    document = batch_document(result, data, created, springs)
    if result.verdict == "not_explained":
        for row in document["parameters"]:
            row.update(value=None, status="invalid")
        for row in document["constants"]:
            row.update(value=None, lower=None, upper=None, status="invalid")
        for row in document["joints"]:
            row.update(counts={})
    return IdentificationReport(result, data, document)
