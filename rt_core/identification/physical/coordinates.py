"""Points inside the set of consistent parameters, and the Newton step's coordinates there.

Link `i` is stored as a factor, `J = C C'`, with `J` its 4x4 pseudo-inertia; a non-negative effect as its positive
value; a free effect unchanged.  A step is taken in coordinates of the point: `J -> C (I + E) C'` with `E` symmetric,
`x -> x (1 + e)`, `x -> x + s e`.  In them the barrier's Hessian is the identity, and a small eigenvalue of `J` follows
without the cancellation of a difference of matrices.

The distance to the prior is the log-det (Bregman) divergence of Wensing, Kim, Slotine (2018) and Lee, Wensing, Park
(2020), `D(J, J0) = tr(J0^-1 J) - log det(J0^-1 J) - 4`.  It depends neither on the link frame nor on units, is convex
in the inertial parameters, and is infinite where a link stops being a body.  For a scalar it is `x/x0 - log(x/x0) - 1`.
A free effect has `(x - x0)^2 / (2 s^2)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.identification.physical.prior import Blocks
from rt_core.model.inertia import from_pseudo_inertia, pseudo_inertia
from rt_core.types import FloatArray


def _symmetric_basis() -> FloatArray:
    """Return an orthonormal basis (10, 4, 4) of the symmetric matrices."""
    out = np.zeros((10, 4, 4))
    k = 0
    for a in range(4):
        for b in range(a + 1):
            out[k, a, b] = out[k, b, a] = 1.0 if a == b else np.sqrt(0.5)
            k += 1
    return out


BASIS = _symmetric_basis()
#: (10, 16): the ten parameters of a link as a linear function of its pseudo-inertia.
_TO_PHI = np.stack([from_pseudo_inertia(e.reshape(4, 4)) for e in np.eye(16)], axis=1)
_TO_PHI = 0.5 * (_TO_PHI + _TO_PHI.reshape(10, 4, 4).transpose(0, 2, 1).reshape(10, 16))


def divergence(phi: FloatArray, reference: FloatArray) -> float:
    """Return the log-det divergence of link parameters `phi` (10,) from a real body's; infinite if no body has them."""
    L = np.linalg.cholesky(pseudo_inertia(reference))
    ratio = np.linalg.solve(L, np.linalg.solve(L, pseudo_inertia(phi)).T)
    values = np.linalg.eigvalsh(0.5 * (ratio + ratio.T))
    return float((values - np.log(values) - 1.0).sum()) if values[0] > 0.0 else np.inf


@dataclass(frozen=True)
class Reference:
    """The prior, prepared for the coordinates."""

    blocks: Blocks
    factor: FloatArray
    inverse_factor: FloatArray  # (n, 4, 4) inverse Cholesky factors of the prior pseudo-inertias
    scale: FloatArray  # (m,) prior values of the non-negative effects, all positive
    centre: FloatArray  # (f,) prior values of the free effects
    width: FloatArray  # (f,) their standard deviations

    @classmethod
    def build(
        cls, blocks: Blocks, links: FloatArray, scale: FloatArray, centre: FloatArray, width: FloatArray
    ) -> Reference:
        """Build from link parameters (n, 10) of real bodies and the scales of the effects."""
        factor = np.stack([np.linalg.cholesky(pseudo_inertia(phi)) for phi in links])
        return cls(blocks, factor, np.linalg.inv(factor), scale, centre, width)

    @property
    def size(self) -> int:
        """Number of coordinates, the number of standard parameters."""
        return int(10 * self.factor.shape[0] + self.scale.size + self.width.size)

    def spread(self, links: float, effects: FloatArray) -> FloatArray:
        """Return the weight (P,) of each coordinate: `links` for all links, `effects` (m,), one for free effects."""
        return np.concatenate((np.full(10 * self.factor.shape[0], links), effects, np.ones(self.width.size)))


