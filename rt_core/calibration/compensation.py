"""Compensation: joint commands that bring the calibrated arm to Cartesian targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.calibration._inverse import inverse_kinematics, limits_of
from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.types import BoolArray, FloatArray

#: A target counts as reached when this much is left [m].
REACHED = 1e-6
_TRIES = 40
_CHOICES = 8


@dataclass(frozen=True, eq=False)
class Compensation:
    """Joint commands for targets.

    Attributes
    ----------
    nominal, commands : (N, n) float64
        Joint positions of the nominal and of the calibrated arm for each target.
    left : (N,) float64
        Remaining distance with the calibrated arm [m], rotations counted at 0.2 m.
    avoided : (N,) float64
        Error of the calibrated arm with the nominal joint positions [m].
    """

    nominal: FloatArray
    commands: FloatArray
    left: FloatArray
    avoided: FloatArray

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
    lower, upper = limits_of(before)
    turns = np.array(nominal.revolute)
    rng = np.random.default_rng(seed)
    count = len(positions)
    reference, commands = np.empty((count, nominal.n)), np.empty((count, nominal.n))
    left, avoided = np.empty(count), np.empty(count)
    last = 0.5 * (lower + upper)
    for i in range(count):
        target = positions[i], None if rotations is None else rotations[i]
        first = last if start is None else start[i]
        q, missed = _solved(before, *target, first)
        q = _unwound(q, first, turns, lower, upper)
        if missed > REACHED:
            q, missed = _nearest_of_many(before, target, first, q, missed, turns, lower, upper, rng)
        reference[i] = q
        commands[i], left[i] = _solved(after, *target, q)
        end, _ = after.predict(q[None], np.zeros(after.size))
        avoided[i] = np.linalg.norm(end[0] - positions[i])
        last = commands[i] if left[i] <= REACHED else last
    return Compensation(reference, commands, left, avoided)


def _nearest_of_many(
    model: ErrorModel, target: tuple[FloatArray, FloatArray | None], first: FloatArray, q: FloatArray, missed: float,
    turns: BoolArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator,
) -> tuple[FloatArray, float]:  # fmt: skip
    """Return the posture found from random starts that is nearest to `first`, or the one with the least error."""
    reached: list[tuple[float, FloatArray, float]] = []
    for _ in range(_TRIES):
        other, its = _solved(model, *target, rng.uniform(lower, upper))
        other = _unwound(other, first, turns, lower, upper)
        if its <= REACHED:
            reached.append((float(np.abs(other - first).max()), other, its))
            if len(reached) == _CHOICES:
                break
        elif its < missed:
            q, missed = other, its
    if reached:
        _, q, missed = min(reached, key=lambda choice: choice[0])
    return q, missed


def _unwound(q: FloatArray, near: FloatArray, turns: BoolArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return posture `q` (n,) plus whole turns, within the limits, nearest to `near` (n,)."""
    whole = 2.0 * np.pi
    most, least = np.floor((upper - q) / whole), np.ceil((lower - q) / whole)
    return np.asarray(q + np.where(turns, whole * np.clip(np.round((near - q) / whole), least, most), 0.0))


def _solved(model: ErrorModel, p: FloatArray, R: FloatArray | None, start: FloatArray) -> tuple[FloatArray, float]:
    return inverse_kinematics(model, np.zeros(model.size), p, R, start)
