"""Text of jobs and events."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from service.cli._common import columns
from service.cli.jobs.values import command_again, described

if TYPE_CHECKING:
    from service.protocol.job_replies import EventEntry, JobDetail, JobFields, JobSummary

_LOG_LINES = 15
_MAX_LIST = 12
_MAX_VALUE = 100
_MAX_FIGURE = 64  # length of a hash
_ORIGINS = {
    "request": "asked for", "schedule": "by schedule", "drift": "for the arm drifted from its model",
    "invalid": "for the estimate was invalid", "part": "part of another job",
}  # fmt: skip


def local_time(text: str | None) -> str:
    """Return an ISO time as local time, or a dash for none."""
    return "–" if text is None else datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def left_text(left_s: Sequence[float] | None) -> str:
    """Return the time left as an interval, such as `2 to 5 min left`, rounded outwards."""
    if left_s is None:
        return "time left unknown"
    low_s, high_s = left_s
    if not math.isfinite(high_s):
        return "time left unknown"
    unit, name = next(((s, n) for limit, s, n in ((100.0, 1, "s"), (6000.0, 60, "min")) if high_s < limit), (3600, "h"))
    low, high = math.floor(max(low_s, 0.0) / unit), max(1, math.ceil(high_s / unit))
    if low == high:
        return f"{high} {name} left"
    return f"{low} to {high} {name} left" if low > 0 else f"up to {high} {name} left"


def seconds_text(seconds: float) -> str:
    """Return a duration with its significant digits."""
    if seconds < 100.0:
        return f"{seconds:.1f} s" if seconds < 10.0 else f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


def size_text(size: float) -> str:
    """Return a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.3g} {unit}"
        size /= 1000.0
    return f"{size:.3g} GB"


def took(job: JobFields) -> str:
    """Return the duration of a job's last finished run; empty if there is none.

    The start of a job that was cancelled or queued again may belong to another run than its end.
    """
    if job.state not in ("succeeded", "failed") or job.started is None or job.finished is None:
        return ""
    span = datetime.fromisoformat(job.finished) - datetime.fromisoformat(job.started)
    return seconds_text(span.total_seconds()) if span.total_seconds() >= 0.0 else ""


def about(job: JobFields) -> str:
    """Return one line about a job: its progress, why it waits, or its result."""
    if job.state == "running" or job.share is not None:  # a divided job waits while its parts run
        share = "" if job.share is None else f"{100 * job.share:.0f} %"
        return ", ".join(filter(None, (share, job.doing, left_text(job.left_s))))
    if job.state == "queued":
        waits = job.waits
        if job.due is not None and waits.startswith(f"until {job.due}"):
            waits = waits.replace(job.due, local_time(job.due), 1)
        return f"waits {waits}" if waits else ""
    if job.state == "succeeded":
        return job.summary or job.verdict or ""
    return job.reason or job.summary or ""


def title(job: JobFields) -> str:
    """Return the title of a job."""
    return f"job {job.id} {job.kind}" + ("" if job.arm is None else f" ({job.arm})")


def line(job: JobFields) -> str:
    """Return a job in one line."""
    spent = took(job)
    text = f"{title(job)}: {job.state}" + (f" in {spent}" if spent and job.state == "succeeded" else "")
    detail = one_line(about(job))
    return f"{text}: {detail}" if detail else text


def now_line(job: JobFields) -> str:
    """Return a job's progress on one line, for a line that is redrawn."""
    return one_line(", ".join(filter(None, (f"{title(job)}: {job.state}", about(job)))))


