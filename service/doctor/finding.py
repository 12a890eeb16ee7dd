"""Result of a check: verdict, value, and remedy."""

from dataclasses import dataclass
from typing import Literal

#: `unknown`: cannot be determined; `not applicable`: not needed or not available here.
Verdict = Literal["ok", "warning", "failed", "unknown", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; docs/doctor.md explains each `name`."""

    name: str
    verdict: Verdict
    value: str
    remedy: str = ""  # empty if there is nothing to fix


def failed_or_warning(needed: bool) -> Verdict:
    """Return the verdict on something missing: a failure if it is needed."""
    return "failed" if needed else "warning"
