"""Limits for parameters and residuals from the allowed rate of false alarms.

A false alarm of a parameter is a run of looks beyond the limit without a change.  The error of an estimate that forgets
over a memory is an Ornstein-Uhlenbeck process; between two looks it follows

    x' = a*x + sqrt(1 - a^2)*e,    a = exp(-look/memory),    e standard normal

The mean number of looks `t` until the first such run, from a value below the limit, solves a linear integral equation
(the mean run length of Brook and Evans 1972, on Gauss-Legendre nodes as in Crowder 1987, Technometrics 29, 401-407):

    t_below = 1 + A_bb t_below + A_ba S (1 + A_ab t_below),    S = I + A_aa + ... + A_aa^(K-2)

for a run of K looks, with A the density of the step among the nodes below (b) and above (a).
"""

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from rt_core.types import FloatArray

_MIN = -4.5  # lowest value of the process that is considered
_ABOVE = 2.5  # range above the limit: excesses are of the order of 1/limit
#: Smallest time between looks, in correlation times, that is computed; with a longer memory runs are rarer.
_MIN_STEP = 1.0 / 1500.0
_MIN_LIMIT = 1.5
_SPACING = 1.2  # of nodes, in standard deviations of a step


def _nodes(begin: float, end: float, spacing: float) -> tuple[FloatArray, FloatArray]:
    """Return Gauss-Legendre nodes and weights with at most this spacing in the middle."""
    x, w = np.polynomial.legendre.leggauss(max(16, int(np.ceil(0.5 * np.pi * (end - begin) / spacing))))
    return begin + 0.5 * (end - begin) * (x + 1.0), 0.5 * (end - begin) * w


def looks_until_a_run(level: float, step: float, looks: int) -> float:
    """Return the mean number of looks, `step` correlation times apart, until `looks` successive ones exceed `level`."""
    a = float(np.exp(-step))
    std = float(np.sqrt(1.0 - a * a))
    below, weights_below = _nodes(_MIN, level, _SPACING * std)
    above, weights_above = _nodes(level, level + _ABOVE, _SPACING * std)

    def move(origin: FloatArray, to: FloatArray, weights: FloatArray) -> FloatArray:
        z = (to[None, :] - a * origin[:, None]) / std
        return np.asarray(np.exp(-0.5 * z * z) / (std * np.sqrt(2.0 * np.pi)) * weights)

    up, down = move(below, above, weights_above), move(above, below, weights_below)
    stay, more = move(below, below, weights_below), move(above, above, weights_above)
    # probability lost below the lowest value, or by rounding, stays where it was
    stay[np.diag_indices_from(stay)] += 1.0 - stay.sum(axis=1) - up.sum(axis=1)
    visits = np.column_stack((np.ones(above.size), down))
    total = np.zeros_like(visits)
    for _ in range(looks - 1):
        total = visits + more @ total
    via = up @ total
    t = np.linalg.solve(np.eye(below.size) - stay - via[:, 1:], 1.0 + via[:, 0])
    share = weights_below * np.exp(-0.5 * below**2)
    return float(share @ t / share.sum())


@lru_cache
def run_limit(rate_hz: float, memory_s: float, count: int, look_s: float, looks: int) -> float:
    """Return the level that `count` processes exceed, together, at `looks` successive looks `rate_hz` times a second.

    The processes are standard normal with correlation time `memory_s`, the looks `look_s` apart, both sides counted.
    The level is at least 1.5; runs are rarer if the memory is longer than 1500 looks.
    """
    step = max(look_s / memory_s, _MIN_STEP)
    goal = np.log(2.0 * count / (rate_hz * look_s))

    def excess(u: float) -> float:
        return float(np.log(looks_until_a_run(u, step, looks)) - goal)

    # in steps, because far above the limit the equation is singular to rounding
    highest = _MIN_LIMIT
    while excess(highest) < 0.0:
        highest += 0.25
    return highest if highest == _MIN_LIMIT else float(brentq(excess, highest - 0.25, highest, xtol=1e-4))


def cusum_limit(spread: float, excess: float, blocks: float) -> float:
    """Return the height that a CUSUM of gamma-distributed blocks less `1 + excess` reaches at most once in `blocks`.

    The blocks have mean 1 and variance `spread`; `E exp(r*(x - 1 - excess)) = 1` defines the exponent r.
    """

    def balance(y: float) -> float:
        return float(-np.log1p(-y) - y * (1.0 + excess))

    y = brentq(balance, 1e-6, 1.0 - 1e-12)
    return float(np.log(blocks) * spread / y)
