"""Design in addition to earlier data: excite what they left undetermined.

The objective is the measure of the information of both, `R'R` of the earlier rows divided by their noise.
"""

from collections.abc import Sequence

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.objective import checked_information
from rt_core.types import FloatArray


def known_information(
    parameters: Sequence[str], names: Sequence[str], rows: int, *, information: FloatArray | None = None,
    root: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the information per row (p, p) for `design_excitation(..., known=...)`.

    Parameters
    ----------
    parameters : sequence of str
        Those of the design: `Designer.excitation.layout.names`.
    names : sequence of str
        Base parameters with earlier information, in the order of `information` or `root`.  Those that the design does
        not count are left out, i.e. taken as known; those of the design that are not among `names` are unknown.
    rows : int
        Rows of the new motion: samples to be recorded, times joints.
    information : (k, k) float64
        `W_0'W_0`.
    root : (m, k) float64
        Any `R` with `R'R = W_0'W_0`, instead of it.

    Raises
    ------
    ExcitationError
        If shapes do not match, not exactly one of `information` and `root` is given, or it is no information matrix.
    """
    if (information is None) == (root is None):
        raise ExcitationError("give either the information or its root")
    if rows < 1:
        raise ExcitationError(f"rows must be at least 1, not {rows}")
    if root is not None:
        R = np.array(root, dtype=np.float64)
        if R.ndim != 2 or R.shape[1] != len(names):
            raise ExcitationError(f"the root has shape {R.shape}, {len(names)} parameters ask for as many columns")
        information = R.T @ R
    found = checked_information(np.asarray(information), len(names))
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ExcitationError("a parameter is named twice")
    both = [(k, place[name]) for k, name in enumerate(parameters) if name in place]
    known = np.zeros((len(parameters), len(parameters)))
    if both:
        here, there = np.array(both).T
        known[np.ix_(here, here)] = found[np.ix_(there, there)] / rows
    return known
