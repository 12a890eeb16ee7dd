"""An arm with elastic joints as a self-contained HTML page."""

from __future__ import annotations

from service.operations.elastic.arm import ElasticArm
from service.reports.identification import html_report


def elastic_arm_html(found: ElasticArm) -> str:
    """Return the self-contained page."""
    name = found.recording.file_name or "a recording"
    return html_report(
        f"{found.robot.model.name}: elastic joints from {name}",
        found.robot.model,
        found.fit.rows,
        found.fit.rows.predict(found.fit.solution.theta),
        found.fit.metrics,
        found.verdict,
        found.reasons,
        found.facts(),
        found.document["parameters"] if found.accepted else (),
    )
