"""Does a joint stand, or does its encoder?  A position that stays the same while the torque says that the joint turns.

The torque of a joint that stands is what the others' motion and gravity ask of it, give or take its dry friction.  One
whose encoder sticks goes on turning: its torque changes as that of a moving joint, and the model, which takes it to
stand, does not explain it.  A brake is told from that by a torque that stays the same: its motor does nothing.

Where one encoder sticks, the torques of all joints are judged at a position that the arm does not have.  So a joint
that was found to stand where it stands is blamed only if no other one is, and of several the one that has stopped last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rt_core.types import BoolArray, FloatArray

#: After so long at one position the swing of the torque counts [s].
REST_S = 0.5
#: A joint has moved lately if it did within this time [s].
LATELY_S = 0.3
#: Time between two questions what an estimate says [s].
ASK_S = 0.1
#: The torque of a joint that turns changes within this time [s].
SWING_S = 0.5
#: What speaks against an encoder has to do so for longer [s]: a brake that takes over is one step.
CONFIRM_S = 1.0
#: What does not speak against it counts for this share of that time: the torque of a joint that turns passes through
#: what would hold it now and then.
_FORGIVEN = 0.25
#: A joint was found to stand after so long in which nothing spoke against it [s].
PROVEN_S = 1.0
#: Of such a joint it takes so many times `CONFIRM_S`.
_PROVEN_CONFIRM = 3.0
#: Joints that have stopped as close together as that have stopped at once [s].
_TOGETHER_S = 0.1
#: An encoder works again when its position has been another for this long [s].
AGAIN_S = 0.3


@dataclass(frozen=True)
class Standing:
    """What an estimate says of the joints as if they stood where they seem to; all (n,).

    Attributes
    ----------
    residual : (n,) float64
        Torque that it does not account for [N*m or N].
    limit : (n,) float64
        Largest one that dry friction, noise and the uncertainty of the estimate explain; infinite where it does not
        know the joint.
    noise : (n,) float64
        Change of a torque that means something.
    """

    residual: FloatArray
    limit: FloatArray
    noise: FloatArray


class EncoderWatch:
    """Watches the encoders of `n` joints; torques come `delay_s` later than positions."""

    def __init__(self, n: int, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._held = np.full(n, np.nan)
        self._since = np.full(n, np.inf)  # when the position became what it is [s]
        self._torques: deque[tuple[float, FloatArray]] = deque()  # of the last `SWING_S`, with their times
        self._doubted = np.zeros(n)  # how long something has spoken against it [s]
        self._stood = np.zeros(n)  # how long nothing has, where it stands [s]
        self._away = np.full(n, np.inf)  # since when the position of a stuck one is another [s]
        self._next_ask_s = -np.inf
        #: (n,) encoders that stick.
        self.stuck: BoolArray = np.zeros(n, dtype=np.bool_)
        #: (n,) of those, which one the last `take` has seen move again; all are watched anew then.
        self.back: BoolArray = np.zeros(n, dtype=np.bool_)

    def restart(self) -> None:
        """Begin with another clock; what sticks sticks."""
        stuck, held = self.stuck, self._held
        self.__init__(self._held.size, self._delay_s)  # type: ignore[misc]
        self.stuck = stuck
        self._held[stuck] = held[stuck]

    @property
    def doubts(self) -> bool:
        """Whether something speaks against an encoder."""
        return bool(self._doubted.any())

    def stands_since(self, joints: BoolArray) -> float:
        """Return when the last of these took the position that it has [s]."""
        return float(self._since[joints].max())

    def take(
        self, t: float, q: FloatArray, tau: FloatArray | None, standing: Callable[[BoolArray], Standing | None]
    ) -> BoolArray:
        """Look at positions `q` (n,) at `t` [s] and filtered torques `tau` (n,); (n,) which encoders stick as of now.

        `standing` is asked only where a joint may be stuck, with (n,) which joints rest.  Without `tau` only those that
        stuck are looked at.
        """
        found = np.zeros(q.size, dtype=np.bool_)
        self.back = found
        if self.stuck.any():
            self._see_again(t, q)
            return found
        other = q != self._held
        if other.any():
            self._held[other], self._since[other] = q[other], t
            self._doubted[other] = self._stood[other] = 0.0
        rests = t - self._since >= REST_S + self._delay_s
        moves = t - self._since <= LATELY_S
        if tau is None or not rests.any() or not moves.any():
            self._torques.clear()  # what has spoken against an encoder stays: its position is the same
            return found
        while self._torques and self._torques[0][0] < t - SWING_S:
            self._torques.popleft()
        self._torques.append((t, tau))
        if t < self._next_ask_s:
            return found
        self._next_ask_s = t + ASK_S
        said = standing(rests)
        if said is None:
            return found
        swing = np.ptp([torque for _, torque in self._torques], axis=0)
        against = rests & (np.abs(said.residual) > said.limit) & (swing > said.noise)
        self._doubted = np.maximum(self._doubted + np.where(against, ASK_S, -_FORGIVEN * ASK_S), 0.0)
        proven = self._stood >= PROVEN_S
        self._stood[against & ~proven] = 0.0
        self._stood[rests & (self._doubted == 0.0) & np.isfinite(said.limit)] += ASK_S
        found = self._blamed(t, rests, proven)
        self.stuck = found.copy()
        self._away[:] = np.inf
        return found

    def _blamed(self, t: float, rests: BoolArray, proven: BoolArray) -> BoolArray:
        """Return (n,) whose encoders stick; none while one that has stopped later may be the cause of all."""
        enough = np.where(proven, _PROVEN_CONFIRM, 1.0) * CONFIRM_S
        found = np.asarray(self._doubted >= enough)
        if not found.any():
            return found
        last_s = self._since[found].max()
        stops = (t - self._since > LATELY_S) & ~rests  # since a moment ago, so that nothing can be said of it yet
        later = (self._since > last_s + _TOGETHER_S) & (stops | ((self._doubted > 0.0) & ~proven))
        longest_s = (self._doubted - enough)[found].max()
        if later.any() and longest_s < CONFIRM_S + REST_S + self._delay_s:
            return np.zeros_like(found)
        return np.asarray(found & (self._since >= last_s - _TOGETHER_S))

    def _see_again(self, t: float, q: FloatArray) -> None:
        other = self.stuck & (q != self._held)
        self._away = np.where(other, np.minimum(self._away, t), np.inf)
        self.back = t - self._away >= AGAIN_S
        if self.back.any():  # what else seemed to stick was judged beside one that did
            self._stood[self.stuck] = 0.0
            self.stuck = np.zeros_like(self.stuck)
            self._doubted[:] = 0.0
            self._torques.clear()
            self._held[self.back] = np.nan  # begins anew
