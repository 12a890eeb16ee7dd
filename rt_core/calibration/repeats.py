"""Distinct postures: repeated measurements of one posture are one measurement.

What geometry does not describe (gears, sag, bearings) depends on the posture, so that repeats share it: they average
the noise of the instrument and nothing else.  What counts rows would take one posture measured 24 times for 24.
"""

from dataclasses import replace

import numpy as np
import scipy

from rt_core.calibration._alignment import nearest_rotation
from rt_core.calibration.sample import Sample
from rt_core.types import FloatArray, IntArray

#: Postures with no joint farther apart are one [rad or m].  Effects of errors differ by this share of themselves within
#: it, a micrometre of a millimetre, which no instrument shows.
SAME_POSTURE = 1e-3


def distinct_postures(q: FloatArray, *labels: IntArray | None) -> IntArray:
    """Return the number (N,) of the posture of each row of `q` (N, n), from 0 in the order of first appearance.

    Rows are one posture if no joint differs by more than `SAME_POSTURE` from the first of them, and all `labels` (N,)
    are equal.  Postures along a slow motion are so not chained to one.
    """
    given = [np.asarray(label) for label in labels if label is not None]
    kind = np.zeros(len(q), dtype=np.int64)
    if given:
        kind = np.unique(np.column_stack(given), axis=0, return_inverse=True)[1].ravel()
    group = np.full(len(q), -1, dtype=np.int64)
    tree, count = scipy.spatial.cKDTree(q), 0
    for i in range(len(q)):
        if group[i] >= 0:
            continue
        near = np.array(tree.query_ball_point(q[i], SAME_POSTURE, p=np.inf))
        group[near[(group[near] < 0) & (kind[near] == kind[i])]] = count
        count += 1
    return group


def averaged(values: FloatArray, group: IntArray) -> FloatArray:
    """Return the means (G, k) of the rows of `values` (N, k) in each group."""
    total = np.zeros((int(group.max()) + 1, values.shape[1]))
    np.add.at(total, group, values)
    return total / np.bincount(group)[:, None]


def merged(sample: Sample, group: IntArray, *, robust: bool = False) -> Sample:
    """Return the sample with one pose for each group (N,): means of its rows, or with `robust` medians."""
    _, first, count = np.unique(group, return_index=True, return_counts=True)
    if (count == 1).all():
        return sample
    one = sample.take(np.isin(np.arange(len(sample)), first))
    q, measured = one.q.copy(), one.measured.copy()
    length = None if one.length is None else one.length.copy()
    middle = np.median if robust else np.mean
    for g in np.flatnonzero(count > 1):
        own = group == g
        q[g], measured[g] = sample.q[own].mean(axis=0), middle(sample.measured[own], axis=0)
        measured[g, :9] = nearest_rotation(measured[g, :9].reshape(3, 3)).ravel()
        if length is not None and sample.length is not None:
            length[g] = middle(sample.length[own])
    return replace(one, q=q, cosine=np.cos(q), sine=np.sin(q), measured=measured, length=length)