@dataclass(frozen=True)
class Point:
    """Consistent parameters: factors (n, 4, 4), non-negative effects (m,), free effects (f,)."""

    factor: FloatArray
    positive: FloatArray
    free: FloatArray

    @classmethod
    def at_prior(cls, reference: Reference) -> Point:
        """Return the prior itself."""
        return cls(reference.factor.copy(), reference.scale.copy(), reference.centre.copy())

    def phi(self, reference: Reference) -> FloatArray:
        """Return the standard parameters (P,)."""
        out = np.empty(reference.size)
        J = self.factor @ self.factor.transpose(0, 2, 1)
        out[reference.blocks.links] = J.reshape(-1, 16) @ _TO_PHI.T
        out[reference.blocks.positive] = self.positive
        out[reference.blocks.free] = self.free
        return out

    def directions(self, reference: Reference) -> FloatArray:
        """Return the derivative (P, P) of the standard parameters with respect to the step's coordinates."""
        n = self.factor.shape[0]
        out = np.zeros((reference.size, reference.size))
        moved = self.factor[:, None] @ BASIS @ self.factor[:, None].transpose(0, 1, 3, 2)  # (n, 10, 4, 4)
        local = moved.reshape(n, 10, 16) @ _TO_PHI.T
        for i in range(n):
            out[np.ix_(reference.blocks.links[i], np.arange(10 * i, 10 * i + 10))] = local[i].T
        at = 10 * n
        out[reference.blocks.positive, at + np.arange(self.positive.size)] = self.positive
        at += self.positive.size
        out[reference.blocks.free, at + np.arange(self.free.size)] = reference.width
        return out

    def penalties(self, reference: Reference) -> FloatArray:
        """Return the distance to the prior (P,), spread evenly over each block's coordinates."""
        ratio = reference.inverse_factor @ self.factor
        log_det = 2.0 * np.log(np.abs(np.linalg.det(ratio)))
        links = (ratio**2).sum(axis=(1, 2)) - log_det - 4.0
        y = self.positive / reference.scale
        e = (self.free - reference.centre) / reference.width
        return np.concatenate((np.repeat(links / 10.0, 10), y - np.log(y) - 1.0, 0.5 * e**2))

    def gradient(self, reference: Reference) -> FloatArray:
        """Return the derivative (P,) of the distance in the step's coordinates, where its Hessian is the identity."""
        ratio = reference.inverse_factor @ self.factor
        pull = ratio.transpose(0, 2, 1) @ ratio - np.eye(4)
        links = np.einsum("nab,kab->nk", pull, BASIS).ravel()
        return np.concatenate(
            (links, self.positive / reference.scale - 1.0, (self.free - reference.centre) / reference.width)
        )

    def log_volume(self, reference: Reference) -> float:
        """Return the log volume of a unit cube of the step's coordinates, in those of the prior."""
        ratio = reference.inverse_factor @ self.factor
        links = 5.0 * np.log(np.abs(np.linalg.det(ratio))).sum()
        return float(links + np.log(self.positive / reference.scale).sum())

    def room(self, step: FloatArray) -> float:
        """Return the largest multiple of `step` (P,) within the set of possible parameters; infinite if unlimited."""
        n = self.factor.shape[0]
        E = np.einsum("nk,kab->nab", step[: 10 * n].reshape(n, 10), BASIS)
        least = min(
            float(np.linalg.eigvalsh(E).min(initial=0.0)),
            float(step[10 * n : 10 * n + self.positive.size].min(initial=0.0)),
        )
        return -1.0 / least if least < 0.0 else np.inf

    def moved(self, step: FloatArray, reference: Reference) -> Point:
        """Take a step (P,) that stays inside."""
        n = self.factor.shape[0]
        E = np.einsum("nk,kab->nab", step[: 10 * n].reshape(n, 10), BASIS)
        at = 10 * n + self.positive.size
        return Point(
            self.factor @ np.linalg.cholesky(np.eye(4) + E),
            self.positive * (1.0 + step[10 * n : at]),
            self.free + reference.width * step[at:],
        )
