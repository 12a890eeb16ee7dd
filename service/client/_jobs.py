"""Jobs of a daemon; exported by `service.client`."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from service.client.control import ClientTimeoutError, Control, UnreachableError, may_retry
from service.protocol.control import VERBS, ControlError, reply_as
from service.protocol.endpoints import ANSWER_S, PATIENCE_S
from service.protocol.job_replies import FINISHED, ArmModels, EventEntry, JobDetail, JobSummary, Rollback, Submitted

T = TypeVar("T")


class Jobs:
    """The durable batch jobs of a daemon.

    Every method may raise `ControlError` (the daemon refused; `message` says what to do) and `UnreachableError`.

    Parameters
    ----------
    control : Control
    timeout_s : float
        Longest wait for one reply.

    Examples
    --------
    Fit a model to a recording, validate it on another part, and make it the arm's active one if it is better than the
    present one::

        with Control() as control:
            jobs = Jobs(control)
            recording = Path("rec.mcap")
            fit = jobs.submit("identify", {"recording": recording, "span": "0:0.6"}, arm="panda")
            unseen = {"model": f"job:{fit.id}", "recording": recording, "span": "0.65:1"}
            check = jobs.submit("validate", unseen, arm="panda")
            promote = jobs.submit("promote", unseen, arm="panda", after=[check.id])
            job = jobs.wait(promote.id, on_progress=lambda job: print(job.state, job.doing))
            print(job.state, job.summary or job.reason)

    What the daemon did by itself since midnight, and the arm's models::

        for event in jobs.events(arm="panda", limit=50):
            print(event.time, event.text)
        print(jobs.models()["panda"].active)
    """

    def __init__(self, control: Control, timeout_s: float = ANSWER_S) -> None:
        self.control, self.timeout_s = control, timeout_s

    def submit(
        self, kind: str, parameters: Mapping[str, Any], *, arm: str | None = None, after: Iterable[int] = (),
        priority: int = 0, due_s: float = 0.0, time_s: float | None = None, memory_mb: float | None = None,
    ) -> Submitted:  # fmt: skip
        """Queue a job.

        Parameters
        ----------
        kind : str
            Such as "identify"; `thetad jobs kinds` lists them with their parameters.
        parameters : mapping
            JSON values.  A `Path` is made absolute, because the daemon's working directory differs; texts are sent
            unchanged.
        arm : str, optional
            Which arm of the daemon the job concerns.
        after : iterable of int
            Jobs that must have succeeded before.
        priority : int
            Jobs of higher priority run first.
        due_s : float
            Not before so many seconds from now.
        time_s, memory_mb : float, optional
            Limits of one attempt [s, 10^6 bytes] other than the daemon's.

        Returns
        -------
        Submitted
            `id` is the job's number.
        """
        values = {name: _absolute(value) for name, value in parameters.items()}
        options: dict[str, Any] = {"arm": arm, "after": list(after), "priority": priority, "due_s": due_s}
        options |= {"time_s": time_s, "memory_mb": memory_mb}
        given = {name: value for name, value in options.items() if value not in (None, [], 0)}
        return self._ask(Submitted, "submit", kind=kind, parameters=values, **given)

    def reidentify(self, arm: str | None = None, promote: bool = True) -> Sequence[int]:
        """Queue the jobs that the daemon queues at a drift: identify `arm` from its last frames, validate, and promote.

        Returns the numbers of the jobs, in this order.
        """
        return self._ask(dict[str, list[int]], "reidentify", **_given(arm=arm), promote=promote)["ids"]

    def job(self, id: int) -> JobDetail:
        """Return all details of one job."""
        return self._ask(JobDetail, "job", id=id)

    def list(
        self, states: Sequence[str] = (), arm: str | None = None, kind: str | None = None, limit: int = 100
    ) -> Sequence[JobSummary]:
        """Return the latest jobs, latest first, at most 1000; only those in one of `states`, if given."""
        more = _given(states=[*states] or None, arm=arm, kind=kind)
        return reply_as(list[JobSummary], self._ask(dict[str, Any], "jobs", limit=limit, **more)["jobs"])

    def cancel(self, id: int) -> JobSummary:
        """Cancel a queued or running job; a running one stops soon after."""
        return self._ask(JobSummary, "cancel", id=id)

    def retry(self, id: int) -> JobSummary:
        """Queue a failed or cancelled job again."""
        return self._ask(JobSummary, "retry", id=id)

    def wait(
        self, id: int, timeout_s: float | None = None, on_progress: Callable[[JobDetail], None] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> JobDetail:  # fmt: skip
        """Wait until a job has succeeded, failed or been cancelled, and return it.

        Parameters
        ----------
        timeout_s : float, optional
            Longest wait; None for no limit.  The job itself continues.
        on_progress : callable, optional
            Called with the job about once a second.
        patience_s : float
            How long the daemon may be silent: jobs survive its restart.

        Raises
        ------
        ClientTimeoutError
            The job had not ended after `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        job = self.job(id)
        heard, answered, pause_s = time.monotonic(), True, 0.1
        while True:
            if answered and on_progress is not None:
                on_progress(job)
            if job.state in FINISHED:
                return job
            left_s = float("inf") if deadline is None else deadline - time.monotonic()
            if left_s <= 0.0:
                raise ClientTimeoutError(f"job {id} is still {job.state} after {timeout_s:.3g} s")
            time.sleep(min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, 1.0)
            try:
                job = reply_as(JobDetail, self.control.request("job", min(self.timeout_s, max(left_s, 1.0)), id=id))
                heard, answered = time.monotonic(), True
            except (UnreachableError, ControlError) as error:
                if not may_retry(error) or time.monotonic() - heard > patience_s:
                    raise
                answered = False

    def events(
        self, arm: str | None = None, job: int | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[EventEntry]:
        """Return the newest events, oldest first, at most 5000; only those with a number above `after`."""
        more = _given(arm=arm, job=job)
        return self._ask(dict[str, list[EventEntry]], "events", limit=limit, after=after, **more)["events"]

    def models(self, arm: str | None = None) -> dict[str, ArmModels]:
        """Return by arm the kept models, the active one, and the history of promotions."""
        return self._ask(dict[str, dict[str, ArmModels]], "models", **_given(arm=arm))["arms"]

    def rollback(self, arm: str | None = None, reason: str = "") -> Rollback:
        """Make the previous model active again."""
        return self._ask(Rollback, "rollback", reason=reason, **_given(arm=arm))

    def _ask(self, form: type[T], verb: str, /, **args: Any) -> T:
        within_s = self.timeout_s
        if (
            VERBS[verb].within_s > ANSWER_S
        ):  # first check that a daemon is there, because the request itself may take long
            self.control.request("ping", self.timeout_s)
            within_s = max(within_s, VERBS[verb].within_s)
        return reply_as(form, self.control.request(verb, within_s, **args))


def _given(**args: Any) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _absolute(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, (list, tuple)):
        return [_absolute(item) for item in value]
    return value
