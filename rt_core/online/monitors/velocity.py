"""Whether measured velocities are those of the positions, joint by joint.

Over `SPAN_S` the velocity's integral is compared with the change of the position: `I = a*P - b*dP/dt`, with the
velocity's scale `a` and its delay `b/a`.  Position noise enters only at the ends of the span and velocity noise as its
mean, so the integral shows per cents where the derivative of a position would drown in rounding.  The systematic part

    miss = sqrt(sum(((a - 1)*P - b*dP/dt)^2) / sum(P^2))

is the relative error that a wrong scale or a delay brings into velocities.  Blocks of one look each are kept; the
standard deviation of `miss` is that of a delete-one jackknife over them, and a joint is named where `miss` is above
`MISS` by more than the t quantile of `CHANCE`.  `MISS` is no matter of chance: an error of it in the velocity is one of
the same size in viscous friction and, over the derivative, in inertias; smaller ones are below what a model of friction
is good for.  A velocity that is none of the position's at all has `a = 0` and `miss = 1`.  A joint that is named stays
so until `miss` is below `MISS` by as much, or `_HOLD` looks at motion have not found it again: between the two the data
say neither, and what is said does not flicker.

Rounding of positions makes `P` uncertain, and a regression on an uncertain quantity is too small by the share that its
errors have in the mean square of `P` (errors in variables).  With a deviation `s` of one position they have `2*s^2`; so
a window counts whose `P` is `sqrt(2/BIAS)*s` at least: of an encoder, whose steps are `sqrt(12)*s`, that is 5.8 steps.
`s` is what a polynomial leaves of the window's positions, which no smooth motion does; vibrations count as noise.
"""

import numpy as np
from numpy.polynomial.legendre import legvander
from scipy.special import stdtrit

from rt_core.types import BoolArray, FloatArray

SPAN_S = 0.05
MISS = 0.03
BIAS = MISS / 6.0  # of `a`, by rounding: at a constant speed up to 1.5 times that
CHANCE = 1e-4

_BLOCKS = 12  # looks that are kept, and how many of them with motion are needed
_LEAST = 4
_HOLD = 5 * _BLOCKS  # looks at motion after which a doubt ends that nothing has renewed: a small error never shows less
_DEGREE = 7
_MOVES = 0.01  # [rad or m] root mean square of P over a span, in spans of a slow motion: less is not judged


