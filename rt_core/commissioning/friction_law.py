"""Fit of a friction law to the points of a sweep.

The terms are those of `rt_core.model.friction`: Coulomb and viscous friction, or the Stribeck law without its quadratic
and cubic terms,

    f(v) = fc + fv*v,     f(v) = fc + (fb - fc)*exp(-(v/vb)^2) + kv1*v.

The second is taken only if the points support it: it must fit significantly better (F test), friction must fall with
speed by several standard deviations, and the velocity constant must lie within the observed speeds.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from rt_core.commissioning.findings import CommissioningError
from rt_core.linear_algebra import lstsq, svd
from rt_core.model.friction import LAW_BREAKAWAY, LAW_COULOMB, LAW_VISCOUS, friction_effect
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray

Law = Literal["coulomb", "coulomb_viscous", "stribeck"]

#: Terms of each law: symbol and column of `friction_effect`.
_TERMS: dict[Law, tuple[tuple[str, int], ...]] = {
    "coulomb": (("fc", LAW_COULOMB),),
    "coulomb_viscous": (("fc", LAW_COULOMB), ("fv", LAW_VISCOUS)),
    "stribeck": (("fc", LAW_COULOMB), ("fb", LAW_BREAKAWAY), ("kv1", LAW_VISCOUS)),
}
_CHANCE = 0.01
_SURE = 3.0
#: Least number of points for the Stribeck law: one more than it has parameters.
_MIN_STRIBECK = 5
#: Least standard deviation, as a share of the largest friction.
_FLOOR = 1e-4
_GRID = 60
#: Singular values below this share of the largest count as zero.
_RANK = 1e-8
_STEP = 1e-4


@dataclass(frozen=True)
class FrictionFit:
    """A law fitted to the points of one joint."""

    law: Law
    names: tuple[str, ...]  # parameters: `fc`, `fv`; `fc`, `fb`, `kv1`, `vb` of the Stribeck law
    values: FloatArray  # (p,)
    covariance: FloatArray  # (p, p), widened if the points scatter more than their standard deviations
    scatter: float  # the factor on the standard deviations; 1 if they are not widened
    free: int = 0  # degrees of freedom of the scatter

    @property
    def quantile_95(self) -> float:
        """Half a 95 % interval in standard deviations; Student's if these are widened by the scatter."""
        return float(scipy.stats.t.ppf(0.975, self.free) if self.scatter > 1.0 else NORMAL_QUANTILE_95)

    @property
    def std(self) -> FloatArray:
        """(p,) standard deviations."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def at(self, speed: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return friction and its standard deviation, (K,) each, at speeds (K,) above 0."""
        J = _jacobian(self.law, speed, self.values)
        value = _columns(self.law, speed, _constant(self.law, self.values)) @ self.values[: len(_TERMS[self.law])]
        return value, np.sqrt(np.maximum(np.einsum("kp,pq,kq->k", J, self.covariance, J), 0.0))


def fit_friction(speed: FloatArray, friction: FloatArray, std: FloatArray) -> FrictionFit:
    """Fit the friction of one joint at speeds (K,) above 0, with standard deviations `std` (K,).

    Raises `CommissioningError` if there is no point, a speed is not above 0, or the fit fails.
    """
    speed, friction, std = (np.asarray(x, dtype=np.float64) for x in (speed, friction, std))
    good = np.isfinite(speed) & np.isfinite(friction) & np.isfinite(std)
    speed, friction, std = speed[good], friction[good], std[good]
    if speed.size == 0 or not (speed > 0.0).all():
        raise CommissioningError("friction needs points at speeds above 0")
    weight = 1.0 / np.maximum(std, _FLOOR * max(float(np.abs(friction).max()), 1e-12))
    try:
        return _fit(speed, friction, weight)
    except np.linalg.LinAlgError as error:
        raise CommissioningError(f"no law can be laid through the points of friction: {error}") from error


