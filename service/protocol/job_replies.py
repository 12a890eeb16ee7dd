"""Replies of the jobs process to control verbs, or entries of them."""

import warnings
from typing import Any, Literal, TypeAlias

import msgspec

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINISHED: tuple[State, ...] = ("succeeded", "failed", "cancelled")
#: ISO 8601 in UTC.
Time: TypeAlias = str | None

#: Most jobs and most events in one reply.
MAX_JOBS = 1000
MAX_EVENTS = 5000


class _Reply(msgspec.Struct, frozen=True):
    def __getitem__(self, name: str) -> Any:
        """Return a field, as `reply["name"]`; until 0.2."""
        if name not in self.__struct_fields__:
            raise KeyError(name)
        warnings.warn(f'use .{name} for ["{name}"]', DeprecationWarning, stacklevel=2)
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields, so that `dict(reply)` is a map; until 0.2."""
        return self.__struct_fields__


class Submitted(_Reply, frozen=True):
    """A queued job and the number of its parts."""

    id: int
    kind: str
    parts: int


class Rollback(_Reply, frozen=True):
    """A change back to an earlier model; None is no model."""

    arm: str
    active: str | None
    previous: str | None


class PartCounts(_Reply, frozen=True):
    """States of the parts of a divided job."""

    total: int
    succeeded: int
    running: int
    failed: int


class JobFields(_Reply, frozen=True):
    """Fields of every job.

    `waits` says why a queued job does not run yet; `share` (0 to 1), `doing` and `left_s` (shortest and longest time
    left, None if unknown) are the progress of a running one; `reason` says why it ended or runs again.
    """

    id: int
    kind: str
    arm: str | None
    state: State
    origin: str
    priority: int
    created: Time
    due: Time
    started: Time
    finished: Time
    attempts: int
    interruptions: int
    after: list[int]
    waits: str
    share: float | None
    doing: str
    left_s: tuple[float, float] | None
    reason: str
    verdict: str | None
    summary: str | None


class JobSummary(JobFields, frozen=True):
    """A job in a list."""

    parts: PartCounts | None


class ResultEntry(_Reply, frozen=True):
    """A result: a file on the daemon's machine."""

    sha256: str
    bytes: int
    path: str


class OutcomeEntry(_Reply, frozen=True, omit_defaults=True):
    """Outcome of a job; see `service.operations.kind.Outcome`."""

    verdict: str
    summary: str
    metrics: dict[str, Any]
    results: dict[str, ResultEntry]
    code: dict[str, Any]
    log: ResultEntry | None = None
    part: Any = None  # what a part of a divided job gave


class PartEntry(_Reply, frozen=True):
    """A part of a divided job."""

    part: int
    id: int
    state: State
    reason: str
    attempts: int


class JobDetail(JobFields, frozen=True):
    """One job with all details; `log` is the end of its log, `partial` the results of finished parts."""

    parameters: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    limits: dict[str, float]
    log: str
    outcome: OutcomeEntry | None
    parts: list[PartEntry]
    partial: list[Any]


class EventEntry(_Reply, frozen=True):
    """An event; `id` increases."""

    id: int
    time: Time
    t_ns: int
    kind: str
    text: str
    arm: str | None
    job: int | None
    data: dict[str, Any]


class ModelEntry(_Reply, frozen=True):
    """A kept model; `id` is the SHA-256 of its file at `path`."""

    id: str
    created: Time
    method: str
    verdict: str
    relative_error: float | None
    origin: str
    job: int | None
    path: str


class PromotionEntry(_Reply, frozen=True):
    """A change of the active model."""

    time: Time
    action: str
    model: str | None
    previous: str | None
    job: int | None
    reason: str
    data: dict[str, Any]


class ArmModels(_Reply, frozen=True):
    """The models of one arm."""

    active: str | None
    models: list[ModelEntry]
    history: list[PromotionEntry]
