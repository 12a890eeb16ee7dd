"""What forgetting may not take: information that the leak puts back, up to a share of the noise."""

from __future__ import annotations

import numpy as np

from rt_core.online import _state as m
from rt_core.online._state import Memory
from rt_core.types import FloatArray

_LEAK_EFFECT = 0.3  # what is known to this much of the noise stays known


def root_of(memory: Memory, p: int) -> FloatArray:
    """(p, p) square root of the information, a copy without the padding."""
    return np.asarray(memory["R"][:, :p] * memory["scalars"][m.ROOT_SCALE])


def row_inflation(memory: Memory) -> float:
    """Weight of a row in units of plain noise, over the joints that have moved."""
    moved = memory["moved"] > 0.0
    if not moved.any():
        return float(memory["scalars"][m.INFLATION])
    return float(np.mean(memory["weight2"][moved] / memory["sigma2"][moved]))


def hold_on(memory: Memory, start: FloatArray) -> None:
    """Renew the information that the leak replaces: the present one, up to a share of the noise.

    Both limits hold for every combination of parameters, not only for each by itself: several that are unknown
    together would otherwise be held several times over, and pass for known.  `start` (p,) is the root of information
    of each parameter at the start.
    """
    memory.ints[m.LEAK_SET] = memory.ints[m.UPDATES]
    # what was known at the start stays, for parameters that nothing has shown yet
    unit = np.maximum(np.sqrt(memory["power"] * row_inflation(memory)) / _LEAK_EFFECT, start)
    scaled = root_of(memory, start.size) / unit
    with np.errstate(over="ignore", invalid="ignore"):
        gram = scaled.T @ scaled
    if not np.isfinite(gram).all():
        return
    try:
        # parameters that no row has shown stay apart: rounding would make them follow the others
        shown = np.flatnonzero(np.count_nonzero(gram, axis=1) > 1)
        known, vectors = np.linalg.eigh(gram[np.ix_(shown, shown)])
    except np.linalg.LinAlgError:  # no convergence: the leak stays as it is until the next renewal
        return
    # the symmetric root: where variances are alike the vectors are arbitrary, and it is not
    root = np.diag(np.sqrt(np.clip(np.diag(gram), 0.0, 1.0)))
    root[np.ix_(shown, shown)] = (vectors * np.sqrt(np.clip(known, 0.0, 1.0))) @ vectors.T
    memory["leak"][:] = root * unit
