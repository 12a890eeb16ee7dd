"""Families of metrics, in the order of the output, from `metric_families.toml`.

`docs/metrics.md` has the same list. Names follow Prometheus' conventions: base units, counters end in `_total`. Labels
have few values: names of arms, joints and processes, and words of short lists.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One family; `name` is that of its samples, without the suffixes of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


FAMILIES = tuple(
    Family(name, row["kind"], tuple(row["labels"]), row["help"])
    for name, row in tomllib.loads(Path(__file__).with_name("metric_families.toml").read_text(encoding="utf-8")).items()
)
