"""Triggers of automatic identification: pure decisions, from reports and the time."""

from dataclasses import dataclass, field

from service.config.arm_tables import ReidentifyConfig


@dataclass
class Trigger:
    """Trigger of one arm; times in seconds of any monotonic clock.

    `pending` reports, "drift" or "invalid", stay until they are cleared, because one attempt may fail, for example on
    frames from the middle of a change. `held` says why nothing is queued automatically, and until when: "change" (not
    classified yet), "payload" (the arm carries something that its model must not contain), "sensor" (a torque sensor
    has changed, or may have).
    """

    settings: ReidentifyConfig
    last_s: float  # when it last fired, or when the schedule began
    fired: bool = False  # since then; the minimum interval counts from a firing only
    pending: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    _not_before_s: float = float("-inf")

    def report(self, what: str, now_s: float) -> None:
        if what in self.settings.when:
            self.pending.setdefault(what, now_s)

    def clear(self, what: str) -> None:
        self.pending.pop(what, None)

    def hold(self, why: str, until_s: float = float("inf")) -> None:
        """Suspend automatic identification because of `why`."""
        self.held[why] = until_s

    def release(self, *why: str) -> None:
        """Release these holds; without arguments, all."""
        for reason in why or tuple(self.held):
            self.held.pop(reason, None)

    def due(self, now_s: float) -> str | None:
        """Return why jobs are due now: "drift", "invalid", "schedule", or None."""
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
        """Note that jobs were queued."""
        self.last_s, self.fired = now_s, True

    def put_off(self, now_s: float) -> None:
        """Postpone the next attempt by a tenth of the minimum interval."""
        self._not_before_s = now_s + 0.1 * self.settings.min_interval_s
