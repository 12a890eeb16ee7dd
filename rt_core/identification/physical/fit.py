"""Physically consistent fit: links that can be real bodies, non-negative friction and rotor inertia.

Minimises the weighted squared torque error plus a weighted log-det divergence from the prior, over the standard
parameters.  The weight is given or comes from the data (`rt_core.identification.physical._evidence`).  There is a
unique minimum for every positive weight: undetermined directions stay at the prior.

Sources: Wensing, Kim, Slotine (2018), "Linear matrix inequalities for physically consistent inertial parameter
identification"; Lee, Wensing, Park (2020), "Geometric robot dynamic identification: a convex programming approach".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la

from rt_core.identification.least_squares import JointTriangle, Solution
from rt_core.identification.physical._evidence import MIN, UNKNOWN_EFFECT, choose_weights
from rt_core.identification.physical.coordinates import Reference
from rt_core.identification.physical.newton import descend
from rt_core.identification.physical.prior import DENSITY, Blocks, ConsistencyError, Prior, blocks, physical_prior
from rt_core.linear_algebra import lstsq
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.inertia import pseudo_inertia
from rt_core.model.parameters import ParameterLayout
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray

#: Expected share of its joint's torque of an effect without a prior ...
EFFECT_SHARE = 0.1
#: ... and the standard deviation of a free one, such as an offset, as a multiple of the torque.
FREE_SHARE = 10.0
#: Largest factor between a density found from the data and the default.
_DENSITY_FACTOR = 5.0
_SINGULAR = 1e-13


@dataclass(frozen=True)
class ConsistentFit:
    """A physically consistent estimate."""

    phi: FloatArray  # (P,) standard parameters, in the columns of `base.standard`
    theta: FloatArray  # (p,) base parameters, `base.mapping @ phi`
    inertial: FloatArray  # (n, 10) the links of `phi`, in Pinocchio's order
    dynamics: JointDynamics  # the effects of `phi` on the joint side; those at a coupled motor are in `phi` alone
    # (p, p) posterior covariance of `theta`, from noise and the prior's uncertainty, given the weight
    covariance: FloatArray
    variances: FloatArray  # (P,) of `phi`, likewise
    link_weight: float  # of the prior of links; `1/sqrt(weight)` is its assumed relative error
    smallest_eigenvalue: FloatArray  # (n,) of each link's pseudo-inertia; positive
    divergence: FloatArray  # (n,) distance of each link from its prior
    # (p,) share of each base parameter's information that comes from the data rather than the prior, 0 to 1
    data_share: FloatArray
    iterations: int  # Newton steps of the last minimisation
    prior: Prior  # the prior and its sources
    viscous_scale: FloatArray  # (P,) that viscous friction was drawn towards zero with; infinite where it was not

    @property
    def std(self) -> FloatArray:
        """(p,) standard deviations of `theta`."""
        return np.sqrt(np.diag(self.covariance))


def noise_inflation(triangles: Sequence[JointTriangle], solution: Solution, covariance: FloatArray) -> float:
    """Return the mean factor by which correlated residuals widen the covariance (p, p) of a fit.

    Correlated samples count as fewer independent ones, which sets the weight of the data against a prior.
    """
    A, _ = weighted_rows(triangles, solution.weighted_with, solution.theta.size)
    return max(float(np.einsum("ij,jk,ik->", A, covariance, A)) / max(solution.rank, 1), 1.0)


def weighted_rows(triangles: Sequence[JointTriangle], sigma: FloatArray, p: int) -> tuple[FloatArray, FloatArray]:
    """Return rows (r, p) and right side (r,) of all joints, each divided by its standard deviation, `r <= p`."""
    parts = []
    for t, s in zip(triangles, sigma, strict=True):
        part = np.zeros((t.R.shape[0], p + 1))
        part[:, t.columns] = t.R / s
        part[:, p] = t.z / s
        parts.append(part)
    R = np.asarray(la.qr(np.vstack(parts), mode="r", check_finite=False)[0][:p], dtype=np.float64)
    return R[:, :p], R[:, p]


def whitening(covariance: FloatArray, p: int) -> FloatArray:
    """Return a matrix `W` (r, p) with `W @ covariance @ W.T` the identity.

    A direction without variance counts as undetermined, as least squares reports it, and is left out. Raises
    `ConsistencyError` if `covariance` is not a finite (p, p) matrix, or zero.
    """
    if covariance.shape != (p, p) or not np.isfinite(covariance).all():
        raise ConsistencyError(f"the covariance must be a finite ({p}, {p}) matrix")
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0.0)
    values, vectors = np.linalg.eigh(inverse[:, None] * covariance * inverse)
    kept = values > _SINGULAR * max(float(values[-1]), 1e-300)
    if not kept.any() or not std.any():
        raise ConsistencyError("the covariance is zero: nothing is known about the parameters")
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])).T * inverse)


def effect_scales(
    columns: Blocks, layout: ParameterLayout, mapping: FloatArray, triangles: Sequence[JointTriangle], prior: Prior
) -> tuple[FloatArray, FloatArray]:
    """Return scales of the non-negative effects (m,) and widths of the free ones (f,) from prior and torque."""
    torque = np.array([np.sqrt((t.z @ t.z + t.rest) / t.count) if t.count else np.nan for t in triangles])

    def scale(c: int, share: float) -> float:
        j = int(layout.joint[c])
        t = triangles[j]
        size = float(np.linalg.norm(t.R @ mapping[t.columns, c])) / np.sqrt(t.count) if t.count else 0.0
        return share * float(torque[j]) / size if size > 1e-12 and torque[j] > 0.0 else np.nan

    def filled(chosen: np.ndarray, values: FloatArray) -> FloatArray:
        """Replace undetermined values by the median of the same effect at the other joints."""
        out = values.copy()
        for k in np.flatnonzero(~np.isfinite(values)):
            same = values[(layout.law[chosen] == layout.law[chosen[k]]) & np.isfinite(values)]
            out[k] = float(np.median(same)) if same.size else 1.0
        return out

    known = prior.effects[columns.positive]
    found = np.array([scale(c, EFFECT_SHARE) for c in columns.positive])
    widths = np.array([scale(c, FREE_SHARE) for c in columns.free])
    return np.where(known > 0.0, known, filled(columns.positive, found)), filled(columns.free, widths)


def _density(A: FloatArray, z: FloatArray, columns: Blocks, links: FloatArray) -> float:
    """Return the density of stand-in bodies [kg/m^3] that fits the torque best, beside all joint effects."""
    body = A[:, columns.links.ravel()] @ links.ravel() / DENSITY
    rows = np.column_stack((body, A[:, columns.positive], A[:, columns.free]))
    size = np.linalg.norm(rows, axis=0)
    if size[0] <= 0.0:
        return DENSITY
    found = float(lstsq(rows / np.where(size > 0.0, size, 1.0), z, rcond=1e-9)[0]) / float(size[0])
    return float(np.clip(found, DENSITY / _DENSITY_FACTOR, DENSITY * _DENSITY_FACTOR))


def joint_dynamics(model: RobotModel, layout: ParameterLayout, phi: FloatArray) -> JointDynamics:
    """Return the effects of `phi` (P,) on the joint side; velocity constants are the model's."""
    held = {code: field for _, code, field in model.friction.terms}
    held |= {LAW_ARMATURE: "armature", LAW_OFFSET: "offset"}
    values = {field: np.zeros(model.n) for field in (*held.values(), "viscous", "coulomb", "armature", "offset")}
    for c in np.flatnonzero(~np.asarray(layout.is_link)):
        if np.count_nonzero(layout.motor[c]) == 1:
            values[held[int(layout.law[c])]][layout.source[c]] = phi[c]
    values.setdefault("breakaway", values["coulomb"].copy())
    return replace(JointDynamics.zeros(model.n) if model.dynamics is None else model.dynamics, **values)


