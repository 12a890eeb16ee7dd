"""Hypotheses about the cause of a change of the residual, their likelihoods, and the decision between them.

A hypothesis has coefficients for some features of the joints' rows (`rt_core.online.monitors.residual_evidence`).
With the long-run variance `v` of each joint's residual, its normal equations, summed over joints,

    G = sum G_j/v_j,    b = sum b_j/v_j

give its log-likelihood ratio against no change, `b' G^-1 b / 2`; the long-run variance makes up for correlated rows.
A coefficient costs half the logarithm of the number of independent rows (Schwarz 1978).  For equal prior probabilities
the differences are log posterior odds.  A hypothesis is accepted when it leads every other by `log(M/error)`, with M
hypotheses that may be named: by Wald's inequality (1945) a wrong one ever does so with at most the probability
`error`, however often they are compared.

During the seconds of a change the temperature of a joint is nearly constant, so that friction and its slope over
temperature cannot be separated, and a change shared between both would reappear as the arm warms up.  It is attributed
to friction at the reference temperature unless temperature has covered the span that shows a slope.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.model.temperature import MIN_SPAN_K
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.online.monitors.residual_evidence import Evidence
from rt_core.types import FloatArray, IntArray

Cause = Literal["payload", "friction", "friction_of_all", "sensor_gain", "sensor_offset", "gain_of_all"]
Pace = Literal["abrupt", "gradual", "unknown"]

_RANK = 1e-7  # smallest eigenvalue of the scaled normal equations that counts
#: Mean square that a named cause may leave at any joint, in units of the usual.  A sensor or friction that has changed
#: leaves the noise; of a payload twice the noise in root mean square is allowed, for gears rub more under a load.
#: `_CHANCE` of the statistical spread is added, with as many independent rows as the long-run variance says.
LEFT, LEFT_BY_PAYLOAD = 2.0, 4.0
_CHANCE = 3.1  # normal quantile of 1e-3
_MIN_RAMP = 10  # blocks; a shorter change is a step
_SPAN_VARIANCE = MIN_SPAN_K**2 / 12.0  # of temperatures evenly over the smallest span that shows a slope [K^2]


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """Cause of a change, its joint (None: the flange, or all joints), and its features.

    `select` (n, d - 1, k) assigns the features of each joint to coefficients; `rows` are the joints affected.  `slopes`
    (s, 2) pairs each temperature coefficient with that of the same friction at the reference temperature.
    """

    cause: Cause
    joint: int | None
    select: FloatArray
    rows: IntArray
    slopes: IntArray


@dataclass(frozen=True, eq=False)
class Fit:
    """Hypothesis with its best coefficients.

    Attributes
    ----------
    values : (k,) float64
        Coefficients, zero in directions without data.
    information : (k, k) float64
        Matrix of the normal equations.
    gain : float
        Twice the log-likelihood ratio against no change.
    score : float
        Log-likelihood ratio less the cost of the coefficients.
    """

    hypothesis: Hypothesis
    values: FloatArray
    information: FloatArray
    gain: float
    score: float

    @property
    def std(self) -> FloatArray:
        """(k,) standard deviations of the values."""
        return np.sqrt(np.diag(np.linalg.pinv(self.information, hermitian=True)))


def hypotheses(places: IntArray, source: IntArray, slopes: IntArray | None = None) -> tuple[Hypothesis, ...]:
    """Return all hypotheses about an arm: payload, friction of all joints; per joint friction, sensor gain and offset.

    The last is a gain of all sensors.  `places` (n, terms) is from `friction_columns`, `source` (p,) the joint of each
    parameter, and `slopes` (p,) from `residual_evidence.slopes`; None if friction does not depend on temperature.
    """
    n, terms = places.shape
    width = EXTRA + terms - 1
    payload = np.zeros((n, width, PAYLOAD))
    payload[:, :PAYLOAD] = np.eye(PAYLOAD)
    found = [_hypothesis("payload", None, payload)]
    used = places[places >= 0]

    def friction(cause: Cause, joint: int | None, own: list[int]) -> Hypothesis:
        select = np.zeros((n, width, len(own)))
        for row in range(n):
            for at in range(terms):
                if places[row, at] in own:
                    select[row, PAYLOAD + at, own.index(int(places[row, at]))] = 1.0
        follow = [] if slopes is None else [(k, own.index(int(slopes[c]))) for k, c in enumerate(own) if slopes[c] >= 0]
        return _hypothesis(cause, joint, select, follow)

    if used.size:
        found.append(friction("friction_of_all", None, sorted(set(used.tolist()))))
    motors = sorted(set(source[used].tolist()))
    found += [friction("friction", j, sorted(set(used[source[used] == j].tolist()))) for j in motors]
    causes: tuple[tuple[Cause, int], ...] = (("sensor_gain", width - 2), ("sensor_offset", width - 1))
    for cause, feature in causes:
        for j in range(n):
            select = np.zeros((n, width, 1))
            select[j, feature, 0] = 1.0
            found.append(_hypothesis(cause, j, select))
    # a common factor, as of a voltage or a constant: never named alone, but it looks like friction of all joints
    select = np.zeros((n, width, 1))
    select[:, width - 2, 0] = 1.0
    found.append(_hypothesis("gain_of_all", None, select))
    return tuple(found)


def _hypothesis(
    cause: Cause, joint: int | None, select: FloatArray, slopes: Sequence[tuple[int, int]] = ()
) -> Hypothesis:
    rows = np.flatnonzero(select.any(axis=(1, 2)))
    return Hypothesis(cause, joint, select, rows, np.array(slopes, dtype=np.int64).reshape(-1, 2))


def solve(G: FloatArray, b: FloatArray) -> tuple[FloatArray, float, int]:
    """Return coefficients (k,), `b' G^+ b` and the rank of normal equations with columns of any scale."""
    scale = np.sqrt(np.diag(G))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(G / np.outer(safe, safe))
    kept = values > _RANK * max(float(values[-1]), 1e-300)
    along = vectors[:, kept].T @ (b / safe)
    return (vectors[:, kept] @ (along / values[kept])) / safe, float(along @ (along / values[kept])), int(kept.sum())


def fit(hypothesis: Hypothesis, evidence: Evidence, variance: FloatArray, independent: float) -> Fit:
    """Fit a hypothesis to evidence about the residual of the baseline.

    `variance` (n,) is the long-run variance of a row's residual, `independent` the number of independent rows.
    """
    G, b = normal_equations(hypothesis, evidence, variance)
    values, gain, rank = solve(G, b)
    free = float(rank)
    if hypothesis.slopes.size:  # the part determined by the prior is not free
        free -= float(_held(hypothesis, G) @ np.diag(np.linalg.pinv(G, hermitian=True)))
    return Fit(hypothesis, values, G, gain, 0.5 * (gain - free * np.log(max(independent, math.e))))


def _held(hypothesis: Hypothesis, G: FloatArray) -> FloatArray:
    """Return the prior (k,) on the diagonal of `G` that keeps slopes at zero unless temperature varies."""
    slope, value = hypothesis.slopes.T
    held = np.zeros(len(G))
    held[slope] = _SPAN_VARIANCE * G[value, value]
    return held


def normal_equations(hypothesis: Hypothesis, evidence: Evidence, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the normal equations (k, k) and (k,) of a hypothesis over all joints, with the prior of slopes."""
    select = hypothesis.select[hypothesis.rows]
    weighted = evidence.gram[hypothesis.rows, :-1] / variance[hypothesis.rows, None, None]
    turned = np.swapaxes(select, 1, 2)
    G = (turned @ weighted[:, :, :-1] @ select).sum(axis=0)
    G = G + np.diag(_held(hypothesis, G))
    return G, (turned @ weighted[:, :, -1:])[:, :, 0].sum(axis=0)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Comparison of hypotheses.

    Attributes
    ----------
    fits : tuple of Fit
        The best first, then all others within the margin.
    excess : float
        Rise of the residual, in units of its variance.
    explained : float
        Share of it that the best fit explains.
    left : float
        Largest mean square that it leaves at a joint, in units of the largest that is usual there.
    decisive : bool
        Whether the best leads by the margin, explains the change, and leaves little.
    """

    fits: tuple[Fit, ...]
    excess: float
    explained: float
    left: float
    decisive: bool

    def share(self, fit: Fit) -> float:
        """Return the share of the excess that a fit explains, 0 to 1."""
        return float(np.clip(fit.gain / self.excess, 0.0, 1.0)) if self.excess > 0.0 else 0.0


def judge(
    candidates: Sequence[Hypothesis], evidence: Evidence, level: FloatArray, variance: FloatArray, error: float,
    least_explained: float,
) -> Verdict:  # fmt: skip
    """Compare hypotheses about the residual of the baseline; `level` (n,) is its usual mean square."""
    independent = float((evidence.rows * level / variance).sum())
    fits = sorted((fit(h, evidence, variance, independent) for h in candidates), key=lambda f: -f.score)
    margin = np.log(sum(f.hypothesis.cause != "gain_of_all" for f in fits) / error)
    best = fits[0]
    close = tuple(f for f in fits[1:] if f.score > best.score - margin)
    excess = float(((evidence.gram[:, -1, -1] - evidence.rows * level) / variance).sum())
    explained = best.gain / excess if excess > 0.0 else 0.0
    left = _left_by(best, evidence, level, variance)
    decisive = not close and best.score > margin and explained >= least_explained and left <= 1.0
    return Verdict((best, *close), excess, explained, left, decisive)


def _left_by(best: Fit, evidence: Evidence, level: FloatArray, variance: FloatArray) -> float:
    """Return the mean square left by a fit at the worst joint, over the largest that is usual; see `LEFT`."""
    known = (evidence.rows > 0.0) & (level > 0.0)
    rest = evidence.about(best.hypothesis.select @ best.values).gram[known, -1, -1]
    rows, usual, long_run = evidence.rows[known], level[known], variance[known]
    spread = _CHANCE * np.sqrt(2.0 * long_run / (usual * rows))
    limit = LEFT_BY_PAYLOAD if best.hypothesis.cause == "payload" else LEFT
    return float((rest / rows / (limit * usual * (1.0 + spread))).max(initial=0.0))


def _total(terms: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.sum(list(terms), axis=0))


def onset(hypothesis: Hypothesis, blocks: Sequence[Evidence], variance: FloatArray) -> int:
    """Return the index of the block in which a change most likely began; at least two blocks are left.

    The evidence is about the residual of the baseline, which explains the blocks before.
    """
    k = hypothesis.select.shape[2]
    G, b = np.zeros((k, k)), np.zeros(k)
    gains = np.zeros(len(blocks))
    for at in range(len(blocks) - 1, -1, -1):
        more = normal_equations(hypothesis, blocks[at], variance)
        G, b = G + more[0], b + more[1]
        gains[at] = solve(G, b)[1]
    return int(np.argmax(gains[: max(1, len(blocks) - 1)]))


def pace_of(hypothesis: Hypothesis, blocks: Sequence[Evidence], variance: FloatArray, error: float) -> Pace:
    """Distinguish a step from a ramp that began with the first block; `error` is the probability of a wrong answer."""
    parts = [normal_equations(hypothesis, block, variance) for block in blocks]
    begun = onset(hypothesis, blocks, variance)
    steps = (np.arange(len(parts)) + 0.5) / len(parts)
    step = solve(_total(G for G, _ in parts[begun:]), _total(b for _, b in parts[begun:]))[1]
    ramp = solve(
        _total(w * w * G for w, (G, _) in zip(steps, parts, strict=True)),
        _total(w * b for w, (_, b) in zip(steps, parts, strict=True)),
    )[1]
    margin = 2.0 * np.log(2.0 / error)
    if step - ramp > margin:
        return "abrupt"
    return "gradual" if ramp - step > margin and len(parts) >= _MIN_RAMP else "unknown"
