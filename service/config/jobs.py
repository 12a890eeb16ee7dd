"""The tables of the configuration that concern jobs: `[jobs]`, and `[arm.reidentify]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Method = Literal["ols", "wls", "iwls", "tls", "iv", "physical", "pso_lm", "lm", "pso", "pso_linear", "tcs_pso", "ga"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class JobsConfig(_Table):
    """The table `[jobs]`."""

    workers: int = Field(1, ge=0, le=256)  # jobs at a time; 0: all wait
    processors: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Processors that jobs run on; None: the last ones that no `[arm.realtime]` names.

    Other processes of the daemon are not kept off them.
    """
    priority: Literal["idle", "low", "normal"] = "idle"
    """Jobs get the time that nobody else wants, a small share at least, or as much as everybody."""
    time_s: float = Field(3600.0, ge=1.0, le=1e6)  # longest attempt, where the job says nothing else
    memory_mb: float = Field(4000.0, ge=500.0)  # the same
    lease_s: float = Field(15.0, ge=1.0, le=600.0)  # a job whose holder is silent for so long is given to another
    keep_days: float = Field(90.0, gt=0.0)  # of finished jobs and their results, and of events
    keep_jobs: int = Field(10_000, ge=1)
    least_free_mb: float = Field(500.0, ge=0.0)  # with less room on the disk, jobs wait
    folders: tuple[Path, ...] | None = None
    """Clients may name files below these alone; None: any, or with keys those that the daemon has recorded."""
    backend: Literal["local", "dask"] = "local"
    scheduler: str | None = None  # of the Dask cluster, "tcp://HOST:PORT"

    @model_validator(mode="after")
    def _dask_needs_scheduler(self) -> JobsConfig:
        if (self.backend == "dask") != (self.scheduler is not None):
            raise ValueError('backend = "dask" and scheduler = "tcp://HOST:PORT" go together')
        return self


class ReidentifyConfig(_Table):
    """`[arm.reidentify]`: its presence lets the daemon identify the arm again by itself."""

    when: tuple[Literal["drift", "invalid"], ...] = ("drift", "invalid")  # what the online estimator reports
    every_h: float | None = Field(None, gt=0.0)  # and by schedule
    min_interval_s: float = Field(1800.0, ge=1.0)  # between two, whatever the reason
    window_s: float = Field(60.0, ge=20.0, le=3600.0)  # of the last frames, to identify and validate on
    settle_s: float = Field(0.0, ge=0.0, le=3600.0)  # wait after the report, so that the window holds the new state
    holdout: float = Field(0.35, gt=0.05, lt=0.95)  # share of the window, its end, that the model is not fitted to
    method: Method = "wls"
    promote: bool = True  # make the model active if it passes
