"""Minimisation problem: a cost over a box, evaluated for many points at once.

A cost that is a sum of squares can also give its normal equations, which are all that Levenberg-Marquardt needs: a
compressed objective has no residual vector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rt_core.types import FloatArray

Costs: TypeAlias = Callable[[FloatArray], FloatArray]
NormalEquations: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


class BoundsError(ValueError):
    """Bounds that enclose no box, or a start outside them; `index` is that of the first such parameter."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class ObjectiveError(ValueError):
    """An objective whose result has the wrong shape, or is not finite where it must be."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A cost to minimise over a box.

    Raises `BoundsError` if the bounds are not finite or enclose nothing, `ValueError` if the shapes disagree.

    Attributes
    ----------
    lower, upper : (d,) float64
        Bounds, finite, `lower < upper`.
    costs : callable
        (m, d) points to (m,) costs.  One call evaluates a whole swarm.  A NaN or infinite cost marks a point as
        inadmissible; such a point never becomes the best.  The points must not be written to.
    normal_equations : callable or None
        (d,) point to `J'r` (d,) and `J'J` (d, d) of the residual `r` whose `r'r` the cost is, or of which it is an
        increasing function (such as the root-mean-square).  Needed by `lm` and `pso_lm` only.
    names : tuple of str or None
        Of the parameters, for messages.
    """

    lower: FloatArray
    upper: FloatArray
    costs: Costs
    normal_equations: NormalEquations | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the bounds and copy them."""
        lower = np.array(self.lower, dtype=np.float64)
        upper = np.array(self.upper, dtype=np.float64)
        if lower.ndim != 1 or lower.size == 0 or lower.shape != upper.shape:
            raise ValueError(
                f"lower and upper must both be (d,) with d >= 1, not {lower.shape} and {upper.shape}: "
                "give one of each a parameter"
            )
        if self.names is not None and len(self.names) != lower.size:
            raise ValueError(f"{len(self.names)} names for {lower.size} parameters")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        with np.errstate(over="ignore", invalid="ignore"):
            unbounded = ~np.isfinite(upper - lower)
        if unbounded.any():
            i = int(unbounded.argmax())
            raise BoundsError(
                f"{self.label(i)}: bounds {lower[i]} to {upper[i]} are not finite: give a finite range", i
            )
        empty = lower >= upper
        if empty.any():
            i = int(empty.argmax())
            raise BoundsError(
                f"{self.label(i)}: lower bound {lower[i]} is not below the upper {upper[i]}: "
                "swap them, or leave a parameter that is fixed out of the problem",
                i,
            )

    @property
    def width(self) -> FloatArray:
        """`upper - lower` (d,)."""
        return self.upper - self.lower

    def label(self, i: int) -> str:
        """Return the name of parameter `i` in messages."""
        return f"parameter {i}" if self.names is None else f"parameter {i} ({self.names[i]})"

    def checked_start(self, x0: FloatArray) -> FloatArray:
        """Return a copy of the start `x0` (d,).

        Raises `BoundsError` if it lies outside the bounds or is not finite, `ValueError` if its shape is wrong.
        """
        start = np.array(x0, dtype=np.float64)
        if start.shape != self.lower.shape:
            raise ValueError(f"the start has shape {start.shape}, the problem {self.lower.shape}")
        outside = ~((start >= self.lower) & (start <= self.upper))  # true for NaN, too
        if outside.any():
            i = int(outside.argmax())
            raise BoundsError(
                f"{self.label(i)}: the start {start[i]} is outside {self.lower[i]} to {self.upper[i]}: "
                "move it inside, or widen the bounds",
                i,
            )
        return start
