"""Events and status of an estimate that is doubted, or that gets no frames to learn from."""

from typing import Any

import numpy as np

from rt_core.online import OnlineEstimator
from service.estimator._active_model import ReportEvent

_REPLACED = "the estimate that was doubted has been replaced; nothing speaks against this one, which is not tested yet"


class TrustEvents:
    """Tell once when what speaks against the estimate changes, and when frames are of no use or are again.

    The estimator is as resumed: the doubts of a saved state have been told. `report_event` takes events.
    """

    def __init__(self, estimator: OnlineEstimator, report_event: ReportEvent) -> None:
        self.estimator, self._report_event = estimator, report_event
        self._names = tuple(joint.name for joint in estimator.model.joints)
        self._starved = False
        self._reasons, self._generation, self._since_ns = estimator.trust.reasons, estimator.trust.generation, 0

    @property
    def starved(self) -> bool:
        """Whether frames come and none can be learned from."""
        return bool(self.estimator.supply.cause)

    def check(self, t_ns: int) -> None:
        """Report what has changed since the last call; `t_ns` is the time of the latest frame."""
        trust, starved = self.estimator.trust, self.starved
        reasons, replaced = trust.reasons, trust.generation != self._generation
        told, self._reasons, self._generation = self._reasons, reasons, trust.generation
        if not self._since_ns or not told:
            self._since_ns = t_ns
        if reasons != told:
            text = trust.text(self._names) or (_REPLACED if replaced else "the estimate has passed all tests again")
            self._report_event("doubted" if reasons else "believed", text, self.document(t_ns)["trust"])
        if starved != self._starved:
            self._starved = starved
            text = self.estimator.supply.text or "frames can be learned from again"
            self._report_event("starved" if starved else "fed", text, self.document(t_ns)["supply"])

    def document(self, t_ns: int) -> dict[str, dict[str, Any]]:
        """Return `trust` and `supply` of a status message; `t_ns` is the time of the latest frame."""
        trust, supply = self.estimator.trust, self.estimator.supply
        since_s = max(0.0, 1e-9 * (t_ns - self._since_ns)) if trust.reasons else None
        until_s = trust.examined.until_s
        return {
            "trust": {
                "state": "doubted" if trust.reasons else "believed", "reasons": list(trust.reasons),
                "joints": [self._names[j] for j in np.flatnonzero(trust.joints | trust.wrong)],
                "reason": trust.text(self._names), "since_s": since_s, "examined": trust.examined.text,
                "examined_s": until_s if np.isfinite(until_s) else None,
            },
            "supply": {"state": "starved" if supply.cause else "ok", "cause": supply.cause, "share": supply.share,
                       "reason": supply.text},
        }  # fmt: skip
