"""Rows of simulated arms, priors that are off, and what a fit needs, for the tests of the consistent estimators."""

from dataclasses import dataclass, replace

import numpy as np

from rt_core.identification.least_squares import JointTriangle, Solution, compress, solve
from rt_core.identification.physical.fit import ConsistentFit, fit_consistent, noise_inflation
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.inertia import from_pseudo_inertia, pseudo_inertia
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings


@dataclass(frozen=True)
class Fitted:
    """Least squares on rows, and what the consistent estimators take over from it."""

    model: RobotModel
    base: BaseParameters
    triangles: tuple[JointTriangle, ...]
    solution: Solution
    covariance: FloatArray
    inflation: float

    def consistent(self, **options: object) -> ConsistentFit:
        return fit_consistent(
            self.base, self.model, self.triangles, self.solution.sigma, inflation=self.inflation, **options
        )  # type: ignore[arg-type]


def fitted(model: RobotModel, base: BaseParameters, rows: Rows) -> Fitted:
    triangles = compress(rows.Y, rows.tau, rows.use)
    solution = solve(triangles, len(base), "wls")
    covariance = estimate_covariance(rows, solution).covariance
    return Fitted(model, base, triangles, solution, covariance, noise_inflation(triangles, solution, covariance))


def simulated(model: RobotModel, seed: int, seconds: float = 15.0, **motion: object) -> SimulatedData:
    settings = MotionSettings(seed=seed, **motion)  # type: ignore[arg-type]
    return SimulatedArm(model, SimSettings(rate_hz=250.0, seed=seed), settings, seed=seed).simulate(seconds)


def fit_simulated(truth: RobotModel, seed: int, base: BaseParameters | None = None, **motion: object) -> Fitted:
    base = base_parameters(truth) if base is None else base
    data = simulated(truth, seed, **motion)
    settings = SignalSettings(10.0, min_velocity=truth.standstill_velocity)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], settings)
    return fitted(truth, base, build_rows(truth, base, signals, settings))


def perturbed(model: RobotModel, seed: int, size: float = 0.25) -> RobotModel:
    """The same arm with links that are off by about `size`, still real bodies, and unknown joint effects."""
    rng = np.random.default_rng(seed)
    links = []
    for phi in model.inertial:
        L = np.linalg.cholesky(pseudo_inertia(phi))
        noise = rng.standard_normal((4, 4))
        values, vectors = np.linalg.eigh(0.5 * size * (noise + noise.T))
        links.append(from_pseudo_inertia(L @ (vectors * np.exp(values)) @ vectors.T @ L.T))
    return replace(model, inertial=np.array(links), dynamics=None)


def is_consistent(fit: ConsistentFit) -> bool:
    """Every link's pseudo-inertia is positive definite, found anew from the parameters."""
    return all(np.linalg.eigvalsh(pseudo_inertia(link))[0] > 0.0 for link in fit.inertial)


_LOWER = np.tril_indices(4)


def log_cholesky(links: FloatArray) -> FloatArray:
    """Return the Cholesky factors of the links' (n, 10) pseudo-inertias, diagonals as logarithms, (10 n,)."""
    factors = [np.linalg.cholesky(pseudo_inertia(link)) for link in links]
    for L in factors:
        np.fill_diagonal(L, np.log(np.diag(L)))
    return np.concatenate([L[_LOWER] for L in factors])


def links_of(x: FloatArray) -> FloatArray:
    """Return the links (n, 10) of what `log_cholesky` gives."""
    links = []
    for entries in x.reshape(-1, 10):
        L = np.zeros((4, 4))
        L[_LOWER] = entries
        np.fill_diagonal(L, np.exp(np.diag(L)))
        links.append(from_pseudo_inertia(L @ L.T))
    return np.array(links)