def one_line(text: str) -> str:
    """Return a text without line breaks or control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def jobs_text(jobs: Sequence[JobSummary]) -> str:
    """Return a table of jobs."""
    head = ("id", "kind", "arm", "state", "submitted", "took", "")
    rows = [(str(j.id), j.kind, j.arm or "", j.state, local_time(j.created), took(j), one_line(about(j))) for j in jobs]
    return columns(head, rows, right=("id", "took"))


def job_text(job: JobDetail) -> str:
    """Return the details of a job."""
    lines = [line(job)]
    times = [f"{_ORIGINS.get(job.origin, job.origin)} {local_time(job.created)}"]
    due = job.due if job.waits.startswith("until") else None
    times += [f"{n} {local_time(t)}" for n, t in (("due", due), ("started", job.started), ("ended", job.finished)) if t]
    lines.append(f"{'times':12s}{', '.join(times)}")
    counts = ((job.attempts, "failed attempt"), (job.interruptions, "interruption"))
    tries = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in counts if n)
    states = Counter(part.state for part in job.parts)
    facts = {
        "tries": tries, "priority": str(job.priority) if job.priority else "",
        "after": ", ".join(f"job {other}" for other in job.after),
        "parts": ", ".join(f"{count} {state}" for state, count in states.items()),
        "limits": ", ".join(f"{name} {value:g}" for name, value in job.limits.items()),
    }  # fmt: skip
    lines += [f"{name:12s}{text}" for name, text in facts.items() if text]
    lines += [f"  part {p.part} is {p.state}: {one_line(p.reason)}" for p in job.parts if p.reason]
    lines += _block("parameters", _values(job.parameters))
    lines += _block("inputs", [f"{name}  {_input_text(given)}" for name, given in job.inputs.items()])
    outcome = job.outcome
    if outcome is not None:
        lines += _block("metrics", metrics_lines(outcome.metrics))
        rows = [(name, size_text(r.bytes), r.path) for name, r in outcome.results.items()]
        lines += _block("results", columns(("", "", ""), rows).splitlines()[1:])
        lines += _block("code", _values(outcome.code))
    if job.state == "failed" or (job.state == "queued" and job.attempts):
        lines += _block("log", [one_line(text) for text in job.log.splitlines()[-_LOG_LINES:]])
    lines += _block("repeat", _repeat(job))
    return "\n".join(lines)


def _block(name: str, lines: Sequence[str]) -> list[str]:
    return [f"{name if k == 0 else '':12s}{text}" for k, text in enumerate(lines)]


def _values(values: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in values.items():
        text = one_line(value) if isinstance(value, str) else json.dumps(value)
        shown = text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 20]}... ({len(text)} characters)"
        if value is not None:
            lines.append(f"{name} = {shown}")
    return lines


def _input_text(given: Mapping[str, Any]) -> str:
    if "path" not in given:
        return f"of job {given.get('job')}"
    return f"{given['path']}  sha256 {str(given.get('sha256', ''))[:12]}"


def _repeat(job: JobDetail) -> list[str]:
    """Return the command that queues the same job again, or why there is none."""
    names = described(job)
    if not names:
        return [command_again(job, _defaults(job.kind))]
    what = " and ".join(names)
    return [
        f"by no command: the description of {what} is part of the job and cannot be typed; a name or a file may",
        f"mean another robot by now.  Programs submit the parameters again that `thetad jobs show {job.id} --json` "
        "prints.",
    ]


def _defaults(kind: str) -> Mapping[str, Any]:
    from service.cli.jobs._kinds import defaults_of
    from service.jobs.kinds import find_kind
    from service.operations.errors import OperationError

    try:
        return defaults_of(find_kind(kind))
    except OperationError:  # a kind of a newer daemon
        return {}


def metrics_lines(metrics: Mapping[str, Any], within: str = "") -> list[str]:
    """Return the metrics of a job as lines: numbers, words and short lists; tables only appear in `--json`."""
    lines: list[str] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            if not within:
                lines += metrics_lines(value, f"{name}.")
        elif isinstance(value, list):
            if 0 < len(value) <= _MAX_LIST and not any(isinstance(item, (list, Mapping)) for item in value):
                lines.append(f"{within}{name} = {' '.join(_short(item) for item in value)}")
        elif value is not None:
            text = _short(value)
            lines += [f"{within}{name} = {text}"] if len(text) < _MAX_FIGURE else []
    return lines


def _short(value: Any) -> str:
    return "–" if value is None else f"{value:.5g}" if isinstance(value, float) else one_line(str(value))


def event_line(event: EventEntry) -> str:
    """Return an event on one line, in local time."""
    whose = " ".join(filter(None, (event.arm or "", f"job {event.job}" if event.job else "")))
    return f"{local_time(event.time)}  {event.kind:18s}  {whose:14s}  {one_line(event.text)}".rstrip()