def viscous_scales(found: ConsistentFit, layout: ParameterLayout, model: RobotModel) -> FloatArray:
    """Return the standard deviation (P,) of viscous friction about zero, one for all joints of a kind.

    Empirical Bayes: with `f_j ~ N(0, s^2)` for all joints, the marginal likelihood of the data grows with each step

        s^2 <- mean_j E[f_j^2 | data] = mean_j (f_j^2 + var f_j)

    of expectation and maximisation (Dempster, Laird, Rubin 1977), from the estimate `f_j` and its posterior variance
    in `found`. Joints whose viscous friction the data determine set the scale for those where a poor motion leaves it
    open; without it, such a joint's friction is extrapolated in speed as it came. One step is taken: more change the
    error on another motion by at most 0.02 points (LWR4, Panda, TX40), and go on to shrink the scale where data hardly
    show friction, which cannot be negative (Panda: 0.052, 0.037 ... 0.022 after eight, error 1.208 to 1.214 %).
    Revolute and prismatic joints have a scale each, because their units differ. Infinite for all but viscous friction.
    """
    out = np.full(found.phi.size, np.inf)
    prismatic = np.array([joint.kind == "prismatic" for joint in model.joints])
    for kind in (True, False):
        chosen = (layout.law == LAW_VISCOUS) & (prismatic[layout.joint] == kind)
        if np.count_nonzero(chosen) > 1:  # one joint alone tells nothing of others
            second = found.phi[chosen] ** 2 + found.variances[chosen]
            out[chosen] = float(np.sqrt(second.mean()))
    return out


