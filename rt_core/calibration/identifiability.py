"""Identifiability: which geometric errors a set of poses determines, and how well.

The rank is that of the columns of the Jacobian, scaled to unit length, by a pivoted QR factorisation.  Of dependent
columns it keeps the more useful ones: frames before joint zeros, these before lengths and twists, and offsets along
axes last (`rt_core.calibration.error_model`).  Within a class the pivot is the first column whose independent part is
at least half of the largest one, so that rounding does not choose.

A prior is one more row, `1 / sigma` of that parameter against the noise of a coordinate, so that a parameter with a
prior is always free.

A measure of the poses is the condition number of the scaled columns.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.calibration._inverse import postures_at
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.sample import Sample
from rt_core.types import BoolArray, FloatArray, IntArray

Reason = Literal["excluded", "parallel_axes", "no_effect", "dependent", "imprecise"]

#: Smallest independent part of a column, as a share of its length.
RANK_TOLERANCE = 1e-7
#: Smallest root-mean-square effect of a parameter [m or rad per unit].
NO_EFFECT = 1e-9
#: Smallest share of an effect that is named.
NAMED_SHARE = 1e-4
CORRELATED = 0.9
_PIVOT_SHARE = 0.5
#: Default noise of a coordinate [m] or [rad] for the weight of priors: that of good instruments.
NOISE = 1e-4


@dataclass(frozen=True)
class Fixed:
    """Parameter held at its nominal value, and the reason.

    Attributes
    ----------
    reason : str
        "excluded" on request; "parallel_axes": replaced by `on`; "no_effect" at these poses; "dependent": it moves the
        measured frame as the parameters in `on` together do; "imprecise": noise is amplified too much, mostly because
        it resembles those in `on`.
    on : tuple of (name, float)
        Amounts of other parameters with the same effect as one unit of this, the largest effect first.
    """

    name: str
    reason: Reason
    on: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Parameters that poses determine."""

    free: IntArray  # (p,) indices of these; p is the rank
    fixed: tuple[Fixed, ...]  # all others
    condition_number: float  # of the scaled columns of `free`

    @property
    def rank(self) -> int:
        """Number of parameters that the poses determine."""
        return int(self.free.size)


def triangle(J: FloatArray, extra: FloatArray | None = None) -> FloatArray:
    """Return the upper triangle (p, p) with the Gram matrix of `J` (N, k, p) and `extra` rows (M, p)."""
    p = J.shape[2]
    rows = J.reshape(-1, p) if extra is None else np.vstack((J.reshape(-1, p), extra))
    R: FloatArray = np.asarray(la.qr(rows, mode="r", check_finite=False)[0][:p], dtype=np.float64)
    return np.vstack((R, np.zeros((p - R.shape[0], p))))


def identifiability(
    model: ErrorModel, sample: Sample, *, excluded: Collection[str] = (), prior: FloatArray | None = None,
    noise: float = NOISE,
) -> Identifiability:  # fmt: skip
    """Find the parameters that the postures of `sample` determine near the nominal arm.

    They depend only on the postures, whether orientation is measured, and the standard deviations `prior` (P,),
    infinite without a prior, relative to the `noise` of a coordinate.  Parameters in `excluded` are held.

    Raises
    ------
    ValueError
        If an excluded name is unknown.
    """
    unknown = [name for name in excluded if name not in model.names and name not in model.replaced]
    if unknown:
        model.index(unknown[0])
    R = _triangle_of(model, sample, np.zeros(model.size))
    if prior is not None:
        R = np.vstack((R, np.diag(noise / prior)))
    allowed = np.array([name not in excluded for name in model.names])
    free, fixed = _independent(model, R, allowed, len(sample))
    fixed += [Fixed(old, "parallel_axes", ((new, 1.0),)) for old, new in model.replaced.items()]
    return Identifiability(free, tuple(fixed), condition_number(R[:, free]))


def shows_size(
    model: ErrorModel, sample: Sample, *, excluded: Collection[str] = (), prior: FloatArray | None = None
) -> bool:
    """Check whether the poses of `sample`, spacings, exclusions or priors determine the size of the arm.

    A ball in sockets does not: a larger arm fits as well in sockets that are farther apart.  Known spacings of fitted
    sockets, a length in `excluded`, a known tool, or a `prior` (P,) of a length do.
    """
    if sample.point is None or sample.length is not None:
        return True
    x = np.zeros(model.size)
    allowed = np.array([name not in excluded for name in model.names])
    fitted = np.unique(sample.point)
    if fitted.size == 1:
        held = ~allowed if prior is None else ~allowed | np.isfinite(prior)
        length = np.array([unit == "m" for unit in model.units]) & (model.nominal != 0.0)
        return bool((held & length).any()) or model.belongs_to("tool").size == 0
    R = _triangle_of(model, sample, x)
    if prior is not None:
        R = np.vstack((R, np.eye(model.size)[np.isfinite(prior)]))
    # the spread of the sockets changes with the size, and not with position and orientation
    apart = np.zeros(model.size)
    places = model.places(x)[fitted]
    columns = model.first_point + 3 * fitted[:, None] + np.arange(3)
    apart[columns] = places - places.mean(axis=0)
    rank = [_independent(model, rows, allowed, len(sample))[0].size for rows in (R, np.vstack((R, apart)))]
    return rank[0] == rank[1]


