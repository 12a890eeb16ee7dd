"""Jobs to be disturbed, and what of their results must be the same as if nobody had."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

#: How often something is killed, in both tests together; `make soak` has 100.
KILLS = int(os.environ.get("THETAD_KILLS", "3"))


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


def chain(submit: Callable[[str, dict[str, Any]], int], recording: Path) -> list[int]:
    """Queue, with `submit`, what identifies an arm, validates the model and promotes it; returns the jobs' numbers."""
    first = submit("identify", {"recording": str(recording), "span": "0:0.5"})
    test = {"model": f"job:{first}", "recording": str(recording), "span": "0.6:1"}
    return [first, submit("validate", test), submit("promote", test)]


def again(job: Mapping[str, Any]) -> bool:
    """Tell whether a job is to be tried again: its worker was killed too often, or that of one that it needs."""
    if job["state"] == "failed":
        assert "SIGKILL" in job["reason"], job["reason"]
    elif job["state"] == "cancelled":
        assert "which it needs" in job["reason"], job["reason"]
    return job["state"] in ("failed", "cancelled")


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
