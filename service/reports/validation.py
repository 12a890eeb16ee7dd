"""Results of a validation: facts for people, page, figures for programs."""

from dataclasses import dataclass
from typing import Any

from drivers.files.recordings.recording import Recording, Span
from rt_core.identification.temperature import temperatures_of
from service.models.document import ModelFile, ranges_of, settings_document
from service.models.origin import share_seen
from service.operations.identify import Validation, band_text, selection_text, span_text
from service.operations.validate import validate_model


@dataclass(frozen=True)
class ValidationReport:
    """A validation and its input."""

    result: Validation
    model: ModelFile
    recording: Recording
    span: Span | None

    def facts(self) -> list[tuple[str, str]]:
        """Return what was done, as pairs of name and value."""
        metrics, rows, settings = self.result.metrics, self.result.rows, self.result.settings
        count = ", ".join(str(int(c)) for c in metrics.count)
        return [
            ("model", f"{self.model.path}, {self.model.document['method']} from {self.model.origin}"),
            ("recording", f"{self.recording.path}, span {span_text(self.span)}"),
            ("band", band_text(settings, rows.rate_hz, rows.band_hz)),
            ("window", f"{rows.t[0]:.4g} s to {rows.t[-1]:.4g} s"),
            ("rows", f"{count} per joint{selection_text(settings)}"),
            ("relative torque error", f"{100 * metrics.relative_error:.2f} %"),
            *([("not independent", self.seen_text)] if self.seen > 0.0 else []),
            *(("note", note) for note in self.result.notes), *(("outside its range", note) for note in self.outside),
        ]  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data, and where the use leaves the model's ranges."""
        return (*self.result.notes, *self.outside)

    @property
    def outside(self) -> tuple[str, ...]:
        """Where the motion leaves the speeds, loads and temperatures that the model was identified in."""
        ranges = self.model.ranges
        if ranges is None:
            return ()
        return ranges.notes(self.model.robot.model, ranges_of(self.result.rows, self.recording))

    @property
    def seen(self) -> float:
        """Share of the rows that the model was fitted to."""
        return share_seen(self.model.document["data"], self.recording, self.result.rows.t)

    @property
    def seen_text(self) -> str:
        """What the share of rows that were seen means."""
        return (
            f"the model was fitted to {100 * self.seen:.0f} % of these data: the error is that of the fit and says "
            "nothing about another motion"
        )

    def html(self) -> str:
        """Render the report."""
        from service.reports.identification import html_report  # matplotlib takes 0.9 s to import

        robot, result = self.model.robot.model, self.result
        name = "a recording" if self.recording.path is None else self.recording.path.name
        title = f"{robot.name}: validation on {name}"
        return html_report(title, robot, result, self.facts())

    def summary(self) -> dict[str, Any]:
        """Return the `--json` result."""
        result = self.result
        metrics, rows = result.metrics, result.rows
        return metrics.as_dict() | {
            "verdict": result.verdict, "reasons": result.reasons, "model": str(self.model.path),
            "recording": str(self.recording.path), "span": span_text(self.span), "rows": metrics.count.astype(int),
            "row_rate_hz": rows.rate_hz, "band_hz": rows.band_hz, "first_s": float(rows.t[0]),
            "last_s": float(rows.t[-1]), "fit_relative_error": self.model.fit_error, "share_fitted": self.seen,
            "settings": settings_document(result.settings), "temperature": self._temperature(),
            "notes": self.notes,
        }  # fmt: skip

    def _temperature(self) -> dict[str, Any] | None:
        """Return temperatures of identification and validation, and the share of rows outside; None without any."""
        fitted, seen = self.model.temperatures, temperatures_of(self.model.robot.model, self.result.rows)
        if fitted is None or seen is None:
            return None
        return {
            "fitted": {"lower": fitted.lower, "upper": fitted.upper},
            "seen": {"lower": seen.lower, "upper": seen.upper}, "share_outside": self.result.outside,
            "within": bool((self.result.outside == 0.0).all()),
        }  # fmt: skip


def report_validation(model: ModelFile, recording: Recording, span: Span | None = None) -> ValidationReport:
    """Validate a model file on a span of a recording, whose signals are prepared as for the identification."""
    result = validate_model(model, recording, model.settings, span, model.fit_error)
    return ValidationReport(result, model, recording, span)