def span_sums(q: FloatArray, dq: FloatArray, step: float) -> FloatArray:
    """Return sums (n, 6) of PP, PD, DD, PI, DI and II over a window of samples `q`, `dq` (n, L), `step` [s] apart.

    `D` is the derivative of `P`.  Zero if the window is shorter than two spans.
    """
    n, length = q.shape
    w = max(2, round(SPAN_S / step) // 2 * 2)
    if length < 2 * w + 1:
        return np.zeros((n, 6))
    integral = np.zeros((n, length))
    np.cumsum(0.5 * step * (dq[:, 1:] + dq[:, :-1]), axis=1, out=integral[:, 1:])
    change = q[:, w:] - q[:, :-w]
    h = w // 2
    P, D = change[:, h:-h], (change[:, w:] - change[:, :-w]) / (w * step)
    total = (integral[:, w:] - integral[:, :-w])[:, h:-h]
    pairs = ((P, P), (P, D), (D, D), (P, total), (D, total), (total, total))
    return np.stack([(x * y).sum(axis=1) for x, y in pairs], axis=1)


def unsmooth(q: FloatArray) -> FloatArray:
    """Return the standard deviation (n,) of positions `q` (n, L) from a polynomial over the window."""
    length = q.shape[1]
    basis = np.linalg.qr(legvander(np.linspace(-1.0, 1.0, length), _DEGREE))[0]
    rest = q - q @ basis @ basis.T
    return np.asarray(np.sqrt((rest**2).sum(axis=1) / max(length - _DEGREE - 1, 1)))


def fitted(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the scale `a` and `b` [s] of sums (..., 6); `b` is zero where the motion does not tell."""
    pp, pd, dd, pi, di, _ = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        free = pp * dd - pd * pd
        solid = free > 1e-6 * pp * dd
        return np.where(solid, (pi * dd - di * pd) / free, pi / pp), np.where(solid, (pd * pi - pp * di) / free, 0.0)


def missed(a: FloatArray, b: FloatArray, sums: FloatArray) -> FloatArray:
    """Return `miss` of scales and delays in the motion of `sums` (..., 6)."""
    pp, pd, dd = np.moveaxis(sums[..., :3], -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        square = (a - 1.0) ** 2 * pp - 2.0 * (a - 1.0) * b * pd + b * b * dd
        return np.asarray(np.sqrt(np.maximum(square, 0.0) / pp))


class VelocityMonitor:
    """Compare measured velocities with positions.

    Attributes
    ----------
    joints : (n,) bool
        Joints whose velocity is not that of their position.
    scale, delay_s : (n,) float64
        Of the velocities, NaN where there was no motion.
    """

    def __init__(self, n: int) -> None:
        self.sums = np.zeros((_BLOCKS, n, 6))
        self.joints: BoolArray = np.zeros(n, dtype=np.bool_)
        self._held = np.zeros(n, dtype=np.int64)  # looks with motion since a joint was found wrong
        self.scale, self.delay_s = np.full((2, n), np.nan)

    def take(self, q: FloatArray, dq: FloatArray, step: float) -> None:
        """Take a window of samples (n, L) that follow each other."""
        found = span_sums(q, dq, step)
        samples = max(q.shape[1] - 2 * round(SPAN_S / step), 1)
        least = np.maximum(_MOVES * SPAN_S, np.sqrt(2.0 / BIAS) * unsmooth(q))
        moves = np.sqrt(np.maximum(found[:, 0], found[:, 5]) / samples) > least
        for j in np.flatnonzero(moves):
            self.sums[:-1, j] = self.sums[1:, j]
            self.sums[-1, j] = found[j]
            self._held[j] += 1
        self.judge()

    def held(self) -> FloatArray:
        """Return what is said of the joints (4, n), to save: whether it is wrong, scale, delay and age in looks."""
        return np.stack((self.joints, self.scale, self.delay_s, self._held))

    def hold(self, held: FloatArray) -> None:
        """Restore what `held` returned, beside `sums`."""
        if held.shape == (4, self.joints.size) and np.isfinite(held[[0, 3]]).all():
            self.joints, self._held = held[0] > 0.0, held[3].astype(np.int64)
            self.scale, self.delay_s = held[1:3].copy()
        self.judge()

    def judge(self) -> None:
        """Judge the blocks that are kept: the last few, which show a new error, and all, which show a small one."""
        self.sums[~np.isfinite(self.sums).all(axis=2)] = 0.0  # of a damaged state
        joints, below = np.zeros((2, *self.joints.shape), dtype=np.bool_)
        for blocks in (self.sums, self.sums[-_LEAST:]):
            total, used = blocks.sum(axis=0), blocks[:, :, 0] > 0.0
            count = used.sum(axis=0)
            a, b = fitted(total)
            miss = missed(a, b, total)
            with np.errstate(invalid="ignore", divide="ignore"):
                # the motion is known: only what is fitted varies
                others = np.where(used, missed(*fitted(total - blocks), total), 0.0)
                spread = np.where(used, (others - others.sum(axis=0) / count) ** 2, 0.0).sum(axis=0)
                std = np.sqrt((count - 1.0) / count * spread)
                margin = stdtrit(np.maximum(count - 1, 1), 1.0 - CHANCE) * std
                found = (count >= _LEAST) & (miss - margin > MISS)
                below |= (count >= _LEAST) & (miss + margin < MISS)
                late = b / a
            joints |= found
            told = found | ((blocks is self.sums) & ~(self.joints & ~below))  # what is held keeps its figures
            self.scale, self.delay_s = np.where(told, (a, late), (self.scale, self.delay_s))
        self._held[joints] = 0
        self.joints = joints | (self.joints & ~below & (self._held < _HOLD))

    def text(self, names: tuple[str, ...]) -> str:
        """Return what is wrong, for people."""
        parts = []
        for j in np.flatnonzero(self.joints):
            a, late_ms = float(self.scale[j]), 1e3 * float(self.delay_s[j])
            if a < -0.5:
                what = "has the wrong sign"
            elif a < 0.5:
                what = "is not that of its position"
            elif abs(a - 1.0) > MISS:
                what = f"is {a:.3g} times the change of its position"
            else:
                what = f"is {abs(late_ms):.1f} ms {'late' if late_ms > 0.0 else 'early'}"
            parts.append(f"the velocity of {names[j]} {what}")
        return ", ".join(parts)
