"""Ratio of measured to expected gravity torque along a small motion, for the arm as described and for alternatives.

Compared are the level of the moving joint's torque, its change along the path, and the change of the torque of the
resting joints, of which only the sign counts, since stiction may hold a part of it.

With joints that are inverted in all their signals the arm is mirrored.  With `S` the diagonal matrix of signs, -1 at
these joints, its torque is `S g(S q)`.  A common scale of command and position makes the real path longer about the
same start.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rt_core.commissioning._hysteresis import Passes, slope_std
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.joint_check import SURE
from rt_core.linear_algebra import lstsq
from rt_core.types import FloatArray

#: Assumed accuracy of the description's gravity: a factor either way.
GRAVITY_SLACK = 3.0
#: Least significant torque, as shares of the joint's friction and of its effort limit: the size of cable forces and
#: offsets of a torque sensor.
_OF_FRICTION, _OF_EFFORT = 0.3, 2e-3
#: Largest friction, as a share of the effort limit; least expected change, as a share of the least significant torque.
_MAX_FRICTION, _MIN_CHANGE = 0.3, 0.02
#: Possible offset of a torque, as a share of the effort limit.
_OFFSET = 0.01
#: Least significant level, in offsets.
_SURE_OFFSET = 2.0
#: Least number of places, and degrees of freedom of the fit of a change.
_MIN_PLACES, _FITTED = 8, 4

#: Gravity torque (B, n) of the description at positions (B, n).
Gravity = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Term:
    """Measured over expected torque, with a standard deviation; `sized` if its size counts; `level` or change."""

    factor: float
    std: float
    sized: bool
    level: bool = False

    @property
    def wrong_sign(self) -> bool:
        """Whether the sign is wrong."""
        return self.factor < -SURE * self.std and (not self.sized or self.factor < -1.0 / GRAVITY_SLACK)

    @property
    def wrong_size(self) -> bool:
        """Whether the size is wrong."""
        large = self.factor - GRAVITY_SLACK > SURE * self.std
        return self.sized and (large or (self.factor > 0.0 and 1.0 / GRAVITY_SLACK - self.factor > SURE * self.std))

    @property
    def right(self) -> bool:
        """Whether sign and size are as expected."""
        return self.factor > SURE * self.std and not self.wrong_size

    @property
    def impossible(self) -> bool:
        """Whether the expected torque is excluded."""
        least = 1.0 / GRAVITY_SLACK if self.sized else 0.0
        return least - self.factor > SURE * self.std or (self.sized and self.factor - GRAVITY_SLACK > SURE * self.std)


def mirrored(n: int, *joints: int) -> FloatArray:
    """Return the signs (n,) of an arm with these joints inverted in all their signals."""
    signs = np.ones(n)
    signs[list(joints)] = -1.0
    return signs


class GravityMotion:
    """Gravity torque along a small motion of one joint.

    Parameters
    ----------
    joint : int
        The moving joint.
    places : Passes
        From `joint_check.torque_passes`.
    gravity : callable
        Gravity torque of the description, (B, n) at positions (B, n).
    efforts : (n,) float64
        Effort limits [N*m or N]; infinite if unknown.

    Raises
    ------
    CommissioningError
        If there are too few places, or a joint has no position or command at some.
    """

    def __init__(self, joint: int, places: Passes, gravity: Gravity, efforts: FloatArray) -> None:
        n, count = len(efforts), len(places.place)
        if count < _MIN_PLACES:
            raise CommissioningError("too few places")
        self.joint, self.n = joint, n
        self._gravity, self._place = gravity, places.place
        self._q, self._level = places.half_sum[:, :n], places.half_sum[:, n : 2 * n]
        self._limit = np.where(np.isfinite(efforts), efforts, 0.0)
        # limited to a share of the effort, since friction is as wrong as a torque in another unit
        self._friction = min(
            float(np.nan_to_num(np.abs(places.half_difference[:, n + joint].mean()))),
            _MAX_FRICTION * float(efforts[joint]),
        )
        # fitted beside a change: the unknown inertia, and a curvature, which so short a path has only if its real
        # length is larger
        bent = np.square(places.place - places.place.mean())
        beside = np.column_stack((np.ones_like(bent), places.half_sum[:, 2 * n], bent))
        try:
            self._rest = np.eye(count) - beside @ lstsq(beside, np.eye(count))
        except np.linalg.LinAlgError as error:
            raise CommissioningError("the command has no values at some places") from error

    def terms(self, signs: FloatArray | None = None, scale: float = 1.0) -> list[Term]:
        """Compare with the description, or with an alternative arm.

        `signs` (n,) are -1 at joints that are inverted in all their signals, else 1.  `scale` is the ratio of the
        joint's real motion to its command and position.
        """
        k, S = self.joint, np.ones(self.n) if signs is None else signs
        q = self._q.copy()
        way = (q[-1, k] - q[0, k]) / (self._place[-1] - self._place[0])
        q[:, k] += (scale - 1.0) * way * self._place
        expected = self._gravity(q * S) * S
        terms = []
        x, y = float(expected[:, k].mean()), float(self._level[:, k].mean())
        offset = max(_OFFSET * float(self._limit[k]), _OF_FRICTION * self._friction)
        if np.isfinite(y) and abs(x) > offset:
            terms.append(Term(y / x, _SURE_OFFSET * offset / abs(x) / SURE, True, level=True))
        for j in (k, *(j for j in range(self.n) if j != k)):
            least = max(_OF_EFFORT * float(self._limit[j]), _OF_FRICTION * self._friction if j == k else 0.0)
            change = float(np.ptp(expected[:, j]))
            if np.isfinite(self._level[:, j]).all() and change > max(_MIN_CHANGE * least, 1e-9):
                factor, std = self._line(expected[:, j], self._level[:, j])
                terms.append(Term(factor, float(np.hypot(std, least / change / SURE)), j == k))
        return terms

    def excludes(self, signs: FloatArray | None = None, scale: float = 1.0) -> bool:
        """Whether the arm with these `signs` and this `scale` (as in `terms`) is excluded."""
        return any(term.impossible for term in self.terms(signs, scale))

    def _line(self, expected: FloatArray, level: FloatArray) -> tuple[float, float]:
        """Return the slope of `level` (B,) over `expected` (B,), and its standard deviation."""
        x, y = self._rest @ expected, self._rest @ level
        power = float(x @ x)
        if not power > 0.0:
            return 0.0, np.inf
        factor = float(x @ y) / power
        return factor, slope_std(power, y - factor * x, x.size - _FITTED)
