"""Cells of tables, and words of verdicts, in reports and on the command line; draws nothing."""

import math
from collections.abc import Mapping
from typing import Any

from rt_core.statistics import NORMAL_QUANTILE_95

VERDICT_TEXT = {
    "ok": "the model explains the torque",
    "weak_excitation": "the model explains the torque, but the data do not determine all of it",
    "doubtful": "the model explains most of the torque, but its parameters are not to be trusted",
    "outside_temperatures": "joints are colder or hotter than when the model was identified: it is not known to hold",
    "worse_than_fit": "the model predicts this motion much worse than the one it was identified on",
    "not_explained": "the model does not explain the torque; no parameters are reported",
}

#: Columns of tables, see `service.reports.page.table`.
PARAMETERS = (
    "<parameter", "value", "95\u00a0% from", "to", "<unit", "rel.\u00a0std", "!status", "`stands for"
)  # fmt: skip
ESTIMATES = ("<quantity", *PARAMETERS[1:5], "!status", "*because")


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as a short text, a dash for None."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def percent(value: float | None, digits: str = ".2g") -> str:
    """Return a share in per cent as text, a dash for None."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:{digits}} %"


def certain(value: float | None) -> str:
    """Return a relative standard deviation as text; beyond 100 % without its size."""
    return percent(value) if value is None or not value > 1.0 or math.isinf(value) else "> 100 %"


def parameter_row(p: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of `PARAMETERS` of a parameter of a model file, with its 95 % interval."""
    # a dropped parameter is held at zero: its missing deviation is no knowledge
    open_ended = p["value"] is None or p["std"] is None or p["status"] == "dropped"
    half = None if open_ended else NORMAL_QUANTILE_95 * p["std"]
    ends = [None if half is None else p["value"] + sign * half for sign in (-1.0, 1.0)]
    numbers = (number(value, 5) for value in (p["value"], *ends))
    return (p["name"], *numbers, p["unit"], certain(p["relative_std"]), p["status"], p["expression"])


def estimate_row(q: Any) -> tuple[str, ...]:
    """Return the cells of `ESTIMATES` of a quantity with an interval, a status and the reason for it."""
    return (q.name, *(number(x, 5) for x in (q.value, q.lower, q.upper)), q.unit, q.status, q.reason or "")


def stiffness_text(spring: Mapping[str, Any]) -> str:
    """Return the stiffness of a joint, by its entry in a model file, in words."""
    k = spring["stiffness"]
    value = "" if k["value"] is None else f"{k['value']:.4g} {spring['unit']}, "
    return f"{value}{k['status']}: {k['reason']}"
