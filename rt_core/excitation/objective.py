"""Measures of how well a motion determines the base parameters, by the stacked base regressor `W` along it.

`W` has a row for each joint and sample and a column for each base parameter, those of joint effects such as friction
included.  With the information per row `M = W'W / rows`, or its correlation form if columns are scaled to unit norm,
the measures, all to be minimised, are

    condition     sqrt(lambda_max(M) / lambda_min(M)) = cond(W)      (HYP, DYN)
    d_optimal     -log det M
    e_optimal     -log lambda_min(M)

The search uses the eigenvalues of `M`, which squares the condition number: above about 1e7 it cannot distinguish
motions.  Reported values are from the singular values of `W` itself.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.excitation._measure import from_eigenvalues, scaled_to_unit
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import States
from rt_core.excitation.settings import Columns, Objective
from rt_core.linear_algebra import svd
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_LOAD, SHAPED, Friction
from rt_core.model.parameters import ParameterLayout
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Share of the largest singular value below which a direction is undetermined.
RANK_TOLERANCE = 1e-9
#: Inflation of the standard deviation above which a parameter is poorly determined: its column differs from a
#: combination of the others by a thousandth of its length, less than the effect of noise.
MAX_INFLATION = 1e3
#: Relative asymmetry or negativity of an information matrix that counts as rounding.
SYMMETRIC = 1e-9
Determination = Literal["good", "poor", "undetermined"]


@dataclass(frozen=True)
class WeakParameter:
    """Parameter in the direction that a motion determines least."""

    name: str  # leading standard parameter
    expression: str  # the base parameter
    share: float  # squared component in the right singular vector of the smallest singular value; all sum to one
    inflation: float  # standard deviation over the one without other unknown parameters; 1 is best


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of the stacked regressor and what follows from them."""

    singular_values: FloatArray  # (p,) descending, of `W / sqrt(rows)` with columns scaled as in the measure
    right: FloatArray  # (p, p) right singular vectors in rows
    condition_number: float  # of `W` with columns scaled as in the measure; infinite if a direction is not determined
    condition_scaled: float  # of `W` with columns of unit norm
    condition_unscaled: float  # of `W` as it is
    inflation: FloatArray  # (p,); see `WeakParameter`

    @property
    def determination(self) -> Determination:
        """`undetermined` if a direction is, `poor` if an inflation is above `MAX_INFLATION`, else `good`.

        It does not depend on scaling or units.
        """
        if not np.isfinite(self.condition_scaled):
            return "undetermined"
        return "good" if float(self.inflation.max()) <= MAX_INFLATION else "poor"


