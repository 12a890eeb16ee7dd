"""Jobs to be disturbed, and what of their results must be the same as if nobody had."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

#: How often something is killed, in both tests together; `make soak` has 100.
KILLS = int(os.environ.get("THETAD_KILLS", "12"))


def recipes(recording: Path) -> list[tuple[str, dict[str, Any]]]:
    """Jobs that are quick and of all sorts."""
    compare = {"methods": ["ols", "wls"], "seconds": 3.0}
    fit = {"recording": str(recording), "span": "0:0.6"}
    return [
        ("identify", {**fit, "method": "wls"}),
        ("compare", {**compare, "seeds": 1}),
        ("compare", {**compare, "seeds": 3}),
        ("identify", {**fit, "method": "iwls", "essential": True}),
    ]


def essence(job: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same whenever and wherever a job runs: all but the time of its submission."""
    outcome = job["outcome"]
    results = {name: entry["sha256"] for name, entry in outcome["results"].items()}
    if "model.yaml" in results:
        model = yaml.safe_load(Path(outcome["results"]["model.yaml"]["path"]).read_text(encoding="utf-8"))
        results |= {"model.yaml": {key: value for key, value in model.items() if key != "created"}}
        results = {"model.yaml": results["model.yaml"]}  # the others carry that time as well
    metrics = {key: value for key, value in outcome["metrics"].items() if key != "created"}
    return {"verdict": outcome["verdict"], "metrics": metrics, "results": results}
