"""Information floor: the information that forgetting keeps, up to a share of the noise."""

import numpy as np

from rt_core.online import _state as m
from rt_core.online._state import EstimatorState
from rt_core.types import FloatArray

_KNOWN_EFFECT = 0.3  # torque effect of one standard deviation, over the noise, that is kept


def root_of(state: EstimatorState, p: int) -> FloatArray:
    """Return the square root (p, p) of the information, a copy without the padding."""
    return np.asarray(state["R"][:, :p] * state["scalars"][m.ROOT_SCALE])


def row_inflation(state: EstimatorState) -> float:
    """Return the mean weight of a row in units of plain noise, over the joints that have moved."""
    moved = state["moved"] > 0.0
    if not moved.any():
        return float(state["scalars"][m.INFLATION])
    return float(np.mean(state["weight2"][moved] / state["sigma2"][moved]))


def renew_information_floor(state: EstimatorState, start: FloatArray) -> None:
    """Set the information floor to the present information, up to a share of the noise.

    The limits hold for every combination of parameters, not only for each by itself: parameters that are known only in
    combination would otherwise count as known.  `start` (p,) is the root of the initial information.
    """
    state.ints[m.FLOOR_SET] = state.ints[m.UPDATES]
    # parameters without data keep their initial information
    unit = np.maximum(np.sqrt(state["power"] * row_inflation(state)) / _KNOWN_EFFECT, start)
    scaled = root_of(state, start.size) / unit
    with np.errstate(over="ignore", invalid="ignore"):
        gram = scaled.T @ scaled
    if not np.isfinite(gram).all():
        return
    try:
        # parameters without rows stay separate: rounding would couple them to the others
        shown = np.flatnonzero(np.count_nonzero(gram, axis=1) > 1)
        known, vectors = np.linalg.eigh(gram[np.ix_(shown, shown)])
    except np.linalg.LinAlgError:  # no convergence: keep the floor until the next renewal
        return
    # the symmetric root is unique, unlike the eigenvectors of equal eigenvalues
    root = np.diag(np.sqrt(np.clip(np.diag(gram), 0.0, 1.0)))
    root[np.ix_(shown, shown)] = (vectors * np.sqrt(np.clip(known, 0.0, 1.0))) @ vectors.T
    state["leak"][:] = root * unit
