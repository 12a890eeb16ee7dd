"""M-estimation with one weight per pose, for poses that do not fit.

The weight depends on the standardised length `u` of a pose's residual and is one below a limit `c` of 95 % efficiency
for `k` normal coordinates, `(E[psi'/k + (1 - 1/k) psi/u])^2 / (E[psi^2]/k) = 0.95` (Maronna et al. 2019, section 6.4).
"""

from functools import lru_cache

import numpy as np
import scipy

from rt_core.calibration._chain import BISQUARE, HUBER, SQUARES
from rt_core.robust_loss import Loss, loss_slopes, loss_weights
from rt_core.types import FloatArray

LOSSES: dict[str, int] = {"squares": SQUARES, "huber": HUBER, "bisquare": BISQUARE}
EFFICIENCY = 0.95


def losses(u: FloatArray, loss: Loss, limit: float) -> FloatArray:
    """Return `rho(u)` of standardised lengths `u` (N,), `u^2` near zero."""
    if loss == "squares":
        return u * u
    if loss == "huber":
        return np.where(u <= limit, u * u, 2.0 * limit * u - limit * limit)
    return limit * limit / 3.0 * (1.0 - np.maximum(1.0 - (u / limit) ** 2, 0.0) ** 3)


def efficiency(loss: Loss, limit: float, width: int) -> float:
    """Return the efficiency at the normal distribution in `width` coordinates, by quadrature over chi."""
    u = np.linspace(0.0, 12.0, 4001)
    density = scipy.stats.chi.pdf(u, width)
    w = loss_weights(u, loss, limit)
    slope = np.trapezoid((loss_slopes(u, loss, limit) / width + (1.0 - 1.0 / width) * w) * density, u)
    power = np.trapezoid((w * u) ** 2 * density, u) / width
    return float(slope**2 / power)


@lru_cache
def tuning(loss: Loss, width: int) -> float:
    """Return the limit `c` of a loss for residuals of `width` coordinates."""
    if loss == "squares":
        return float("inf")
    lower, upper = (0.1, 8.0) if loss == "huber" else (2.0, 12.0)
    return float(scipy.optimize.brentq(lambda c: efficiency(loss, c, width) - EFFICIENCY, lower, upper, xtol=1e-6))


def scale(lengths: FloatArray, width: int, loss: Loss, spent: float = 0.0) -> float:
    """Estimate the standard deviation of a coordinate from lengths (N,) of residuals of `width` coordinates.

    Root mean square for "squares", else by the median; a fit used the share `spent` of the degrees of freedom.
    """
    if loss == "squares":
        found = float(np.sqrt(np.mean(lengths**2) / width))
    else:
        found = float(np.median(lengths) / scipy.stats.chi.median(width))
    return found / float(np.sqrt(max(1.0 - spent, 0.1)))


def scale_efficiency(width: int, loss: Loss) -> float:
    """Return the efficiency of `scale` for normal data: 1, or that of the median of chi."""
    if loss == "squares":
        return 1.0
    median = float(scipy.stats.chi.median(width))
    return 2.0 * float(scipy.stats.chi.pdf(median, width) * median) ** 2 / width


def mean_slope(u: FloatArray, loss: Loss, limit: float, width: int) -> float:
    """Return the mean derivative of `psi` in a coordinate at standardised lengths `u` (N,), at least 0.1."""
    w = loss_weights(u, loss, limit)
    return max(float(np.mean(loss_slopes(u, loss, limit) / width + (1.0 - 1.0 / width) * w)), 0.1)


def variance_factor(u: FloatArray, loss: Loss, limit: float, width: int, parameters: float) -> float:
    """Return the factor on `(J'J)^-1`, of standardised rows, for the covariance (Huber 1981, section 7.6).

    `u` (N,) are standardised lengths, `parameters` the number estimated.
    """
    w = loss_weights(u, loss, limit)
    rows = u.size * width
    return float(np.sum((w * u) ** 2)) / max(rows - parameters, 1) / mean_slope(u, loss, limit, width) ** 2
