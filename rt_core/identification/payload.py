"""Mass, centre of mass and inertia of a payload from its effect on the parameters.

A rigid payload adds its ten parameters, moved from the flange frame to the last link's, to those of that link.  So
the base parameters change by `B phi`, with `B = mapping[:, last link] T`.  Given the base parameters without payload
and their covariance `C`, and rows `R theta = z` with it, of unit noise,

    z - R theta_before = R B phi + e,    Cov e = I + R C R'

and `phi` follows by generalised least squares.  The reported payload is a real body: the same rows, with a positive
definite pseudo-inertia and a weak prior, a lump of the same mass, for undetermined directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg as la

from rt_core.identification.least_squares import JointTriangle
from rt_core.identification.physical.coordinates import Reference
from rt_core.identification.physical.fit import weighted_rows, whitening
from rt_core.identification.physical.newton import descend
from rt_core.identification.physical.prior import Blocks, ConsistencyError
from rt_core.linear_algebra import svd
from rt_core.model.base import BaseParameters, payload_columns
from rt_core.model.inertia import inertial_vector
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

PayloadStatus = Literal["determined", "weak", "undetermined"]

#: A payload is present if its mass is this many standard deviations above zero.
PRESENT = 3.0
#: A value is determined if its standard deviation is at most this share of it, weak if of its natural size.
RELATIVE_STD_LIMIT = 0.3
#: Length that turns a mass into the natural size of moments [m].
NATURAL_LENGTH = 0.1
#: Weight of the lump in the consistent estimate, and its density [kg/m^3].
LUMP_WEIGHT = 0.1
LUMP_DENSITY = 2000.0
_RANK = 1e-9


class Estimated(NamedTuple):
    """Base parameters (p,) of an arm and their covariance (p, p)."""

    theta: FloatArray
    covariance: FloatArray


@dataclass(frozen=True)
class Payload:
    """An estimated payload, about the flange frame, in Pinocchio's order."""

    # (10,) unconstrained estimate: unbiased, but not necessarily a real body.  Zero in directions without data
    estimate: FloatArray
    covariance: FloatArray  # (10, 10) of `estimate`, with the uncertainty of the arm without payload
    std: FloatArray  # (10,) its standard deviations, infinite for undetermined parameters
    status: tuple[PayloadStatus, ...]  # whether each parameter is determined, weak (known to be small) or undetermined
    present: bool  # whether the mass is significantly positive
    phi: FloatArray | None  # (10,) the nearest real body in the metric of the data; None without payload
    # (10, 10) posterior covariance of `phi`; that of the prior in undetermined directions
    phi_covariance: FloatArray | None
    scatter: float  # rms of the residuals of `estimate` relative to the noise; about 1 for a good fit


def payload_from_rows(
    base: BaseParameters, model: RobotModel, before: Estimated, triangles: Sequence[JointTriangle], sigma: FloatArray,
    *, refit_effects: bool = False,
) -> Payload:  # fmt: skip
    """Estimate a payload from the parameters of the arm without it and the compressed rows of a recording with it.

    Parameters
    ----------
    before : Estimated
        The arm without payload; of `fit_consistent` if its recording left parameters undetermined.
    triangles, sigma
        Of the recording with payload, as in `fit_consistent`; `sigma` includes the root of its `inflation`.
    refit_effects : bool
        Let friction, rotor inertia and offsets differ between the recordings (another temperature, a load that
        changes the friction).

    Raises
    ------
    ConsistencyError
        If something is missing or not finite.
    """
    if sum(t.count for t in triangles) == 0:
        raise ConsistencyError("the recording with payload has no rows")
    if not (np.isfinite(sigma).all() and (sigma > 0.0).all()):
        raise ConsistencyError("standard deviations and inflation must be positive and finite")
    return _estimate(base, model, before, *weighted_rows(triangles, sigma, len(base)), refit_effects)


def payload_from_change(
    base: BaseParameters, model: RobotModel, before: Estimated, after: Estimated, *, refit_effects: bool = False
) -> Payload:
    """Estimate a payload from two independent estimates of the base parameters, without and with it.

    An online estimator must forget its information at the event for the two to be independent. Raises
    `ConsistencyError` if something is missing or not finite.
    """
    if after.theta.shape != (len(base),):
        raise ConsistencyError(f"the arm with payload needs {len(base)} base parameters, not {after.theta.size}")
    W = whitening(after.covariance, len(base))
    return _estimate(base, model, before, W, W @ after.theta, refit_effects)


