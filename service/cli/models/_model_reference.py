"""Find the model given by a user: a file, `active`, the id of a kept model, or `job:ID`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli._common import EXIT_NO, CliError
from service.cli._remote import add_control_flags
from service.cli.jobs.values import job_id, model_reference
from service.cli.jobs.wait import connected

if TYPE_CHECKING:
    from service.client import Jobs

HELP = "a model file (.yaml), active, the id of a model that is kept, or job:ID"


def add_daemon_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--arm`, `--control` and `--timeout`, for models kept by a daemon."""
    parser.add_argument("--arm", help="whose active model; may be left out where there is only one arm")
    add_control_flags(parser)


def model_path(text: str, args: argparse.Namespace) -> Path:
    """Return the file of the model named by `text`; contacts a daemon only for models that it keeps.

    Raises `CliError`: there is no such model; `UnavailableError` if the daemon does not answer.
    """
    reference = model_reference(text)
    kind, colon, rest = reference.partition(":")
    if reference != "active" and not (colon and kind in ("job", "model")):
        return Path(text)
    with connected(args) as jobs:
        if reference == "active":
            return _active(jobs, args.arm)
        return _of_job(jobs, rest) if kind == "job" else _kept(jobs, rest)


def _active(jobs: Jobs, arm: str | None) -> Path:
    arms = jobs.models(arm)
    if len(arms) != 1:
        raise CliError(f"active: of which arm? --arm names one of {', '.join(arms)}")
    ((name, models),) = arms.items()
    for model in models["models"]:
        if model["id"] == models["active"]:
            return Path(model["path"])
    raise CliError(f"active: arm {name} has no active model", EXIT_NO)


def _of_job(jobs: Jobs, number: str) -> Path:
    from service.jobs.references import MODEL

    try:
        job = jobs.job(job_id(number))
    except argparse.ArgumentTypeError as error:
        raise CliError(f"job:{number}: {error}") from None
    outcome = job["outcome"]
    if outcome is None or MODEL not in outcome["results"]:
        raise CliError(f"job:{number}: that job is {job['state']} and has made no model", EXIT_NO)
    return Path(outcome["results"][MODEL]["path"])


def _kept(jobs: Jobs, start: str) -> Path:
    entries = [model for arm in jobs.models().values() for model in arm["models"]]
    found = {model["id"]: model["path"] for model in entries if start and model["id"].startswith(start)}
    if len(found) != 1:
        what = f"{len(found)} models begin so" if found else "no such model is kept"
        raise CliError(f"model {start}: {what}; `thetad models list` shows their ids")
    return Path(found.popitem()[1])