def _triangle_of(model: ErrorModel, sample: Sample, x: FloatArray) -> FloatArray:
    """Return the triangle (P, P) of the Jacobian at measurements predicted by the errors `x` (P,)."""
    if sample.width == 6:
        exact = Sample.of(sample.q, *model.predict(sample.q, x, sample.load, station=sample.station))
        sample = replace(exact, load=sample.load, station=sample.station)
    elif sample.point is not None and sample.length is None:
        # nonzero residuals would hide that a ball in sockets does not show the size
        q = postures_at(model, x, sample.q, model.places(x)[sample.point])
        sample = replace(sample, q=q, cosine=np.cos(q), sine=np.sin(q))
    return triangle(model.jacobian(sample, x), model.spacing_rows(x)[1])


def condition_number(R: FloatArray) -> float:
    """Return the spectral condition number of `R` (m, p) with unit columns; 1 without columns."""
    if R.shape[1] == 0:
        return 1.0
    s = la.svdvals(R / np.linalg.norm(R, axis=0))
    return float(s[0] / s[-1]) if s[-1] > 0.0 else float("inf")


def stand_ins(
    names: tuple[str, ...], R: FloatArray, column: int, others: IntArray, share: float = NAMED_SHARE
) -> tuple[tuple[str, float], ...]:
    """Return the amounts of the parameters `others` whose effect is nearest to one unit of `column`, in `R` (m, P).

    Those with less than `share` of the effect are left out.
    """
    if others.size == 0:
        return ()
    lengths = np.linalg.norm(R[:, others], axis=0)
    own = float(np.linalg.norm(R[:, column]))
    shares = la.lstsq(R[:, others] / lengths, R[:, column] / own, check_finite=False)[0]
    order = np.argsort(-np.abs(shares), kind="stable")
    return tuple((names[others[k]], float(shares[k] * own / lengths[k])) for k in order if abs(shares[k]) > share)


def correlated_pairs(
    names: tuple[str, ...], covariance: FloatArray, limit: float = CORRELATED
) -> tuple[tuple[str, str, float], ...]:
    """Return the pairs of parameters whose absolute correlation exceeds `limit`, the strongest first."""
    std = np.sqrt(np.diag(covariance))
    correlation = covariance / np.where(std > 0.0, std, 1.0) / np.where(std > 0.0, std, 1.0)[:, None]
    found = [
        (names[i], names[j], float(np.clip(correlation[i, j], -1.0, 1.0)))
        for i in range(std.size)
        for j in range(i + 1, std.size)
        if abs(correlation[i, j]) > limit
    ]
    return tuple(sorted(found, key=lambda pair: (-abs(pair[2]), pair[:2])))


def _independent(model: ErrorModel, R: FloatArray, allowed: BoolArray, count: int) -> tuple[IntArray, list[Fixed]]:
    lengths = np.linalg.norm(R, axis=0)
    effective = lengths > NO_EFFECT * np.sqrt(count)
    rest = np.where(effective, R / np.where(effective, lengths, 1.0), 0.0)
    kept: list[int] = []
    for priority in np.unique(model.priority):
        waiting = [int(k) for k in np.flatnonzero((model.priority == priority) & allowed & effective)]
        while waiting:
            parts = np.linalg.norm(rest[:, waiting], axis=0)
            if parts.max() <= RANK_TOLERANCE:
                break
            pivot = waiting[int(np.argmax(parts >= max(_PIVOT_SHARE * parts.max(), RANK_TOLERANCE)))]
            waiting.remove(pivot)
            kept.append(pivot)
            direction = rest[:, pivot] / np.linalg.norm(rest[:, pivot])
            for _ in range(2):  # once more, for what rounding left
                rest -= np.outer(direction, direction @ rest)
    free = np.array(sorted(kept), dtype=np.int64)
    fixed = []
    for k, name in enumerate(model.names):
        if not allowed[k]:
            fixed.append(Fixed(name, "excluded"))
        elif not effective[k]:
            fixed.append(Fixed(name, "no_effect"))
        elif k not in kept:
            fixed.append(Fixed(name, "dependent", stand_ins(model.names, R, k, free)))
    return free, fixed
