"""Detect a stuck encoder: constant position under torque that should move the joint.

A joint with a stuck encoder goes on turning: its torque changes as in motion, and the model, which takes it to stand,
does not explain it.  Under a brake, in contrast, the motor torque is constant.  If one encoder sticks, the torques of
all joints are wrong, so of several joints the one that stopped last is blamed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rt_core.types import BoolArray, FloatArray

#: Time at one position after which a joint counts as resting [s].
REST_S = 0.5
#: A joint counts as moving for this long after its last change of position [s].
LATELY_S = 0.3
#: Time between two evaluations of the estimate [s].
ASK_S = 0.1
#: Time within which the torque of a turning joint changes [s].
SWING_S = 0.5
#: Time for which there must be evidence against an encoder [s]; a brake that takes over is a single step.
CONFIRM_S = 1.0
#: Weight of time without such evidence: the torque of a turning joint sometimes passes the holding torque.
_FORGIVEN = 0.25
#: Time without evidence after which a joint is found to stand [s].
PROVEN_S = 1.0
#: Factor on `CONFIRM_S` for such a joint.
_PROVEN_CONFIRM = 3.0
#: Joints that stopped within this time stopped together [s].
_TOGETHER_S = 0.1
#: Time with a changed position after which an encoder counts as recovered [s].
AGAIN_S = 0.3


@dataclass(frozen=True)
class StationaryTorque:
    """Torque residuals of joints, evaluated as if the resting ones stood."""

    residual: FloatArray  # (n,) torque that the estimate does not explain [N*m or N]
    # (n,) largest residual due to dry friction, noise and uncertainty of the estimate; infinite for unknown joints
    limit: FloatArray
    noise: FloatArray  # (n,) smallest significant change of a torque


class StuckEncoderMonitor:
    """Monitor of the encoders of `n` joints; torques lag positions by `delay_s`."""

    def __init__(self, n: int, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._held = np.full(n, np.nan)
        self._since = np.full(n, np.inf)  # time of the last change of position [s]
        self._torques: deque[tuple[float, FloatArray]] = deque()  # of the last `SWING_S`, with their times
        self._suspected_s = np.zeros(n)  # time with evidence against the encoder [s]
        self._stood_s = np.zeros(n)  # time at rest without [s]
        self._moved_again_s = np.full(n, np.inf)  # time of the first other position of a stuck encoder [s]
        self._next_ask_s = -np.inf
        #: (n,) encoders that stick.
        self.stuck: BoolArray = np.zeros(n, dtype=np.bool_)
        #: (n,) encoders that the last `take` found to move again; all are then monitored afresh.
        self.recovered: BoolArray = np.zeros(n, dtype=np.bool_)

    def restart(self) -> None:
        """Restart with another clock; stuck encoders stay so."""
        stuck, held = self.stuck, self._held
        self.__init__(self._held.size, self._delay_s)  # type: ignore[misc]
        self.stuck = stuck
        self._held[stuck] = held[stuck]

    @property
    def suspicious(self) -> bool:
        """Whether there is evidence against an encoder."""
        return bool(self._suspected_s.any())

    def stopped_at(self, joints: BoolArray) -> float:
        """Return when the last of these joints stopped [s]."""
        return float(self._since[joints].max())

    def take(
        self, t: float, q: FloatArray, tau: FloatArray | None,
        stationary_torque: Callable[[BoolArray], StationaryTorque | None],
    ) -> BoolArray:  # fmt: skip
        """Process positions `q` (n,) at `t` [s] and filtered torques `tau` (n,); return the encoders (n,) found stuck.

        `stationary_torque` is called with the resting joints (n,) only if one may be stuck.  Without `tau` only stuck
        encoders are checked.
        """
        found = np.zeros(q.size, dtype=np.bool_)
        self.recovered = found
        if self.stuck.any():
            self._see_again(t, q)
            return found
        other = q != self._held
        if other.any():
            self._held[other], self._since[other] = q[other], t
            self._suspected_s[other] = self._stood_s[other] = 0.0
        rests = t - self._since >= REST_S + self._delay_s
        moves = t - self._since <= LATELY_S
        if tau is None or not rests.any() or not moves.any():
            self._torques.clear()  # evidence against an encoder stays: its position is the same
            return found
        while self._torques and self._torques[0][0] < t - SWING_S:
            self._torques.popleft()
        self._torques.append((t, tau))
        if t < self._next_ask_s:
            return found
        self._next_ask_s = t + ASK_S
        stationary = stationary_torque(rests)
        if stationary is None:
            return found
        swing = np.ptp([torque for _, torque in self._torques], axis=0)
        against = rests & (np.abs(stationary.residual) > stationary.limit) & (swing > stationary.noise)
        self._suspected_s = np.maximum(self._suspected_s + np.where(against, ASK_S, -_FORGIVEN * ASK_S), 0.0)
        proven = self._stood_s >= PROVEN_S
        self._stood_s[against & ~proven] = 0.0
        self._stood_s[rests & (self._suspected_s == 0.0) & np.isfinite(stationary.limit)] += ASK_S
        found = self._blamed(t, rests, proven)
        self.stuck = found.copy()
        self._moved_again_s[:] = np.inf
        return found

    def _blamed(self, t: float, rests: BoolArray, proven: BoolArray) -> BoolArray:
        """Return the stuck encoders (n,); none while a joint that stopped later may be the cause."""
        enough = np.where(proven, _PROVEN_CONFIRM, 1.0) * CONFIRM_S
        found = np.asarray(self._suspected_s >= enough)
        if not found.any():
            return found
        last_s = self._since[found].max()
        stops = (t - self._since > LATELY_S) & ~rests  # just now, so that it cannot be judged yet
        later = (self._since > last_s + _TOGETHER_S) & (stops | ((self._suspected_s > 0.0) & ~proven))
        longest_s = (self._suspected_s - enough)[found].max()
        if later.any() and longest_s < CONFIRM_S + REST_S + self._delay_s:
            return np.zeros_like(found)
        return np.asarray(found & (self._since >= last_s - _TOGETHER_S))

    def _see_again(self, t: float, q: FloatArray) -> None:
        other = self.stuck & (q != self._held)
        self._moved_again_s = np.where(other, np.minimum(self._moved_again_s, t), np.inf)
        self.recovered = t - self._moved_again_s >= AGAIN_S
        if self.recovered.any():  # the other evidence was found at a wrong position
            self._stood_s[self.stuck] = 0.0
            self.stuck = np.zeros_like(self.stuck)
            self._suspected_s[:] = 0.0
            self._torques.clear()
            self._held[self.recovered] = np.nan  # begins anew
