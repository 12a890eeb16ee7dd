"""Step `design`: a trajectory that determines the parameters, and another one to validate on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.jobs.kinds import find_kind
from service.jobs.workspace import JobError, Workspace

FOLDER = "design"
_ABOUT_S = 30.0


def parameters(context: Context) -> dict[str, Any]:
    """Return the parameters of the design, as `thetad excite` would take them."""
    settings = context.settings
    return {
        "robot": json.dumps(context.robot.source),
        "period_s": settings.period_s,
        "harmonics": settings.harmonics,
        "starts": settings.starts,
        "seed": settings.seed,
        "validation": True,
    } | settings.excite


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    kind, folder = find_kind("excite"), context.folder.path / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("trajectory.json", "validation.json"):
        (folder / name).unlink(missing_ok=True)
    workspace = Workspace(folder, datetime.now(UTC).isoformat(timespec="seconds"), tell=context.tell)
    try:
        outcome = kind.run(kind.read(parameters(context)), workspace)
    except JobError as error:
        raise StepFailedError(f"the design is refused: {error}") from error
    metrics = outcome.metrics
    found = {
        "verdict": outcome.verdict,
        "reasons": metrics["reasons"],
        "facts": metrics["facts"],
        "condition_number": metrics["condition_number"],
        "worst": metrics["worst"],
        "unchecked": metrics["unchecked"],
        "folder": str(folder),
    }
    for name in ("trajectory.json", "validation.json"):
        if not (folder / name).exists():
            raise StepFailedError(f"{name}: {'; '.join(metrics['reasons']) or outcome.summary}", found)
    return outcome.summary, found


def _seconds(context: Context) -> float:
    return _ABOUT_S * context.settings.starts


DESIGN = Step("design", "a trajectory that determines the parameters, and one to validate on", _run, _seconds)
