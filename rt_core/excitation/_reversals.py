"""Reversals of motors, where friction changes its sign and may peak between the samples of a grid."""

from collections.abc import Callable

import numpy as np

from rt_core.excitation.fourier import Basis, Motion, States
from rt_core.types import BoolArray, FloatArray

#: Distances of samples from a reversal, in steps of the grid.
DISTANCES = np.geomspace(1e-9, 1.0, 200)
#: Share of its peak below which a velocity that does not cross zero counts as a near miss, with a narrow peak of
#: friction.
CLOSE = 0.01
#: Halvings of a step of the grid, down to rounding.
_HALVINGS = 60


def turning(v: FloatArray) -> BoolArray:
    """Return (N, m) whether the sign of `v` (N, m), sampled over one period, changes before the next sample."""
    return np.asarray((v > 0.0) != (np.roll(v, -1, axis=0) > 0.0))


def reversal_times(series: Motion, basis: Basis, directions: FloatArray) -> FloatArray:
    """Return times (M,) [s] around each zero and near miss of the velocities `dq @ directions.T` of `series`.

    `basis` is a grid of one period, with at most one reversal per step; each of the `directions` (m, n) is motor
    velocity by joint velocities.
    """
    _, dq, _ = series.sample(basis.times)
    v = dq @ directions.T
    size = np.abs(v)
    step = 1.0 / (basis.times.size * series.f0_hz)
    crossing = turning(v)
    low = (size <= np.roll(size, 1, axis=0)) & (size <= np.roll(size, -1, axis=0))
    missing = low & (size <= CLOSE * size.max(axis=0)) & ~crossing & ~np.roll(crossing, 1, axis=0)

    def halved(where: BoolArray, first: float, last: float, value: Callable[[States], FloatArray]) -> FloatArray:
        """Return zeros of `value` (N, n) @ directions between `first` and `last` steps from the samples in `where`."""
        samples, motors = np.nonzero(where)
        a, b = basis.times[samples] + first * step, basis.times[samples] + last * step
        if not a.size:
            return a

        def above(t: FloatArray) -> BoolArray:
            found = value(series.sample(t))
            return np.asarray((found * directions[motors]).sum(axis=1) > 0.0)

        before = above(a)
        for _ in range(_HALVINGS):
            middle = 0.5 * (a + b)
            same = above(middle) == before
            a, b = np.where(same, middle, a), np.where(same, b, middle)
        return np.asarray(0.5 * (a + b))

    zeros = np.concatenate((halved(crossing, 0.0, 1.0, lambda s: s[1]), halved(missing, -1.0, 1.0, lambda s: s[2])))
    offsets = step * np.concatenate((-DISTANCES, DISTANCES))
    return np.asarray((zeros[:, None] + offsets).ravel())


def reversal_states(states: States, directions: FloatArray, speed: float) -> States:
    """Return states at the reversals of motors, interpolated between `states` (N, n), at `speed` in both directions."""
    v = states[1] @ directions.T
    samples, motors = np.nonzero(turning(v))
    after = (samples + 1) % v.shape[0]
    here, there = v[samples, motors], v[after, motors]
    share = (here / (here - there))[:, None]
    q, dq, ddq = (x[samples] + share * (x[after] - x[samples]) for x in states)
    way = directions[motors]
    way = speed * way / (way**2).sum(axis=1)[:, None]
    return np.vstack((q, q)), np.vstack((dq + way, dq - way)), np.vstack((ddq, ddq))