def _estimate(
    base: BaseParameters, model: RobotModel, before: Estimated, R: FloatArray, z: FloatArray, refit_effects: bool
) -> Payload:
    p, (theta, covariance) = len(base), before
    if theta.shape != (p,) or covariance.shape != (p, p):
        raise ConsistencyError(f"the arm without payload needs {p} base parameters and their covariance")
    if not all(np.isfinite(x).all() for x in (theta, covariance, R, z)):
        raise ConsistencyError("the estimates hold NaN or infinity")
    open_ = np.flatnonzero(np.diag(covariance) <= 0.0)
    if open_.size:
        raise ConsistencyError(
            f"the arm without payload leaves {', '.join(base.names[k] for k in open_[:5])} open: record a richer "
            "motion without payload, or take a physically consistent fit, which has a variance for all"
        )
    noise = np.asarray(np.linalg.cholesky(np.eye(R.shape[0]) + R @ covariance @ R.T), dtype=np.float64)
    columns = payload_columns(base, model)
    rows = _solved(noise, np.column_stack((R, z - R @ theta)))
    A, b = rows[:, :p] @ columns, rows[:, p]
    if refit_effects:
        Q = la.orth(rows[:, :p][:, ~np.asarray(base.layout.is_link)])
        A, b = A - Q @ (Q.T @ A), b - Q @ (Q.T @ b)
    scale = np.linalg.norm(A, axis=0)
    safe = np.where(scale > 0.0, scale, 1.0)
    U, values, Vt = svd(A / safe)
    kept = values > _RANK * max(float(values[0]), 1e-300)
    root = (Vt[kept].T / values[kept]) / safe[:, None]
    estimate, spread = root @ (U[:, kept].T @ b), root @ root.T
    # a parameter is undetermined if a direction without data has a part in it
    reached = (Vt[kept] ** 2).sum(axis=0) > 1.0 - 1e-8
    std = np.where(reached & (scale > 0.0), np.sqrt(np.diag(spread)), np.inf)
    present = bool(estimate[0] > PRESENT * std[0])
    status = _status(estimate, std)
    centre = np.where([s == "undetermined" for s in status[1:4]], 0.0, estimate[1:4] / max(float(estimate[0]), 1e-300))
    phi, posterior = _body(A, b, float(estimate[0]), centre) if present else (None, None)
    effects = R[:, ~np.asarray(base.layout.is_link)] if refit_effects else R[:, :0]
    scatter = _scatter(noise, R @ columns, effects, z - R @ (theta + columns @ estimate))
    return Payload(estimate, spread, std, status, present, phi, posterior, scatter)


def _solved(noise: FloatArray, x: FloatArray) -> FloatArray:
    """Return `x` in units of the noise whose covariance has the lower Cholesky factor `noise`."""
    return np.asarray(la.solve_triangular(noise, x, lower=True, check_finite=False))


def _scatter(noise: FloatArray, columns: FloatArray, effects: FloatArray, left: FloatArray) -> float:
    """Return the rms of the residuals `left` of `columns` and `effects`, in units of the noise."""
    white = _solved(noise, np.column_stack((columns, effects, left)))
    fitted, left = white[:, :-1], white[:, -1]
    if effects.shape[1]:
        Q = la.orth(fitted[:, columns.shape[1] :])
        left = left - Q @ (Q.T @ left)
    free = left.size - int(np.linalg.matrix_rank(fitted))
    return float(np.sqrt(left @ left / free)) if free > 0 else 1.0


def _status(estimate: FloatArray, std: FloatArray) -> tuple[PayloadStatus, ...]:
    natural = abs(estimate[0]) * np.array([1.0] + 3 * [NATURAL_LENGTH] + 6 * [NATURAL_LENGTH**2])
    out: list[PayloadStatus] = []
    for value, size, deviation in zip(estimate, natural, std, strict=True):
        if deviation <= RELATIVE_STD_LIMIT * abs(value):
            out.append("determined")
        else:
            out.append("weak" if deviation <= RELATIVE_STD_LIMIT * size else "undetermined")
    return tuple(out)


def _body(A: FloatArray, b: FloatArray, mass: float, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the real body (10,) nearest in the metric of the rows, and its posterior covariance (10, 10)."""
    radius = (3.0 * mass / (4.0 * np.pi * LUMP_DENSITY)) ** (1.0 / 3.0)
    lump = inertial_vector(mass, centre, 0.4 * mass * radius**2 * np.eye(3))
    none = np.zeros(0)
    blocks = Blocks(np.arange(10, dtype=np.int64)[None, :], none.astype(np.int64), none.astype(np.int64))
    reference = Reference.build(blocks, lump[None, :], none, none, none)
    minimum = descend(A, b, reference, np.full(10, LUMP_WEIGHT))
    point = minimum.point
    spread = la.solve_triangular(minimum.root, point.directions(reference).T, trans="T", check_finite=False)
    return point.phi(reference), spread.T @ spread
