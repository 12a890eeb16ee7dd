"""Uncertainty of the tool position of a calibrated arm: at given postures, and of new poses in the workspace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la

from rt_core.calibration._inverse import limits_of
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Objective
from rt_core.calibration.sample import Sample
from rt_core.calibration.uncertainty import Dependence
from rt_core.robust_loss import loss_weights
from rt_core.types import FloatArray, IntArray

#: Errors below this are rounding [m].
NOTHING = 1e-9
#: Random postures of a mean over the workspace; its own standard error is some 3 %.
POSTURES = 500
_TINY = 1e-15


@dataclass(frozen=True)
class Expected:
    """Error that new poses will have, root mean square over random postures within the joint limits [m]."""

    error: float  # of the calibrated arm; infinite if there is no degree of freedom to tell it by
    nominal: float  # of the nominal arm as measured, with base and tool fitted

    @property
    def harmful(self) -> bool:
        """Whether new poses are likely to be off by more than with the nominal arm."""
        return self.error > max(self.nominal, NOTHING)


def position_std(
    model: ErrorModel, x: FloatArray, q: FloatArray, names: Sequence[str], covariance: FloatArray,
    load: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the root-mean-square error (N,) [m] of predicted positions at postures `q` (N, n).

    `sqrt(trace(J C J'))`, with `J` the derivatives of the position by the parameters `names` (p,) at the errors `x`
    (P,) and `C` (p, p) their `covariance`.  Names unknown to the model are ignored.  `load` (N, n) is that of the
    joints, for compliance.
    """
    known = [k for k, name in enumerate(names) if name in model.names]
    free = np.array([model.index(names[k]) for k in known], dtype=np.int64)
    positions, _ = model.predict(q, x, load)
    sample = Sample.of(np.ascontiguousarray(q), positions)
    J = model.jacobian(sample if load is None else replace(sample, load=load), x, free)
    spread = np.einsum("nip,pq,niq->n", J, covariance[np.ix_(known, known)], J)
    return np.asarray(np.sqrt(np.maximum(spread, 0.0)))


def expected_error(
    objective: Objective, dependence: Dependence, noise: FloatArray, build: FloatArray, nominal: float, seed: int = 0
) -> Expected:
    """Return the error that new poses will have with the fit in `objective`, over the arm's joint limits.

    Of an arm, not of the measured range: what a posture beyond it needs is extrapolated, and these poses say how badly.
    All errors of the arm count, those that are held with the deviations `build` (P,) of arms as built (zero for those
    that are known) as prior: the information of the poses `A = J'J / s^2` and of the priors `K` has the covariance
    `(A + K)^-1`, with its mean off the estimate by the Gauss-Newton step.  `noise` (2,) is the standard deviation
    of positions [m] and rotations [rad]; what geometry leaves, it leaves of new poses, too.  Its square is multiplied
    by the ratio of the blocks if errors are `dependence`-correlated, and by `v / (v - 2)`, the variance of Student's
    distribution with the degrees of freedom `v` of the noise.
    """
    model, sample, x = objective.model, objective.sample, objective.x
    left = sample.width * len(sample) - objective.spent()
    if left <= 2.0:
        return Expected(float("inf"), nominal)
    used = np.unique(np.append(objective.free, np.flatnonzero(build > 0.0)))
    K = np.where(np.isin(used, objective.free), 0.0, 1.0 / np.maximum(build[used], _TINY) ** 2)
    if objective.prior is not None:
        K = np.maximum(K, 1.0 / objective.prior[used] ** 2)
    student = left / (left - 2.0)
    spread = student * (max(dependence.ratio, 1.0) if dependence.found else 1.0)
    per_row = np.sqrt(spread) * np.repeat(noise, 3)[: sample.width]
    residual = model.residual(sample, x)
    weight = loss_weights(np.linalg.norm(residual / objective.per_row, axis=1), objective.loss, objective.limit)
    root = np.sqrt(weight)[:, None] / per_row
    J = (model.jacobian(sample, x, used) * root[:, :, None]).reshape(-1, used.size)
    gradient = J.T @ (root * residual).ravel() + K * x[used]
    lengths = np.sqrt(np.sum(J**2, axis=0) + K)
    lengths[lengths == 0.0] = 1.0  # without data and without a bound
    covariance = la.pinvh((J.T @ J + np.diag(K)) / lengths / lengths[:, None], rtol=1e-13) / lengths / lengths[:, None]
    effect = _random_effects(objective, used, seed)
    squares = np.einsum("nip,pq,niq->n", effect, covariance, effect) + np.sum((effect @ covariance @ gradient) ** 2, 1)
    return Expected(float(np.sqrt(squares.mean() + 3.0 * student * noise[0] ** 2)), nominal)


def _random_effects(objective: Objective, used: IntArray, seed: int) -> FloatArray:
    """Return the derivatives (M, 3, p) of positions at random postures by the parameters `used` (p,).

    Without an instrument the base is free: what a rigid motion of all positions makes good is no error then.
    """
    model, sample, rng = objective.model, objective.sample, np.random.default_rng(seed)
    q = rng.uniform(*limits_of(model), (POSTURES, model.revolute.size))
    load = None if sample.load is None else sample.load[rng.integers(len(sample), size=POSTURES)]
    positions, _ = model.predict(q, objective.x, load)
    chain = used < model.first_offset
    effect = np.zeros((POSTURES, 3, used.size))
    at_random = replace(Sample.of(q, positions), load=load)
    effect[:, :, chain] = model.jacobian(at_random, objective.x, used[chain])
    if sample.point is None:
        return effect
    arms = positions - positions.mean(axis=0)
    turned = np.cross(np.eye(3), arms[:, None]).transpose(0, 2, 1)
    rows = np.concatenate((np.tile(np.eye(3), (POSTURES, 1, 1)), turned), axis=2).reshape(-1, 6)
    flat = effect.reshape(-1, used.size)
    return np.asarray((flat - rows @ la.lstsq(rows, flat)[0]).reshape(effect.shape))
