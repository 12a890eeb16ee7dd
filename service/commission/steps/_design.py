"""Step `design`: a trajectory that determines the parameters, and another one for validation."""

import json
import math
from typing import Any

from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.jobs.kinds import find_kind
from service.operations.errors import OperationError

FOLDER = "design"
_ABOUT_S = 30.0
#: Approximate row rate of the design's table; tolerance of a whole number of cycles in a period.
_ROW_RATE_HZ, _WHOLE = 100.0, 1e-7


def parameters(context: Context) -> dict[str, Any]:
    """Return the parameters of the design, as of `thetad excite`."""
    settings = context.settings
    return {
        "robot": json.dumps(context.robot.source),
        **_timing(settings.period_s, context.rate_hz),
        "harmonics": settings.harmonics, "starts": settings.starts, "seed": settings.seed, "validation": True,
    } | settings.excite  # fmt: skip


def _timing(period_s: float, rate_hz: float) -> dict[str, float]:
    """Return a period of about `period_s` that is a whole number of the arm's cycles, and of rows of the table."""
    if abs(period_s * rate_hz - round(period_s * rate_hz)) < _WHOLE:
        return {"period_s": period_s}
    apart = math.ceil(rate_hz / _ROW_RATE_HZ)
    row_rate_hz = rate_hz / apart
    return {"period_s": max(1, round(period_s * row_rate_hz)) / row_rate_hz, "rate_hz": row_rate_hz}


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    kind, folder = find_kind("excite"), context.folder.path / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("trajectory.json", "validation.json"):
        (folder / name).unlink(missing_ok=True)
    try:
        outcome = kind.run_here(kind.read(parameters(context)), folder, context.report)
    except OperationError as error:
        raise StepFailedError(f"the design is refused: {error}") from error
    metrics = outcome.metrics
    found = {
        "verdict": outcome.verdict, "reasons": metrics["reasons"], "facts": metrics["facts"],
        "condition_number": metrics["condition_number"], "worst": metrics["worst"], "unchecked": metrics["unchecked"],
        "folder": str(folder),
    }  # fmt: skip
    for name in ("trajectory.json", "validation.json"):
        if not (folder / name).exists():
            raise StepFailedError(f"{name}: {'; '.join(metrics['reasons']) or outcome.summary}", found)
    return outcome.summary, found


DESIGN = Step(
    "design", "a trajectory that determines the parameters, and one to validate on", _run,
    lambda context: _ABOUT_S * context.settings.starts,
)  # fmt: skip
