"""Jobs to be disturbed, and what of their results must be the same as if nobody had."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from service.protocol.json_values import json_values
from tests.lab.jobs.job_run import run_here

#: How often something is killed; `make soak` has 100.
KILLS = int(os.environ.get("THETAD_KILLS", "3"))
Recipe = tuple[str, dict[str, Any]]


def recipes(recording: Path) -> list[Recipe]:
    """Jobs that are quick: one piece, one divided; in `make soak` more sorts."""
    fit = {"recording": str(recording), "span": "0:0.6"}
    compare = {"methods": ["ols"], "seconds": 2.0}
    few: list[Recipe] = [("identify", {**fit, "method": "wls"}), ("compare", {**compare, "seeds": 2})]
    if KILLS < 100:
        return few
    return [*few, ("compare", {**compare, "seeds": 1}), ("identify", {**fit, "method": "iwls", "essential": True})]


def undisturbed(recipe: Recipe, robot: Path, folder: Path) -> dict[str, Any]:
    """What the job leaves when it runs within this process."""
    kind, parameters = recipe
    files = {name: Path(parameters[name]) for name in ("recording",) if name in parameters}
    outcome = run_here(kind, parameters | {"robot": str(robot)}, folder, **files)
    return _essence(outcome.verdict, json_values(outcome.metrics), {path.name: path for path in folder.iterdir()})


def essence(job: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same whenever and wherever a job runs: all but the time of its submission."""
    outcome = job["outcome"]
    results = {name: Path(entry["path"]) for name, entry in outcome["results"].items()}
    return _essence(outcome["verdict"], outcome["metrics"], results)


def _essence(verdict: str, metrics: Mapping[str, Any], results: Mapping[str, Path]) -> dict[str, Any]:
    content: dict[str, Any] = {name: path.read_bytes() for name, path in results.items()}
    if "model.yaml" in results:  # the others carry that time as well
        model = yaml.safe_load(content["model.yaml"])
        content = {"model.yaml": {key: value for key, value in model.items() if key != "created"}}
    return {"verdict": verdict, "metrics": {k: v for k, v in metrics.items() if k != "created"}, "results": content}


def chain(submit: Callable[[str, dict[str, Any]], int], recording: Path) -> list[int]:
    """Queue, with `submit`, what identifies an arm, validates the model and promotes it; returns the jobs' numbers."""
    first = submit("identify", {"recording": str(recording), "span": "0:0.5"})
    test = {"model": f"job:{first}", "recording": str(recording), "span": "0.6:1"}
    return [first, submit("validate", test), submit("promote", test)]


def again(job: Mapping[str, Any]) -> bool:
    """Tell whether a job is to be tried again: it was interrupted too often, or one that it needs."""
    if job["state"] == "failed":
        assert "SIGKILL" in job["reason"] or "interrupted 20 times" in job["reason"], job["reason"]
    elif job["state"] == "cancelled":
        assert "which it needs" in job["reason"], job["reason"]
    return job["state"] in ("failed", "cancelled")