class Excitation:
    """Measure `kind` of motions of `model`.

    Parameters
    ----------
    model : RobotModel
    kind : {"condition", "d_optimal", "e_optimal"}
    scaled : bool
        Scale the columns of `W` to unit norm first.
    base : BaseParameters or None
        Of `model`; computed if None.
    columns : {"all", "rigid"}
        `rigid` for the base parameters of the arm without rotors, friction and offsets.
    known : (p, p) float64 or None
        Information per row from earlier data, added to `W'W / rows` before columns are scaled.

    Attributes
    ----------
    layout : ParameterLayout
        Columns of the base regressor that count.
    left_out : tuple of str
        Other base parameters: friction whose velocity constant is unknown or below the standstill velocity, and
        load-dependent friction if the link parameters are unknown.
    """

    def __init__(
        self, model: RobotModel, kind: Objective, scaled: bool, base: BaseParameters | None = None,
        columns: Columns = "all", known: FloatArray | None = None,
    ) -> None:  # fmt: skip
        model = model.at_reference_temperature
        self.model = model
        self.kind = kind
        self.scaled = scaled
        self.columns = columns
        if base is None:
            bare = replace(model, friction=Friction("none"), armature=False, offset=False)
            base = base_parameters(model if columns == "all" else bare)
        self.base = base
        every = self.base.layout
        joint = np.where(every.is_link, 0, every.joint)
        out = np.isin(every.law, SHAPED) & (every.shape[:, 0] < model.standstill_velocity[joint])
        if model.inertial is None:
            out |= every.law == LAW_LOAD
        self.layout: ParameterLayout = every.take(np.flatnonzero(~out))
        self.left_out = tuple(every.names[c] for c in np.flatnonzero(out))
        self._out: FloatArray | None = None
        if not len(self.layout):
            raise ExcitationError(f"robot '{model.name}' has no parameters that a motion could determine")
        self.known = None if known is None else checked_information(known, len(self.layout))

    @cached_property
    def _expressions(self) -> dict[str, str]:
        return dict(zip(self.base.names, self.base.expressions, strict=True))

    def regressor(self, states: States) -> FloatArray:
        """Return the columns of `W` by joint, (n, p, N), at `states` (N, n); overwritten by the next call."""
        model = self.model
        shape = (model.n, len(self.layout), states[0].shape[0])
        if self._out is None or self._out.shape != shape:
            self._out = np.zeros(shape)
        load = None
        if self.layout.has_load and model.inertial is not None:
            load = inverse_dynamics(model.geometry, model.gravity, model.inertial, *states)
        return regressor_columns(model, self.layout, *states, out=self._out, load=load)

    def information(self, states: States) -> FloatArray:
        """Return the information per row `W'W / (n N)` (p, p), of scaled columns if the measure has them."""
        Y = self.regressor(states)
        gram = np.zeros((Y.shape[1], Y.shape[1]))
        for row in Y:
            gram += row @ row.T
        gram /= Y.shape[0] * Y.shape[2]
        if self.known is not None:
            gram += self.known
        return scaled_to_unit(gram)[0] if self.scaled else gram

    def value(self, states: States) -> float:
        """Return the measure at `states` (N, n); finite even if a direction is not determined."""
        eigenvalues = np.linalg.eigvalsh(self.information(states))
        return from_eigenvalues(np.asarray(eigenvalues, dtype=np.float64), self.kind)

    def spectrum(self, states: States) -> Spectrum:
        """Return the singular values of `W` along `states` (N, n), and what follows from them."""
        Y = self.regressor(states)
        W = Y.transpose(0, 2, 1).reshape(-1, Y.shape[1]) / np.sqrt(Y.shape[0] * Y.shape[2])
        if self.known is not None:
            W = np.vstack((W, square_root(self.known)))
        # the triangular factor has the same singular values and fewer rows
        R = np.atleast_2d(la.qr(W, mode="r", check_finite=False)[0][: W.shape[1]])
        length = np.linalg.norm(R, axis=0)
        unit = R / np.where(length > 0.0, length, 1.0)
        scaled, unscaled = (svd(A) for A in (unit, R))
        _, values, right = scaled if self.scaled else unscaled
        numbers = [_condition(s[1]) for s in (scaled, unscaled)]
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = (scaled[2] / scaled[1][:, None]) ** 2
        inflation = np.sqrt(np.where(np.isfinite(spread), spread, np.inf).sum(axis=0))
        inflation[length == 0.0] = np.inf
        return Spectrum(values, right, numbers[0 if self.scaled else 1], numbers[0], numbers[1], inflation)

    def weakest(self, spectrum: Spectrum, count: int = 5) -> tuple[WeakParameter, ...]:
        """Return the `count` parameters with the largest share in the direction that is determined least."""
        share = spectrum.right[-1] ** 2
        order = np.argsort(-share, kind="stable")[:count]
        names = self.layout.names
        return tuple(
            WeakParameter(names[c], self._expressions[names[c]], float(share[c]), float(spectrum.inflation[c]))
            for c in order
        )


def checked_information(known: FloatArray, size: int) -> FloatArray:
    """Return a copy of an information matrix (size, size).

    Raises `ExcitationError` if it has another shape or is not finite, symmetric and positive semidefinite.
    """
    known = np.array(known, dtype=np.float64)
    if known.shape != (size, size):
        raise ExcitationError(
            f"the information that is known has shape {known.shape}, the parameters ask {(size, size)}"
        )
    if not np.isfinite(known).all():
        raise ExcitationError("the information that is known must be finite")
    largest = float(np.abs(known).max())
    if np.abs(known - known.T).max() > SYMMETRIC * largest:
        raise ExcitationError("the information that is known must be symmetric")
    known = 0.5 * (known + known.T)
    if la.eigvalsh(known, check_finite=False)[0] < -SYMMETRIC * largest:
        raise ExcitationError("the information that is known must not be negative in any direction")
    return known


def square_root(information: FloatArray) -> FloatArray:
    """Return `R` (p, p) with `R'R` the positive semidefinite `information` (p, p)."""
    values, vectors = la.eigh(information, check_finite=False)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def _condition(values: FloatArray) -> float:
    """Return the condition number from descending singular values."""
    return float(values[0] / values[-1]) if values[-1] > RANK_TOLERANCE * values[0] else float("inf")
