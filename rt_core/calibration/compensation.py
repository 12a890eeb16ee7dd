"""Compensation: joint commands that bring the calibrated arm to Cartesian targets."""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from rt_core.calibration._inverse import inverse_kinematics, limits_of
from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.types import BoolArray, FloatArray

#: A target counts as reached when this much is left [m].
REACHED = 1e-6
#: Rotations are counted at this length [m].
LENGTH = 0.2
#: Random starts, which all fail for one reachable target in a thousand if one start in 30 succeeds.
_TRIES = 200
_CHOICES = 8
_STEPS = 20

Target = tuple[FloatArray, FloatArray | None]


@dataclass(frozen=True)
class Jump:
    """Joint motion between targets `start` and `end` (from 0) that does not lead from the one to the other.

    `joint` (from 0) moves most, by `step` [rad or m].
    """

    start: int
    end: int
    joint: int
    step: float


@dataclass(frozen=True, eq=False)
class Compensation:
    """Joint commands for targets."""

    nominal: FloatArray  # (N, n) joint positions of the nominal arm for each target
    commands: FloatArray  # (N, n) those of the calibrated arm
    left: FloatArray  # (N,) remaining distance with the calibrated arm [m], rotations counted at 0.2 m
    avoided: FloatArray  # (N,) error of the calibrated arm with the nominal joint positions [m]
    jumps: tuple[Jump, ...] = ()  # between successive reached targets

    @property
    def largest_step(self) -> float:
        """Largest change of a joint between successive reached targets [rad or m]; 0 with fewer than two."""
        q = self.commands[self.reached]
        return float(np.abs(np.diff(q, axis=0)).max()) if len(q) > 1 else 0.0

    @property
    def reached(self) -> BoolArray:
        """Whether each target is reached (N,)."""
        return np.asarray(self.left <= REACHED)


def compensate(
    nominal: Geometry, calibrated: Geometry, positions: FloatArray, rotations: FloatArray | None = None,
    start: FloatArray | None = None, seed: int = 0,
) -> Compensation:  # fmt: skip
    """Find joint commands for targets in the base frame, near those of the nominal arm.

    Parameters
    ----------
    nominal, calibrated : Geometry
        With the same tip, which is brought to the targets.
    positions, rotations : (N, 3), (N, 3, 3) float64
        [m]; without rotations the orientation is free.
    start : (N, n) float64 or None
        Start postures; without, random ones for the first target, and then the last solution.
    seed : int
        Of these.
    """
    before, after = (error_model(g, base=False, tool=False) for g in (nominal, calibrated))
    search = _Search(np.array(nominal.revolute), *limits_of(before), np.random.default_rng(seed))
    count = len(positions)
    reference, commands = np.empty((count, nominal.n)), np.empty((count, nominal.n))
    left, avoided = np.empty(count), np.empty(count)
    last = 0.5 * (search.lower + search.upper)
    at: Target | None = None
    for i in range(count):
        target = positions[i], None if rotations is None else rotations[i]
        first = last if start is None else start[i]
        reference[i], _ = search.near(before, target, first)
        commands[i], left[i] = _solved(after, *target, reference[i])
        if left[i] > REACHED:  # from the nominal posture the calibrated arm runs into a limit or a singularity
            commands[i], left[i] = search.near(after, target, first, at)
        end, _ = after.predict(reference[i][None], np.zeros(after.size))
        avoided[i] = np.linalg.norm(end[0] - positions[i])
        if left[i] <= REACHED:
            last, at = commands[i], target
    return Compensation(reference, commands, left, avoided, _jumps(after, commands, left))


def _jumps(model: ErrorModel, commands: FloatArray, left: FloatArray) -> tuple[Jump, ...]:
    """Return the jumps between successive reached targets.

    Half way through the joint motion the tool is then farther from both than they are from each other: it does not go
    from one to the other but somewhere else, as with an elbow on the other side or a wrist turned over.
    """
    reached = np.flatnonzero(left <= REACHED)
    ends, turns = model.predict(commands, np.zeros(model.size))
    found = []
    for i, j in itertools.pairwise(reached.tolist()):
        step = np.abs(commands[j] - commands[i])
        middle, turned = model.predict(0.5 * (commands[i] + commands[j])[None], np.zeros(model.size))
        away = min(_apart(middle[0], turned[0], ends[k], turns[k]) for k in (i, j))
        if away > max(_apart(ends[i], turns[i], ends[j], turns[j]), REACHED):
            found.append(Jump(i, j, int(step.argmax()), float(step.max())))
    return tuple(found)


def _apart(p: FloatArray, R: FloatArray, p2: FloatArray, R2: FloatArray) -> float:
    """Return the distance of two poses [m], rotations counted at `LENGTH`."""
    angle = np.arccos(np.clip(0.5 * (np.trace(R.T @ R2) - 1.0), -1.0, 1.0))
    return float(np.hypot(np.linalg.norm(p - p2), LENGTH * angle))


@dataclass(frozen=True, eq=False)
class _Search:
    """Search for postures within limits (n,), by whole turns of the joints that turn (n,), with random starts."""

    turns: BoolArray
    lower: FloatArray
    upper: FloatArray
    rng: np.random.Generator

    def near(
        self, model: ErrorModel, target: Target, first: FloatArray, at: Target | None = None
    ) -> tuple[FloatArray, float]:
        """Return a posture at a target near `first` (n,), and what is left [m].

        Tried are `first` itself, the straight way from target `at`, where it is, and random starts, of whose results
        the nearest is taken.
        """
        q, missed = _solved(model, *target, first)
        q = self.unwound(q, first)
        if missed > REACHED and at is not None:
            other, its = self.followed(model, at, target, first)
            if its < missed:
                q, missed = self.unwound(other, first), its
        if missed <= REACHED:
            return q, missed
        reached: list[tuple[float, FloatArray, float]] = []
        for _ in range(_TRIES):
            other, its = _solved(model, *target, self.rng.uniform(self.lower, self.upper))
            other = self.unwound(other, first)
            if its <= REACHED:
                reached.append((float(np.abs(other - first).max()), other, its))
                if len(reached) == _CHOICES:
                    break
            elif its < missed:
                q, missed = other, its
        if reached:
            _, q, missed = min(reached, key=lambda choice: choice[0])
        return q, missed

    def followed(self, model: ErrorModel, at: Target, target: Target, q: FloatArray) -> tuple[FloatArray, float]:
        """Return where the arm ends that follows the straight way from target `at`, where it is at `q` (n,)."""
        missed = np.inf
        begin, end = at[1], target[1]
        turn = None if begin is None or end is None else Rotation.from_matrix(end @ begin.T).as_rotvec()
        for share in np.linspace(0.0, 1.0, _STEPS + 1)[1:]:
            R = None if turn is None or begin is None else Rotation.from_rotvec(share * turn).as_matrix() @ begin
            q, missed = _solved(model, at[0] + share * (target[0] - at[0]), R, q)
        return q, missed

    def unwound(self, q: FloatArray, near: FloatArray) -> FloatArray:
        """Return posture `q` (n,) plus whole turns, within the limits, nearest to `near` (n,)."""
        whole = 2.0 * np.pi
        most, least = np.floor((self.upper - q) / whole), np.ceil((self.lower - q) / whole)
        turned = whole * np.clip(np.round((near - q) / whole), least, most)
        return np.asarray(q + np.where(self.turns, turned, 0.0))


def _solved(model: ErrorModel, p: FloatArray, R: FloatArray | None, start: FloatArray) -> tuple[FloatArray, float]:
    return inverse_kinematics(model, np.zeros(model.size), p, R, start, length=LENGTH)
