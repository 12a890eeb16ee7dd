"""What the control verbs of the jobs process answer, as clients see it: plain maps, typed."""

from __future__ import annotations

from typing import Any, TypedDict

from service.protocol.job_state import State

#: Most jobs and most events that one request gives.
MAX_JOBS = 1000
MAX_EVENTS = 5000


class Submitted(TypedDict):
    """A job that was queued, and in how many parts it runs."""

    id: int
    kind: str
    parts: int


class Rollback(TypedDict):
    """A change back to an earlier model; None is no model."""

    arm: str
    active: str | None
    previous: str | None


class PartCounts(TypedDict):
    """How far the parts of a divided job are."""

    total: int
    succeeded: int
    running: int
    failed: int


class JobFields(TypedDict):
    """What is told of every job; times are ISO 8601 in UTC.

    `waits` says why a queued job does not run yet, `share` (0 to 1), `doing` and `left_s` (shortest and longest time
    left, None if it cannot be told) how far a running one is, `reason` why it ended as it did or runs again.
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
    """What a job came to; see `service.operations.kind.Outcome`."""

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
    """One job, with all that is known of it; `log` is the end of its log, `partial` what finished parts gave."""

    parameters: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    limits: dict[str, float]
    log: str
    outcome: OutcomeEntry | None
    parts: list[PartEntry]
    partial: list[dict[str, Any]]


class EventEntry(TypedDict):
    """Something that happened; `id` grows."""

    id: int
    time: str
    t_ns: int
    kind: str
    text: str
    arm: str | None
    job: int | None
    data: dict[str, Any]


class ModelEntry(TypedDict):
    """A model that is kept; `id` is the SHA-256 of its file at `path`."""

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