def fit_consistent(
    base: BaseParameters, model: RobotModel, triangles: Sequence[JointTriangle], sigma: FloatArray, *,
    inflation: float = 1.0, link_weight: float | None = None, prior: RobotModel | None = None,
    viscous_scale: FloatArray | None = None,
) -> ConsistentFit:  # fmt: skip
    """Fit consistent standard parameters to compressed rows.

    Parameters
    ----------
    base : BaseParameters
        Of `model`.
    triangles : n triangles
        Of the base regressor, from `rt_core.identification.least_squares.compress`.
    sigma : (n,) array
        Standard deviation of each joint's rows [N*m].
    inflation : float
        Factor by which correlated residuals widen a covariance, see `noise_inflation`.
    link_weight : float, optional
        Weight of the links' prior; by default both weights are chosen by evidence.  The smallest, 1e-3, demands little
        more than consistency.
    prior : RobotModel, optional
        Source of the prior, in the same frames; `model` by default.
    viscous_scale : (P,) array, optional
        Standard deviation of each viscous friction about zero, from `viscous_scales`; infinite for anything else.

    Raises
    ------
    ConsistencyError
        If there are no rows, something is not finite, the prior has other joints, or the weight is not positive.
    """
    reference_model = model if prior is None else prior
    if reference_model.n != model.n:
        raise ConsistencyError(f"the prior has {reference_model.n} joints, the model {model.n}")
    if sum(t.count for t in triangles) == 0:
        raise ConsistencyError("there are no rows: without data, the prior is all that is known")
    if not (np.isfinite(sigma).all() and (sigma > 0.0).all() and np.isfinite(inflation) and inflation > 0.0):
        raise ConsistencyError("standard deviations and inflation must be positive and finite")
    if not all(np.isfinite(t.R).all() and np.isfinite(t.z).all() and np.isfinite(t.rest) for t in triangles):
        raise ConsistencyError("the rows hold NaN or infinity: prepare the signals again")
    if link_weight is not None and not (np.isfinite(link_weight) and link_weight >= MIN):
        raise ConsistencyError(
            f"weight {link_weight} of the prior: give at least {MIN:g}, or none to choose it from the data "
            "(with none at all, the bodies that fit best may be infinitely large)"
        )

    columns = blocks(base.standard)
    R, z = weighted_rows(triangles, sigma * np.sqrt(inflation), len(base))
    A = R @ base.mapping
    narrow = np.full(len(base.standard), np.inf) if viscous_scale is None else viscous_scale
    drawn = np.diag(1.0 / narrow)[np.isfinite(narrow)]
    belief = physical_prior(reference_model, base.standard)
    if belief.invented:
        belief = physical_prior(reference_model, base.standard, _density(A, z, columns, belief.links))
    scale, width = effect_scales(columns, base.standard, base.mapping, triangles, belief)
    reference = Reference.build(columns, belief.links, scale, belief.effects[columns.free], width)
    known = belief.effects[columns.positive] > 0.0
    A, z = np.vstack((A, drawn)), np.concatenate((z, np.zeros(drawn.shape[0])))
    if link_weight is None:
        links, effects = choose_weights(A, z, reference, known)
    else:
        links, effects = link_weight, link_weight if known.any() else UNKNOWN_EFFECT
    weight = reference.spread(links, np.where(known, effects, min(UNKNOWN_EFFECT, links)))
    minimum = descend(A, z, reference, weight)
    point = minimum.point
    phi = point.phi(reference)
    inertial = phi[columns.links]
    # Hessian = root' root; its inverse splits into the parts of the noise and of the prior's uncertainty
    directions = point.directions(reference)
    spread = la.solve_triangular(minimum.root, directions.T, trans="T", check_finite=False)
    covariance = (base.mapping @ spread.T) @ (base.mapping @ spread.T).T
    reach = la.solve_triangular(minimum.root, spread @ base.mapping.T, check_finite=False)
    from_prior = (weight[:, None] * reach**2).sum(axis=0) + ((drawn @ directions @ reach) ** 2).sum(axis=0)
    divergence = point.penalties(reference)[: 10 * model.n].reshape(model.n, 10).sum(axis=1)
    least = np.array([np.linalg.eigvalsh(pseudo_inertia(link))[0] for link in inertial])
    return ConsistentFit(
        phi, base.theta(phi), inertial, joint_dynamics(model, base.standard, phi), covariance, (spread**2).sum(axis=0),
        links, least, divergence, np.clip(1.0 - from_prior / np.diag(covariance), 0.0, 1.0), minimum.iterations, belief,
        narrow,
    )  # fmt: skip
