"""Report of a calibration as a self-contained HTML page."""

import math
from collections.abc import Sequence
from typing import Any

from rt_core.calibration.result import Calibration
from rt_core.types import BoolArray, FloatArray
from service.reports.cells import number
from service.reports.figures.calibration import axis_errors_figure, error_histogram_figure, error_vectors_figure
from service.reports.page import embedded_figure, fact_table, render_page, table, text

VERDICT_TEXT = {
    "ok": "the corrected arm may be used", "undetermined": "the poses show nothing of the arm",
    "not_explained": "the errors are too large for errors of geometry: the data do not belong to this arm as it is "
    "described",
    "outliers": "poses that do not fit the others make up most of the error",
    "at_bound": "some parameter reached the largest error allowed",
    "not_converged": "the search ended short of the minimum", "no_gain": "the nominal geometry is as good",
    "overfit": "the estimates do not hold on poses that were not fitted",
}  # fmt: skip
_ERRORS = ("<poses", "number", "<geometry", "mean", "rms", "largest", "angle, mean [deg]")
_PARAMETERS = ("<parameter", "nominal", "correction", "std", "<unit", "std [%]", "<status")


def calibration_html(found: Calibration, document: dict[str, Any], positions: FloatArray, use: BoolArray) -> str:
    """Render the report of a calibration with points at `positions` (N, 3) [m]; those in `use` (N,) were fitted."""
    before, after = found.residual_before, found.residual_after
    facts, vectors = calibration_facts(document), error_vectors_figure(positions, before, after)
    sections = [
        *table("Errors", _ERRORS, _error_rows(document), text("calibration.errors")),
        *fact_table("What was fitted", facts),
        embedded_figure("calibration.vectors_figure", vectors, "Errors in space"),
        embedded_figure("calibration.histogram_figure", error_histogram_figure(before, after, use), "How large"),
        embedded_figure("calibration.axes_figure", axis_errors_figure(before, after), "Along each axis"),
        *table("Parameters of the arm", _PARAMETERS, [_parameter(p) for p in document["parameters"]]),
        *table(
            "Held at nominal", ("<parameter", "<why", "*in whose stead"),
            [(f["name"], f["reason"].replace("_", " "), ", ".join(f["on"])) for f in document["fixed"]],
        ),
        *table(
            "Correlations above 0.9", ("<parameters", "correlation"),
            [(" and ".join(c["names"]), number(c["correlation"], 3)) for c in document["correlated"]],
        ),
    ]  # fmt: skip
    return render_page(
        f"{document['robot']['name']}: kinematic calibration", sections, verdict=found.verdict,
        verdict_text=VERDICT_TEXT[found.verdict], reasons=[*found.reasons, *document["doubts"]], facts=facts,
    )  # fmt: skip


def calibration_facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was measured and how well the poses determine it, as pairs of name and value."""
    data, scale, deviations = document["data"], document["scale"], document["standard_deviations"]
    source = deviations["from"].replace("_", " ")
    facts = [
        ("measured", f"{data['kind']} at {data['poses']} poses, {document['outliers']} of them outlying"),
        ("fitted", f"{document['rank']} parameters by {document['settings']['method']}"),
        ("scale of a coordinate", f"{number(scale['position_mm'])} mm"),
        ("condition number", number(document["condition_number"])),
        ("observability", ", ".join(f"{name} {number(value, 3)}" for name, value in document["observability"].items())),
        ("standard deviations", f"from {source}, {number(deviations['freedom'], 3)} degrees of freedom"),
    ]
    expected = document["expected"]
    if expected["rms_mm"] is not None:
        facts.append(("new poses", f"off by {number(expected['rms_mm'])} mm rms, within the joint limits"))
    if document["distance_offset"] is not None:
        offset = document["distance_offset"]
        facts.append(("distance offset", f"{number(offset['value_mm'], 4)} ± {number(2.0 * offset['std_mm'], 2)} mm"))
    carried = [p["name"] for p in document["parameters"] if p["status"] == "prior"]
    if carried:
        facts.append(("from the prior", f"{', '.join(carried)}: no measurements, the poses say less of them"))
    if data["kind"] == "socket" and document["residual"]["test"] is not None:
        facts.append(("not tested", "the size of the arm: sockets farther apart go with a larger arm"))
    if scale["rotation_rad"] is not None:
        facts.insert(3, ("scale of a rotation", f"{number(math.degrees(scale['rotation_rad']))} deg"))
    return facts


def _error_rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    found = [(part, document["residual"][part]) for part in ("training", "test", "check")]
    return [
        (
            part, str(of["poses"]), when, *(number(of[when][f"{key}_mm"], 4) for key in ("mean", "rms", "max")),
            number(of[when]["mean_deg"], 3) if "mean_deg" in of[when] else "",
        )
        for part, of in found if of is not None for when in ("before", "after")
    ]  # fmt: skip


def _parameter(p: dict[str, Any]) -> tuple[str, ...]:
    known = p["value"] is not None
    return (
        p["name"], number(1e3 * p["nominal"], 6), number(1e3 * p["value"], 4) if known else "",
        number(1e3 * p["std"], 2) if known and p["std"] is not None else "", f"m{p['unit']}",
        number(100.0 * p["relative_std"], 2) if known and p["relative_std"] is not None else "", p["status"],
    )  # fmt: skip


def undetermined(document: dict[str, Any]) -> Sequence[str]:
    """Return the names of the arm's parameters without a value."""
    return [p["name"] for p in document["parameters"] if p["value"] is None]
