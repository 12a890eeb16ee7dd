"""Selection of the most informative poses, and observability indices.

D-optimal exchange (Mitchell 1974; Fedorov 1972): one chosen pose at a time is replaced by the candidate that increases
the determinant of `J'J` most, until no replacement does.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from rt_core.types import FloatArray, IntArray

_PASSES = 50
_GAIN = 1e-9
_RIDGE = 1e-12


@dataclass(frozen=True)
class Observability:
    """Observability indices of a set of poses, of singular values in m and rad (Sun and Hollerbach, ICRA 2008)."""

    O1: float  # `(s_1 ... s_p)^(1/p) / sqrt(N)` (Borm and Menq 1991)
    O2: float  # `s_p / s_1`, the reciprocal condition number (Driels and Pathre 1990)
    O3: float  # `s_p` (Nahvi, Hollerbach and Hayward 1994)
    O4: float  # `s_p^2 / s_1`, the noise amplification index (Nahvi and Hollerbach 1996)
    O5: float  # `1 / (1/s_1 + ... + 1/s_p)` (Sun and Hollerbach 2008)

    @classmethod
    def of(cls, R: FloatArray, count: int) -> "Observability":
        """Return the indices of `R` (m, p), the Jacobian of `count` poses or its triangle; zeros if singular."""
        s = la.svdvals(R) if R.shape[1] else np.zeros(1)
        if R.shape[0] < R.shape[1] or not s[-1] > 0.0:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        first = float(np.exp(np.log(s).mean()) / np.sqrt(count))
        last, largest = float(s[-1]), float(s[0])
        return cls(first, last / largest, last, last**2 / largest, float(1.0 / np.sum(1.0 / s)))


def d_optimal(J: FloatArray, count: int, seed: int = 0) -> IntArray:
    """Return the indices, ascending, of `count` poses with Jacobians `J` (N, k, p) by D-optimal exchange.

    The scale of columns does not matter.  The start is greedy, from a random pose by `seed`. Raises `ValueError` if
    there are fewer candidates than `count`, or `count` poses give fewer rows than parameters.
    """
    candidates, width, p = J.shape
    if not 1 <= count <= candidates:
        raise ValueError(f"{count} of {candidates} candidate poses cannot be chosen")
    if count * width < p:
        raise ValueError(f"{count} poses give {count * width} equations for {p} parameters: choose {-(-p // width)}")
    lengths = np.linalg.norm(J.reshape(-1, p), axis=0)
    A = J / np.where(lengths > 0.0, lengths, 1.0)
    chosen = [int(np.random.default_rng(seed).integers(candidates))]
    information = _RIDGE * np.eye(p) + A[chosen[0]].T @ A[chosen[0]]
    while len(chosen) < count:
        gains = _gains(A, information)
        gains[chosen] = -np.inf
        chosen.append(int(np.argmax(gains)))
        information += A[chosen[-1]].T @ A[chosen[-1]]
    for _ in range(_PASSES):
        changed = False
        for place in range(count):
            old = chosen[place]
            without = _RIDGE * np.eye(p) + np.einsum("nki,nkj->ij", A[chosen], A[chosen]) - A[old].T @ A[old]
            gains = _gains(A, without)
            others = [pose for pose in chosen if pose != old]
            gains[others] = -np.inf
            best = int(np.argmax(gains))
            if gains[best] > gains[old] + _GAIN:
                chosen[place] = best
                changed = True
        if not changed:
            break
    return np.array(sorted(chosen), dtype=np.int64)


def _gains(A: FloatArray, information: FloatArray) -> FloatArray:
    """Return `log det(I + A_i M^-1 A_i')` (N,), the increase of the log determinant of `M` by each pose."""
    values, V = la.eigh(information)
    whitened = A @ (V / np.sqrt(np.maximum(values, _RIDGE)))
    inner = np.eye(A.shape[1]) + np.einsum("nip,njp->nij", whitened, whitened)
    return np.asarray(np.linalg.slogdet(inner)[1])