def _fit(speed: FloatArray, friction: FloatArray, weight: FloatArray) -> FrictionFit:
    """Choose between the laws."""
    plain: Law = "coulomb_viscous" if np.unique(speed).size > 1 else "coulomb"
    fit, cost = _linear(plain, speed, friction, weight, 0.0)
    if speed.size < _MIN_STRIBECK:
        return fit
    curved, curved_cost = _stribeck(speed, friction, weight)
    free = speed.size - 4
    better = (cost - curved_cost) / 2.0 / max(curved_cost / free, 1e-300)
    fc, fb, vb = curved.values[0], curved.values[1], curved.values[3]
    drop = np.array([-1.0, 1.0])
    spread = float(np.sqrt(drop @ curved.covariance[:2, :2] @ drop))
    supported = (
        scipy.stats.f.sf(better, 2, free) < _CHANCE
        and fb - fc > _SURE * spread
        and speed.min() < vb < 0.5 * speed.max()
        and curved.std[3] < vb
    )
    return curved if supported else fit


def _columns(law: Law, speed: FloatArray, constant: float) -> FloatArray:
    """Return the friction (K, c) per unit of each term."""
    codes = [code for _, code in _TERMS[law]]
    return np.array(
        [[friction_effect(code, (constant, 2.0, 0.0), 0.0, float(v), 0.0) for code in codes] for v in speed]
    )


def _constant(law: Law, values: FloatArray) -> float:
    return float(values[3]) if law == "stribeck" else 0.0


def _jacobian(law: Law, speed: FloatArray, values: FloatArray) -> FloatArray:
    """Return the derivatives (K, p) of friction by the parameters."""
    constant = _constant(law, values)
    J = _columns(law, speed, constant)
    if law != "stribeck":
        return J
    above, below = (_columns(law, speed, constant * np.exp(sign * _STEP)) for sign in (1.0, -1.0))
    by_constant = (above - below) @ values[:3] / (2.0 * _STEP * constant)
    return np.column_stack((J, by_constant))


def _linear(
    law: Law, speed: FloatArray, friction: FloatArray, weight: FloatArray, constant: float
) -> tuple[FrictionFit, float]:
    """Fit by weighted least squares with a known constant; also return the sum of weighted squares."""
    A = _columns(law, speed, constant) * weight[:, None]
    values = lstsq(A, friction * weight)
    left = friction * weight - A @ values
    cost = float(left @ left)
    names = tuple(name for name, _ in _TERMS[law])
    covariance, scatter = _covariance(A, cost, speed.size)
    return FrictionFit(law, names, values, covariance, scatter, speed.size - len(values)), cost


def _stribeck(speed: FloatArray, friction: FloatArray, weight: FloatArray) -> tuple[FrictionFit, float]:
    """Fit the Stribeck law: search its constant, solve the linear rest; also return the sum of weighted squares."""

    def cost(log_vb: float) -> float:
        return _linear("stribeck", speed, friction, weight, float(np.exp(log_vb)))[1]

    grid = np.linspace(np.log(0.3 * speed.min()), np.log(speed.max()), _GRID)
    best = int(np.argmin([cost(v) for v in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    found = scipy.optimize.minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    vb = float(np.exp(found.x))
    linear, least = _linear("stribeck", speed, friction, weight, vb)
    values = np.append(linear.values, vb)
    covariance, scatter = _covariance(_jacobian("stribeck", speed, values) * weight[:, None], least, speed.size)
    return FrictionFit("stribeck", (*linear.names, "vb"), values, covariance, scatter, speed.size - 4), least


def _covariance(J: FloatArray, cost: float, count: int) -> tuple[FloatArray, float]:
    """Return the covariance for weighted derivatives `J`, and the factor by which the points scatter."""
    free = count - J.shape[1]
    scatter = max(1.0, float(np.sqrt(cost / free))) if free > 0 else 1.0
    _, s, Vt = svd(J)
    kept = s > _RANK * s[0]  # undetermined directions get no variance
    V = Vt[kept].T / s[kept]
    return np.asarray(V @ V.T * scatter**2, dtype=np.float64), scatter
