"""What a check has found: a verdict, the value, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: `unknown`: it cannot be seen from here; `not applicable`: nothing here needs it, or has it.
Verdict = Literal["ok", "warning", "failed", "unknown", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; docs/doctor.md explains each `name`."""

    name: str
    verdict: Verdict
    value: str
    remedy: str = ""  # empty where there is nothing to mend


def failed_or_warning(needed: bool) -> Verdict:
    """Return the verdict of something that is missing: a failure if the configuration asks for it."""
    return "failed" if needed else "warning"
