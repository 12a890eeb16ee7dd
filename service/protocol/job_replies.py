"""Replies of the jobs process to control verbs, as typed maps."""

from typing import Any, Literal, TypedDict

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINISHED: tuple[State, ...] = ("succeeded", "failed", "cancelled")


#: Most jobs and most events in one reply.
MAX_JOBS = 1000
MAX_EVENTS = 5000


class Submitted(TypedDict):
    """A queued job and the number of its parts."""

    id: int
    kind: str
    parts: int


class Rollback(TypedDict):
    """A change back to an earlier model; None is no model."""

    arm: str
    active: str | None
    previous: str | None


class PartCounts(TypedDict):
    """States of the parts of a divided job."""

    total: int
    succeeded: int
    running: int
    failed: int


class JobFields(TypedDict):
    """Fields of every job; times are ISO 8601 in UTC.

    `waits` says why a queued job does not run yet; `share` (0 to 1), `doing` and `left_s` (shortest and longest time
    left, None if unknown) are the progress of a running one; `reason` says why it ended or runs again.
    """

    id: int
    kind: str
    arm: str | None
    state: State
    origin: str
    priority: int
    created: str
    started: str | None
    finished: str | None
    due: str | None
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


class JobSummary(JobFields):
    """A job in a list."""

    parts: PartCounts | None


class ResultEntry(TypedDict):
    """A result: a file on the daemon's machine."""

    sha256: str
    bytes: int
    path: str


class OutcomeEntry(TypedDict):
    """Outcome of a job; see `service.operations.kind.Outcome`."""

    verdict: str
    summary: str
    metrics: dict[str, Any]
    results: dict[str, ResultEntry]
    code: dict[str, Any]


class PartEntry(TypedDict):
    """A part of a divided job."""

    part: int
    id: int
    state: State
    reason: str
    attempts: int


class JobDetail(JobFields):
    """One job with all details; `log` is the end of its log, `partial` the results of finished parts."""

    parameters: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    limits: dict[str, float]
    log: str
    outcome: OutcomeEntry | None
    parts: list[PartEntry]
    partial: list[dict[str, Any]]


class EventEntry(TypedDict):
    """An event; `id` increases."""

    id: int
    time: str
    t_ns: int
    kind: str
    text: str
    arm: str | None
    job: int | None
    data: dict[str, Any]


class ModelEntry(TypedDict):
    """A kept model; `id` is the SHA-256 of its file at `path`."""

    id: str
    created: str
    method: str
    verdict: str
    relative_error: float | None
    origin: str
    job: int | None
    path: str


class PromotionEntry(TypedDict):
    """A change of the active model."""

    time: str
    action: str
    model: str | None
    previous: str | None
    job: int | None
    reason: str
    data: dict[str, Any]


class ArmModels(TypedDict):
    """The models of one arm."""

    active: str | None
    models: list[ModelEntry]
    history: list[PromotionEntry]
