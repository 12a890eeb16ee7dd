"""When an arm is identified again without being asked: pure decisions, from reports and the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.config.jobs import ReidentifyConfig


@dataclass
class Trigger:
    """Of one arm; times in seconds of any clock that only goes forward, such as that since 1970.

    Attributes
    ----------
    last_s : float
        When it last fired, or when the schedule began.
    fired : bool
        Whether it has fired since then; the minimum interval counts from a firing only.
    pending : dict of str to float
        What was reported, "drift" or "invalid", and when; it stays until it is over, for one attempt may come to
        nothing, as where the frames are from the middle of a change.
    held : dict of str to float
        Why nothing is queued by itself, and until when: "change" (it is not known yet what has changed), "payload" (the
        arm carries something that a model of the arm must not contain), "sensor" (a torque sensor has changed, or may
        have).
    """

    settings: ReidentifyConfig
    last_s: float
    fired: bool = False
    pending: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    _not_before_s: float = float("-inf")

    def report(self, what: str, now_s: float) -> None:
        """Take a report of the estimator."""
        if what in self.settings.when:
            self.pending.setdefault(what, now_s)

    def clear(self, what: str) -> None:
        """Take word that what was reported is over."""
        self.pending.pop(what, None)

    def hold(self, why: str, until_s: float = float("inf")) -> None:
        """Queue nothing by itself because of `why`."""
        self.held[why] = until_s

    def release(self, *why: str) -> None:
        """Take word that these do not hold any more; without any, that nothing does."""
        for reason in why or tuple(self.held):
            self.held.pop(reason, None)

    def due(self, now_s: float) -> str | None:
        """Return why a job is to be queued now: "drift", "invalid", "schedule", or None."""
        if any(now_s < until_s for until_s in self.held.values()):
            return None
        early = self.fired and now_s - self.last_s < self.settings.min_interval_s
        if early or now_s < self._not_before_s:
            return None
        for what, reported_s in self.pending.items():
            if now_s - reported_s >= self.settings.settle_s:
                return what
        every_h = self.settings.every_h
        if every_h is not None and now_s - self.last_s >= 3600.0 * every_h:
            return "schedule"
        return None

    def fire(self, now_s: float) -> None:
        """Note that the jobs have been queued."""
        self.last_s, self.fired = now_s, True

    def put_off(self, now_s: float) -> None:
        """Note that jobs could not be queued now: the next try is after a tenth of the minimum interval."""
        self._not_before_s = now_s + 0.1 * self.settings.min_interval_s
