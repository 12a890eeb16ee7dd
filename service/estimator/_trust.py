"""Events and status of an estimate that is doubted, or that gets no frames to learn from."""

from __future__ import annotations

from typing import Any

import numpy as np

from rt_core.online import OnlineEstimator
from service.estimator._active_model import ReportEvent


class TrustEvents:
    """Tell once when the estimate is doubted or believed again, and when frames are of no use or are again.

    Parameters
    ----------
    estimator : OnlineEstimator
    report_event : callable
        Takes events.
    """

    def __init__(self, estimator: OnlineEstimator, report_event: ReportEvent) -> None:
        self.estimator, self._report_event = estimator, report_event
        self._names = tuple(joint.name for joint in estimator.model.joints)
        self._doubted = self._starved = False

    @property
    def starved(self) -> bool:
        """Whether frames come and none can be learned from."""
        return bool(self.estimator.supply.cause)

    def check(self) -> None:
        """Report what has changed since the last call."""
        trust, starved = self.estimator.trust, self.starved
        if trust.doubted != self._doubted:
            self._doubted = trust.doubted
            text = trust.text(self._names) or "the estimate has passed all tests again"
            self._report_event("doubted" if trust.doubted else "believed", text, self.document()["trust"])
        if starved != self._starved:
            self._starved = starved
            text = self.estimator.supply.text or "frames can be learned from again"
            self._report_event("starved" if starved else "fed", text, self.document()["supply"])

    def document(self) -> dict[str, dict[str, Any]]:
        """Return `trust` and `supply` of a status message."""
        trust, supply = self.estimator.trust, self.estimator.supply
        joints = [self._names[j] for j in np.flatnonzero(trust.joints | trust.velocity.joints)]
        return {
            "trust": {
                "state": "doubted" if trust.doubted else "believed", "reasons": list(trust.reasons),
                "joints": joints, "reason": trust.text(self._names),
            },
            "supply": {"state": "starved" if supply.cause else "ok", "cause": supply.cause, "share": supply.share,
                       "reason": supply.text},
        }  # fmt: skip
