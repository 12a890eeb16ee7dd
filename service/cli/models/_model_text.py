"""Text of models, their history and their differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rt_core.statistics import NORMAL_QUANTILE_95
from service.cli._common import columns
from service.cli.jobs.text import local_time, one_line
from service.reports.cells import number

if TYPE_CHECKING:
    from service.models.diff import ModelDifference, Quantity
    from service.protocol.job_replies import ArmModels, PromotionEntry

_ID = 12  # digits of an id in output
_HISTORY = 10


def arms_text(arms: Mapping[str, ArmModels]) -> str:
    """Return the models of all arms, and the latest changes of the active ones."""
    return "\n\n".join(_arm_text(name, arm) for name, arm in arms.items())


def _arm_text(name: str, arm: ArmModels) -> str:
    if not arm.models:
        return f"{name}: no model is kept yet; jobs of kind identify with --arm {name} make them"
    rows = [
        (
            "*" if model.id == arm.active else "", model.id[:_ID], local_time(model.created), model.method,
            model.verdict, "–" if model.relative_error is None else f"{100 * model.relative_error:.2f} %",
            one_line(model.origin),
        )
        for model in arm.models
    ]  # fmt: skip
    head = ("", "model", "made", "method", "verdict", "error", "from")
    active = "none is active" if arm.active is None else "* is active"
    lines = [f"{name}: {len(rows)} model{'' if len(rows) == 1 else 's'}, {active}", columns(head, rows, ("error",))]
    lines += [_promotion_line(entry) for entry in arm.history[-_HISTORY:]]
    return "\n".join(lines)


def _promotion_line(entry: PromotionEntry) -> str:
    by = "" if entry.job is None else f" by job {entry.job}"
    why = f": {one_line(entry.reason)}" if entry.reason else ""
    return f"{local_time(entry.time)}  {entry.action.replace('_', ' ')} to {short_id(entry.model)}{by}{why}"


def short_id(model: str | None) -> str:
    """Return a shortened model id; `no model` for none."""
    return "no model" if model is None else model[:_ID]


def difference_text(found: ModelDifference, names: tuple[str, str], z: float) -> str:
    """Return the quantities that differ between two models by more than `z`."""
    differing = found.beyond(z)
    lines = [
        f"{found.models[0].robot.model.name}: {len(differing)} of {found.compared} parameters differ by more than "
        f"{z:g} standard deviations (by chance {found.by_chance(z):.2g} would)"
    ]
    for letter, name, model in zip("AB", names, found.models, strict=True):
        d = model.document
        lines.append(f"{letter}  {name}: {d['method']}, {d['verdict']}, of {model.origin}, {d['created']}")
    if differing:
        lines += ["", columns(("parameter", "A", "±95 %", "B", "±95 %", "unit", "z"), map(_row, differing), _RIGHT)]
    if only := found.known_to_one():
        texts = [f"{q.name} (only {'A' if q.values[1] is None else 'B'})" for q in only]
        lines += ["", f"known to one of them: {', '.join(texts)}"]
    if found.friction:
        lines += ["", _friction_text(found)]
    errors = [model.fit_error for model in found.models]
    lines += ["", f"relative torque error of the fit: A {_percent(errors[0])}, B {_percent(errors[1])}"]
    rmse_a, rmse_b = ((model.document.get("metrics") or {}).get("rmse") for model in found.models)
    if rmse_a and rmse_b:
        robot = found.models[0].robot.model
        errors_ab = [[number(v) for v in values] for values in (rmse_a, rmse_b)]
        rows = zip((joint.name for joint in robot.joints), *errors_ab, robot.torque_units, strict=True)
        lines.append(columns(("joint", "RMSE A", "RMSE B", "unit"), rows, ("RMSE A", "RMSE B")))
    return "\n".join(lines)


_RIGHT = ("A", "±95 %", "B", "z")


def _row(q: Quantity) -> tuple[str, ...]:
    halves = [None if std is None else NORMAL_QUANTILE_95 * std for std in q.stds]
    z = "–" if q.z is None else f"{q.z:+.1f}"
    return q.name, number(q.values[0], 5), number(halves[0], 2), number(q.values[1], 5), number(halves[1], 2), q.unit, z


def _friction_text(found: ModelDifference) -> str:
    """Return friction where it differs most, joint by joint."""
    rows = []
    for joint in dict.fromkeys(f.joint for f in found.friction):
        of_joint = [f for f in found.friction if f.joint == joint]
        worst = max(of_joint, key=lambda f: abs(f.torque.z or 0.0))
        _, *cells = _row(worst.torque)
        speed_unit = "rad/s" if worst.torque.unit == "N*m" else "m/s"
        rows.append((joint, f"{worst.speed:.3g} {speed_unit}", *cells))
    return columns(("friction of", "worst at", "A", "±95 %", "B", "±95 %", "unit", "z"), rows, ("worst at", *_RIGHT))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.3g} %"
