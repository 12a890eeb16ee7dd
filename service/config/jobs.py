"""Tables about jobs: `[jobs]` and `[arm.reidentify]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivers.files.table import StrictTable

Method = Literal["ols", "wls", "iwls", "tls", "iv", "physical", "pso_lm", "lm", "pso", "pso_linear", "tcs_pso", "ga"]


class JobsConfig(StrictTable):
    """The table `[jobs]`."""

    workers: int = Field(1, ge=0, le=256)  # concurrent jobs; 0: none runs
    processors: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Processors that jobs run on; None: the last ones that no `[arm.realtime]` names.

    Other processes of the daemon are not kept off them.
    """
    priority: Literal["idle", "low", "normal"] = "idle"
    """Jobs get the time that nobody else wants, a small share at least, or as much as everybody."""
    time_s: float = Field(3600.0, ge=1.0, le=1e6)  # longest attempt, unless the job sets its own
    memory_mb: float = Field(4000.0, ge=500.0)  # likewise
    lease_s: float = Field(15.0, ge=1.0, le=600.0)  # a job whose holder is silent for so long is reassigned
    keep_days: float = Field(90.0, gt=0.0)  # of finished jobs and their results, and of events
    keep_jobs: int = Field(10_000, ge=1)
    least_free_mb: float = Field(500.0, ge=0.0)  # jobs wait if less disk space is free
    folders: tuple[Path, ...] | None = None
    """Clients may name files below these alone; None: any, or with keys those that the daemon has recorded."""
    backend: Literal["local", "dask"] = "local"
    scheduler: str | None = None  # of the Dask cluster, "tcp://HOST:PORT"

    @model_validator(mode="after")
    def _dask_needs_scheduler(self) -> JobsConfig:
        if (self.backend == "dask") != (self.scheduler is not None):
            raise ValueError('backend = "dask" and scheduler = "tcp://HOST:PORT" go together')
        return self


class ReidentifyConfig(StrictTable):
    """`[arm.reidentify]`: if present, the daemon identifies the arm again by itself."""

    when: tuple[Literal["drift", "invalid"], ...] = ("drift", "invalid")  # triggers reported by the online estimator
    every_h: float | None = Field(None, gt=0.0)  # additional schedule
    min_interval_s: float = Field(1800.0, ge=1.0)  # between two, for any reason
    window_s: float = Field(60.0, ge=20.0, le=3600.0)  # of the latest frames, for identification and validation
    settle_s: float = Field(0.0, ge=0.0, le=3600.0)  # wait after the report, so that the window holds the new state
    holdout: float = Field(0.35, gt=0.05, lt=0.95)  # share at the end of the window held out for validation
    method: Method = "wls"
    promote: bool = True  # make the model active if it passes
