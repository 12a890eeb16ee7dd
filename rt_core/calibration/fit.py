"""Fit of a calibration: cost of the free parameters, and its minimum by an optimiser of `rt_core.optimise`.

The cost is the root of the mean loss of a pose, in units of the scale of its position: for least squares and scale 1
the root-mean-square distance [m] of KIN.  Levenberg-Marquardt damps by `mu diag(J'J)`, because lengths and angles
have no common scale, and ends when the Gauss-Newton step predicts no further decrease.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from rt_core.calibration._chain import Criterion, Elements, totals
from rt_core.calibration._robust import LOSSES, losses, tuning
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings, Method
from rt_core.optimise.problem import Problem
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import SearchOutcome, SearchProgress
from rt_core.optimise.settings import KIN, Budget, Name, Settings
from rt_core.robust_loss import Loss, loss_weights
from rt_core.types import FloatArray, IntArray

#: PSO of DYN and KIN has a decreasing inertia weight.
_OPTIMISER: dict[Method, Name] = {"lm": "lm", "pso": "pso_linear", "pso_lm": "pso_lm"}
_DAMPING = 1e-4
#: Predicted decrease at which the search ends, as a share of the loss, and rounding of a distance [m].
_PROMISE = 1e-12
_ROUNDING = 1e-15
#: Smallest pivot of a scaled matrix for which a Cholesky factorisation is accurate.
_WELL_CONDITIONED = 1e-4
#: Particles per parameter (KIN: 60 for 24).
PARTICLES = 2.5

ProgressCallback = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class Objective:
    """Loss of a sample as a function of the free parameters."""

    model: ErrorModel
    sample: Sample
    free: IntArray  # (p,) parameters to estimate
    x: FloatArray  # (P,) all errors; those not free are fixed at these values
    scale: FloatArray  # (2,) of positions [m] and rotations [rad]
    loss: Loss = "squares"
    prior: FloatArray | None = None  # (P,) prior standard deviation of each error; infinite without a prior

    @property
    def limit(self) -> float:
        """Standardised length above which the weight of a pose is reduced."""
        return tuning(self.loss, self.sample.width)

    def complete(self, free: FloatArray) -> FloatArray:
        """Return all errors (P,) from the free ones (p,)."""
        x = self.x.copy()
        x[self.free] = free
        return x

    @property
    def per_row(self) -> FloatArray:
        """Scale of each coordinate of a pose's residual (k,)."""
        return np.repeat(self.scale, 3)[: self.sample.width]

    def knowledge(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return standardised residuals (M,) of spacings and priors at `x`, and their derivatives (M, P)."""
        spacing, J = self.model.spacing_rows(x)
        std = np.array([known.std for known in self.model.spacings])
        if self.prior is None:
            return spacing / std, J / std[:, None]
        believed = np.flatnonzero(np.isfinite(self.prior))
        own = np.eye(self.model.size)[believed] / self.prior[believed, None]
        return np.append(spacing / std, x[believed] / self.prior[believed]), np.vstack((J / std[:, None], own))

    def total(self, free: FloatArray) -> float:
        """Return the sum of the losses at `free` (p,)."""
        x = self.complete(free)
        r = self.model.residual(self.sample, x) / self.per_row
        return float(losses(np.linalg.norm(r, axis=1), self.loss, self.limit).sum() + self._known(x))

    def costs(self, X: FloatArray) -> FloatArray:
        """Return the cost (m,) of points (m, p)."""
        m, s = self.model, self.sample
        if self.informed or any(part is not None for part in (s.point, s.load, s.head, s.station)):
            found = np.array([self.total(x) for x in X])
        else:
            found, errors = np.empty(len(X)), np.tile(self.x, (len(X), 1))
            errors[:, self.free] = X
            totals(
                Elements(m.code, m.place, m.column, m.value, m.turn), m.postures(s),
                Criterion(self.scale, LOSSES[self.loss], self.limit, s.width), errors, found,
            )  # fmt: skip
        return np.asarray(np.sqrt(found / len(self.sample)) * self.scale[0])

    def normal(self, free: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return `J'Wr` (p,), `J'WJ` (p, p) and the sum of the losses at `free` (p,)."""
        x = self.complete(free)
        r = self.model.residual(self.sample, x) / self.per_row
        u = np.linalg.norm(r, axis=1)
        root = np.sqrt(loss_weights(u, self.loss, self.limit))[:, None]
        J = self.model.jacobian(self.sample, x, self.free)
        J *= (root / self.per_row)[:, :, None]
        J = J.reshape(-1, self.free.size)
        total = float(losses(u, self.loss, self.limit).sum())
        gradient, normal = J.T @ (root * r).ravel(), J.T @ J
        if self.informed:
            r, J = self.knowledge(x)
            J = J[:, self.free]
            gradient, normal, total = gradient + J.T @ r, normal + J.T @ J, total + float(r @ r)
        return gradient, normal, total

    def spent(self) -> float:
        """Return the degrees of freedom used by the fit: fewer than free parameters if some have priors."""
        if self.prior is None:
            return float(self.free.size)
        J = self.knowledge(self.x)[1][:, self.free]
        normal = self.normal(self.x[self.free])[1]
        lengths = np.sqrt(np.diag(normal))
        scaled, known = normal / lengths / lengths[:, None], J / lengths
        return float(self.free.size - np.trace(la.lstsq(scaled, known.T @ known, cond=1e-15, check_finite=False)[0]))

    @property
    def informed(self) -> bool:
        """Whether there are priors or spacings."""
        return self.prior is not None or bool(self.model.spacings)

    def _known(self, x: FloatArray) -> float:
        return float(np.sum(self.knowledge(x)[0] ** 2)) if self.informed else 0.0


def gauss_newton_step(gradient: FloatArray, normal: FloatArray) -> FloatArray:
    """Return `-(J'WJ)^-1 J'Wr` (p,), solved with scaled columns; zero in directions without weight."""
    lengths = np.sqrt(np.diag(normal))
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    scaled = normal / lengths / lengths[:, None]
    factor, info = la.lapack.dpotrf(scaled)
    if info == 0 and np.diag(factor).min() > _WELL_CONDITIONED:
        return np.asarray(-la.lapack.dpotrs(factor, gradient / lengths)[0] / lengths)
    return np.asarray(-la.lstsq(scaled, gradient / lengths, cond=1e-15, check_finite=False)[0] / lengths)


def minimise(
    objective: Objective, width: FloatArray, settings: CalibrationSettings | None = None,
    on_progress: ProgressCallback | None = None,
) -> tuple[FloatArray, SearchOutcome]:  # fmt: skip
    """Minimise an objective in the box of half-widths `width` (P,) around zero error, starting from its `x`.

    Returns all errors (P,) and the outcome of the optimiser.  Only swarms may end before the minimum.
    """
    given = CalibrationSettings() if settings is None else settings
    tolerance = None if given.method == "lm" else given.tolerance
    if tolerance is not None:  # cost over the root-mean-square distance if positions and rotations are at their scale
        tolerance *= float(np.sqrt(max(objective.sample.width / 3.0, 1.0)))
    done = False

    def normal(free: FloatArray) -> tuple[FloatArray, FloatArray]:
        nonlocal done
        gradient, matrix, total = objective.normal(free)
        promise = -float(gradient @ gauss_newton_step(gradient, matrix))
        floor = len(objective.sample) * float(_ROUNDING / objective.scale.min()) ** 2
        done = promise <= _PROMISE * total + floor
        return gradient, matrix

    def after(progress: SearchProgress) -> bool:
        if on_progress is not None:
            on_progress(min(progress.iteration / max(progress.of, 1), 1.0), progress.stage)
        return not done

    box = width[objective.free]
    names = tuple(objective.model.names[k] for k in objective.free)
    problem = Problem(-box, box, objective.costs, normal, names)
    search = Settings(
        particles=given.particles or max(2, round(PARTICLES * box.size)), c1=KIN[0].c1, c2=KIN[0].c2,
        mu_start=_DAMPING, scaling="diagonal",
    )  # fmt: skip
    budget = Budget(given.swarm_iterations, given.lm_iterations, tolerance=tolerance)
    start = np.clip(objective.x[objective.free], -box, box)
    outcome = optimise(_OPTIMISER[given.method], problem, search, budget, seed=given.seed, x0=start, callback=after)
    return objective.complete(outcome.x), outcome
