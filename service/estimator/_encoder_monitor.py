"""Encoders of an arm that somebody else moves: one that sticks is told, and nothing is learned while it does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rt_core.online import OnlineEstimator
from rt_core.online.checkpoint import Checkpoint
from rt_core.online.monitors.stuck_encoder import EncoderWatch
from rt_core.types import FloatArray
from service.estimator._active_model import Tell

#: What else has learned from frames goes back along with the estimate: keep it, and take it again.
Keep = Callable[[], Mapping[str, Any]]
TakeAgain = Callable[[Mapping[str, Any], int], Mapping[str, Any]]

LOOK_S = 0.02
_KEEP_EVERY_S = 1.0
_KEPT = 10
_OLDEST_S = 60.0  # of the newest that is kept, where something speaks against an encoder for long
_BEFORE_S = 0.2  # of the time at which a joint began to stand: its last frames were good


class EncoderTracking:
    """Watches the encoders of an arm beside its estimate; see `rt_core.online.monitors.stuck_encoder`.

    That one sticks is known some seconds later.  What the estimate has learned since is given up: it goes back to
    what it was before.

    Parameters
    ----------
    estimator : OnlineEstimator
    tell : callable
        Takes events.
    keep : callable
        Returns what else is to go back with the estimate.
    take_again : callable
        Gets that, and the time since which frames are not to be believed [ns]; returns what is to be told with it.
    """

    def __init__(
        self,
        estimator: OnlineEstimator,
        tell: Tell,
        keep: Keep = dict,
        take_again: TakeAgain = lambda _kept, _since_ns: {},
    ) -> None:
        self.estimator, self._tell = estimator, tell
        self._keep, self._take_again = keep, take_again
        self.names = [joint.name for joint in estimator.model.joints]
        self._watch = EncoderWatch(estimator.model.n, estimator.bank.delay / estimator.rate_hz)
        self._kept: deque[tuple[float, Checkpoint, Mapping[str, Any]]] = deque(maxlen=_KEPT)
        self._next_look_s = -np.inf
        self._origin_ns: int | None = None
        #: Whether any encoder sticks, so that nothing can be learned from a frame.
        self.stuck = False

    @property
    def names_of_stuck(self) -> list[str]:
        """Joints whose encoders stick."""
        return [self.names[j] for j in np.flatnonzero(self._watch.stuck)]

    def push(self, t_ns: int, q: FloatArray) -> None:
        """Take a frame that the estimator has taken, or, while an encoder sticks, that it was not given."""
        if self._origin_ns is None:
            self._origin_ns = t_ns
        t = (t_ns - self._origin_ns) * 1e-9
        if t < self._next_look_s:
            return
        self._next_look_s = t + LOOK_S
        if not self.stuck:
            self._keep_now(t)
        found = self._watch.take(t, q, self.estimator.filtered_torque, self.estimator.standing)
        self.stuck = bool(self._watch.stuck.any())
        if found.any():
            self._stop(t, self._watch.stands_since(found))
        elif self._watch.back.any():
            self._go_on([self.names[j] for j in np.flatnonzero(self._watch.back)])

    def _keep_now(self, t: float) -> None:
        """Keep what the estimate is, once a second while nothing speaks against an encoder."""
        if self._kept and self._kept[-1][1].generation != self.estimator.generation:
            self._kept.clear()  # it has begun from something else
        if self._kept:
            age_s = t - self._kept[-1][0]
            if age_s < _KEEP_EVERY_S or (self._watch.doubts and age_s < _OLDEST_S):
                return
        self._kept.append((t, self.estimator.checkpoint(), self._keep()))

    def _stop(self, t: float, stands_s: float) -> None:
        joints = self.names_of_stuck
        good = [kept for kept in self._kept if kept[0] < stands_s - _BEFORE_S]
        if not good:  # it has stood for longer: as far back as is kept, but not by minutes
            good = [kept for kept in self._kept if t - kept[0] <= _OLDEST_S][:1] or [self._kept[-1]]
        kept_s, checkpoint, others = good[-1]
        self.estimator.rollback(checkpoint)
        origin_ns, from_s = self._origin_ns or 0, max(kept_s, stands_s - _BEFORE_S)
        more = self._take_again(others, origin_ns + round(1e9 * from_s))
        self._kept.clear()
        text = (
            f"the position of {', '.join(joints)} stays the same, but the torque is not that of a joint that stands: "
            "the encoder sticks, or it holds what is not known; nothing is learned meanwhile"
        )
        since = 1e-9 * origin_ns + stands_s
        self._tell("encoder_stuck", text, {"joints": joints, "since": since, "back_s": t - kept_s, **more})

    def _go_on(self, joints: list[str]) -> None:
        self._tell("encoder_moves", f"the position of {', '.join(joints)} changes again", {"joints": joints})

    def mark_gap(self) -> None:
        """Begin with another clock."""
        self._origin_ns = None
        self._next_look_s = -np.inf
        self._kept.clear()
        self._watch.restart()

    @property
    def doubt(self) -> str:
        """Why the torque of a model is not to be believed; empty if nothing speaks against it."""
        return f"the encoder of {', '.join(self.names_of_stuck)} seems to stick" if self.stuck else ""

    def document(self) -> dict[str, Any]:
        """Return `encoders` of a status message."""
        return {"stuck": self.names_of_stuck}
