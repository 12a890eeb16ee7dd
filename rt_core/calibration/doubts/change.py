"""A change between two poses: instrument, tool or a joint's zero were others from some pose on.

Each change is a few more columns `E` (a rigid motion of the measurements, the tool's offset, one joint's zero) for the
poses from `t` on.  Of a fit with residuals `r` and Jacobian `J` they lower the sum of squares by `b' S^-1 b` with
`b = E_t'r` and `S = E_t'(I - J(J'J)^-1 J')E_t` (score test; Rao 1948).  The statistic is the largest logarithm of the
likelihood ratio over `t` and kind, less `p/2 log n` for the `p` columns of the kind (Schwarz 1978).

Its distribution without a change is that with blocks of successive poses in random order (permutation test): each block
keeps its postures and errors, so that neither errors alike at successive poses nor those that depend on the posture
look like a change.
"""

import itertools

import numpy as np
import scipy.linalg as la

from rt_core.calibration.elements import ZERO
from rt_core.calibration.fit import Objective
from rt_core.calibration.result import Change
from rt_core.robust_loss import loss_weights
from rt_core.types import FloatArray, IntArray

#: Blocks of successive poses; the orders of fewer would too often have all of one side of a change together.
BLOCKS = 20
#: Random orders of the blocks, and the share of them with as large a statistic that counts as chance.
ORDERS = 199
SIGNIFICANCE = 0.01
#: A change is named if it makes up half of the sum of squares: then it exceeds what 95 % of single coordinates are off
#: by (two standard deviations for a change in the middle).  Slow drift, real and harmless, leaves more than 0.9.
MAX_LEFT = 0.5**0.5
_ROUNDING = 1e-6  # smallest information, as a share of the largest


def change_in_time(objective: Objective, seed: int = 0) -> Change | None:
    """Return the change that explains the residuals of a fit, in the order of its sample; None without any.

    `seed` is of the random orders.
    """
    sample, model = objective.sample, objective.model
    if len(sample) < BLOCKS:
        return None
    residual = model.residual(sample, objective.x) / objective.per_row
    weight = loss_weights(np.linalg.norm(residual, axis=1), objective.loss, objective.limit)
    root = np.sqrt(weight)[:, None, None] / objective.per_row[:, None]
    full = model.jacobian(sample, objective.x)
    kinds = _kinds(objective, full)
    E, J = root * np.concatenate([columns for _, columns in kinds], axis=2), root * full[:, :, objective.free]
    lengths = np.maximum(np.linalg.norm(E, axis=(0, 1)), np.finfo(np.float64).tiny)
    J /= np.linalg.norm(J, axis=(0, 1))
    search = _Search(E / lengths, J, np.sqrt(weight)[:, None] * residual, [what.shape[2] for _, what in kinds])
    starts = np.linspace(0, len(sample), BLOCKS + 1).astype(np.int64)[:-1]
    rng = np.random.default_rng(seed)
    orders = np.array([np.arange(BLOCKS), *(rng.permutation(BLOCKS) for _ in range(ORDERS))])
    found = search.ratios(starts, orders)
    best = found.reshape(len(orders), -1).max(axis=1)
    kind = int(found[0].max(axis=0).argmax())
    if np.mean(best >= best[0]) > SIGNIFICANCE:
        return None
    each = search.ratios(np.arange(len(sample)), np.arange(len(sample))[None], kind)[0, :, 0]
    at = len(sample) - 1 - int(each.argmax())
    size, left = search.size(at, kind)
    if left > MAX_LEFT:
        return None
    return Change(at, kinds[kind][0], tuple((size / lengths[search.parts[kind]]).tolist()), left)


def _kinds(objective: Objective, J: FloatArray) -> list[tuple[str, FloatArray]]:
    """Return the kinds of changes and their columns (N, k, p), given the Jacobian `J` (N, k, P) of all parameters."""
    model, sample = objective.model, objective.sample
    kinds = []
    if sample.point is None:  # a rigid motion of what the instrument says
        moved = np.zeros((len(sample), sample.width, 6))
        moved[:, :3, :3] = np.eye(3)
        for k, axis in enumerate(np.eye(3)):
            moved[:, :3, 3 + k] = np.cross(axis, sample.positions - sample.positions.mean(axis=0))
            moved[:, 3:, 3 + k] = axis[: sample.width - 3]
        kinds.append(("instrument", moved))
    if (tool := model.belongs_to("tool")).size:
        kinds.append(("tool", J[:, :, tool]))
    return kinds + [(f"joint {k}", J[:, :, [zero]]) for k, zero in enumerate(np.flatnonzero(model.priority == ZERO), 1)]


class _Search:
    """Score test of columns `E` (N, k, q) in groups of `widths`, beside the fitted `J` (N, k, p), on `r` (N, k)."""

    def __init__(self, E: FloatArray, J: FloatArray, r: FloatArray, widths: list[int]) -> None:
        self.E, self.J, self.r = E, J, r
        edges = np.cumsum([0, *widths])
        self.parts: list[IntArray] = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
        self.inverse = la.pinvh(np.einsum("nki,nkj->ij", J, J))
        self.total = max(float(np.sum(r**2)), np.finfo(np.float64).tiny)

    def ratios(self, starts: IntArray, orders: IntArray, kind: int | None = None) -> FloatArray:
        """Return the penalised log likelihood ratios (O, B - 1, kinds) of changes with the last 1, 2, ... blocks.

        Blocks begin at the rows `starts` (B,); in each of the `orders` (O, B) these follow each other otherwise.
        """
        out = []
        for own in self.parts if kind is None else [self.parts[kind]]:
            E = self.E[:, :, own]
            sums = [
                np.cumsum(np.flip(np.add.reduceat(np.einsum(how, one, E), starts, axis=0)[orders], 1), axis=1)[:, :-1]
                for how, one in (("nk,nki->ni", self.r), ("nki,nkj->nij", E), ("nki,nkj->nij", self.J))
            ]
            gain = np.einsum("...i,...i", sums[0], self._solved(*sums))
            left = np.maximum(1.0 - gain / self.total, np.finfo(np.float64).eps)
            out.append(-0.5 * self.r.size * np.log(left) - 0.5 * own.size * np.log(self.r.size))
        return np.stack(out, axis=-1)

    def size(self, at: int, kind: int) -> tuple[FloatArray, float]:
        """Return the amounts (p,) of a kind's columns from row `at` on, and the share of the error that is left."""
        E = self.E[at:, :, self.parts[kind]]
        b, G = np.einsum("nk,nki->i", self.r[at:], E), np.einsum("nki,nkj->ij", E, E)
        amount = self._solved(b, G, np.einsum("nki,nkj->ij", self.J[at:], E))
        return -amount, float(np.sqrt(max(1.0 - float(b @ amount) / self.total, 0.0)))

    def _solved(self, b: FloatArray, G: FloatArray, H: FloatArray) -> FloatArray:
        S = G - np.swapaxes(H, -1, -2) @ self.inverse @ H
        return np.asarray(np.einsum("...ij,...j->...i", np.linalg.pinv(S, _ROUNDING, hermitian=True), b))
