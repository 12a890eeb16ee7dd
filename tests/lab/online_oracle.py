"""The online estimator written down with NumPy, slowly and plainly, for signals on a uniform grid.

It shares with the product the design of the filters, the regressor and the settings, and nothing else: rows are
convolutions of whole signals, and each update solves the normal equations of a covariance it keeps explicitly.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.model.base import BaseParameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online.filters import filter_bank, low_pass


@dataclass
class Rows:
    """Finished rows of the regression: `Y` (K, n, p), `tau` (K, n), and the share of moving samples (K, n)."""

    Y: np.ndarray
    tau: np.ndarray
    share: np.ndarray


def convolved(x: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Every full window of `x` (N, ...) against `taps`, newest sample last."""
    count = x.shape[0] - taps.size + 1
    return np.stack([np.tensordot(taps, x[k : k + taps.size], axes=1) for k in range(count)])


def rows(
    model: RobotModel, base: BaseParameters, q: np.ndarray, tau: np.ndarray, cutoff: float, rate: float, factor: int
) -> Rows:
    """Rows of frames without velocity on the grid of `rate`."""
    bank = filter_bank(cutoff, rate)
    states = [convolved(q, taps) for taps in (bank.smooth, bank.first, bank.second)]
    torque = tau[bank.delay : q.shape[0] - bank.delay]
    moving = (np.abs(states[1]) >= model.standstill_velocity).astype(float)
    Y = regressor(model, base.layout, *states) * moving[:, :, None]
    taps = low_pass(cutoff, rate)
    return Rows(*(convolved(x, taps)[::factor] for x in (Y, torque * moving, moving)))


class Oracle:
    """Forgetting least squares in information form: `I` is the information about the error of `theta`."""

    SETTLE_S, SIGMA_S, TORQUE_S, BLOCK_S = 10.0, 30.0, 1.0, 1.0

    def __init__(self, model: RobotModel, base: BaseParameters, root: np.ndarray, settings, rate: float) -> None:  # type: ignore[no-untyped-def]
        n, p = model.n, len(base)
        self.base, self.settings = base, settings
        self.factor = max(1, round(rate / settings.update_hz))
        hz = self.hz = rate / self.factor
        self.longest = np.exp(-1.0 / (settings.memory_s * hz))
        taps = low_pass(settings.cutoff_hz, rate)
        correlation = np.correlate(taps, taps, "full")[taps.size - 1 :: self.factor]
        self.white = (2.0 * correlation.sum() - correlation[0]) / correlation[0]
        self.I, self.start = root.T @ root, np.diag(root)
        self.theta = np.zeros(p)
        self.touches = np.array([[self._touches(model, base, c, j) for j in range(n)] for c in range(p)])
        self.sum, self.count = np.zeros(n), np.zeros(n)
        self.inflation_sum, self.inflation_count = np.full(n, 5.0 * self.white), np.full(n, 5.0)
        self.sigma2, self.weight2 = np.zeros(n), np.zeros(n)
        self.innovation2, self.torque2, self.mean2 = np.zeros(n), np.zeros(n), np.zeros(n)
        self.moved, self.excess = np.zeros(n), np.zeros(n)
        self.lam = np.full(n, self.longest)
        self.block, self.block_count = np.zeros(n), np.zeros(n)
        self.power, self.floor, self.floor_age, self.updates = np.zeros(p), np.zeros((p, p)), 0, 0
        self.watched = np.zeros(p)
        self.changes = 0
        self.every, self.finished = max(1, round(hz / 20.0)), 0

    @staticmethod
    def _touches(model: RobotModel, base: BaseParameters, c: int, j: int) -> bool:
        rng = np.random.default_rng(9)
        states = rng.uniform(-1.0, 1.0, (3, 30, model.n))
        return bool(np.abs(regressor(model, base.layout, *states)[:, j, c]).max() > 0.0)

    def renew_information_floor(self) -> None:
        """Set the information floor: what is known now, up to a share of the noise."""
        moved = self.moved > 0
        inflation = np.mean(self.weight2[moved] / self.sigma2[moved]) if moved.any() else self.white
        unit = np.maximum(np.sqrt(self.power * inflation) / 0.3, self.start)
        size = np.sqrt(np.diag(self.I))  # the triangle, because the inverse itself is not exact enough
        triangle = np.linalg.cholesky(self.I / np.outer(size, size)).T * size
        vectors, spread, _ = np.linalg.svd(unit[:, None] * np.linalg.inv(triangle))
        self.floor = (vectors / np.maximum(spread, 1.0)) @ vectors.T * unit

    def _level(self, j: int) -> None:
        start = 0.01 * self.mean2[j] * np.exp(-5.0 * self.moved[j] / (self.SETTLE_S * self.hz))
        measured = self.sum[j] / self.count[j] if self.count[j] > 0 else 0.0
        self.sigma2[j] = max(measured + start, 1e-18)
        self.weight2[j] = self.sigma2[j] * max(self.inflation_sum[j] / self.inflation_count[j], self.white)

    def _forget(self, j: int, torque: float) -> bool:
        """Forgetting factor of joint `j`; True if its friction must have changed."""
        settings, hz = self.settings, self.hz
        self.moved[j] += 1
        for mean, seconds in ((self.mean2, self.SIGMA_S), (self.torque2, self.TORQUE_S)):
            mean[j] += max(1.0 - np.exp(-1.0 / (seconds * hz)), 1.0 / self.moved[j]) * (torque**2 - mean[j])
        if self.moved[j] < self.SETTLE_S * hz:
            self._level(j)
            self.innovation2[j] = self.sigma2[j]
        ratio = self.innovation2[j] / self.sigma2[j]
        gain = 1.0 - np.exp(-1.0 / (settings.innovation_s * hz))
        changed = False
        if ratio < settings.excess_off:
            self.excess[j] = 0
        elif ratio > settings.excess_on and (self.excess[j] == 0 or self.excess[j] * gain > 4.0):
            self.excess[j] = 1
            changed = True
        elif self.excess[j] > 0:
            self.excess[j] += 1
        self.lam[j] = self.longest
        if self.excess[j] > 0:
            error2 = max(self.innovation2[j] - self.sigma2[j], 0.0) / max(self.torque2[j], self.sigma2[j])
            frame = (1.0 - settings.alpha) + settings.alpha * np.exp(settings.beta * error2)
            self.lam[j] = min(self.longest, frame**self.factor)
        return changed

    def _free(self, j: int) -> None:
        covariance = np.linalg.inv(self.I)
        for c, name in enumerate(self.base.names):
            kind = name.rstrip("0123456789")
            if kind in ("fv", "fc", "fvm", "fcm", "off") and name.endswith(str(j + 1)) and self.power[c] > 0:
                share = 0.01 if kind == "off" else 1.0
                covariance[c, c] += share * self.innovation2[j] / (self.power[c] * self.weight2[j])
        self.I = np.linalg.inv(covariance)
        self.changes += 1

    def update(self, Y: np.ndarray, tau: np.ndarray, share: np.ndarray) -> None:
        self.finished += 1
        watch = self.finished % self.every == 0
        used = np.flatnonzero(share > 0.5)
        if used.size == 0:
            return
        innovation = {int(j): tau[j] - Y[j] @ self.theta for j in used}
        changed = [j for j in innovation if self._forget(j, tau[j])]
        roots = np.ones(self.theta.size)
        for c in range(roots.size):
            rates = [self.lam[j] if j in innovation else self.longest for j in np.flatnonzero(self.touches[c])]
            roots[c] = np.sqrt(max(rates))
        self.I = roots[:, None] * self.I * roots
        for j in changed:
            self._free(j)
        every = max(1, round(0.05 * self.settings.memory_s * self.hz / roots.size))
        if self.floor_age % every == 0:  # what is left of it at the end of the round is what the round takes
            pull = self.floor[self.floor_age // every]
            left = self.longest ** (every * roots.size - 1 - self.floor_age)
            self.I += (1.0 - self.longest ** (every * roots.size)) / left * np.outer(pull, pull)
        gradient = np.zeros(roots.size)
        squares = np.zeros(roots.size)
        for j, e in innovation.items():
            self.I += np.outer(Y[j], Y[j]) / self.weight2[j]
            gradient += Y[j] * e / self.weight2[j]
            squares += Y[j] ** 2 / self.weight2[j]
        if watch:
            seen = self.touches[:, used].any(axis=1)
            self.watched += seen
            shortest = 1.0 - np.exp(-self.every / (self.settings.memory_s * self.hz))
            gain = np.maximum(shortest, 1.0 / np.maximum(self.watched, 1.0))
            self.power += np.where(seen, gain * (squares - self.power), 0.0)
        step = np.linalg.solve(self.I, gradient)
        for j, e in innovation.items():
            self._noise(j, e, e - Y[j] @ step, share[j])
        self.theta = self.theta + step
        self.updates += 1
        self.floor_age += 1
        if self.floor_age == every * roots.size:
            self.floor_age = 0
            self.renew_information_floor()

    def _noise(self, j: int, e: float, residual: float, share: float) -> None:
        settled = self.moved[j] >= self.SETTLE_S * self.hz
        square = max(e * residual, 0.0)
        free = min(max(residual / e, 0.0), 1.0) if e else 1.0
        counted = min(square, 9.0 * self.sigma2[j] * free) if settled else square
        fade = 1.0 - np.exp(-1.0 / (self.SIGMA_S * self.hz))
        self.sum[j] += counted - fade * self.sum[j]
        self.count[j] += free - fade * self.count[j]
        if abs(share - 1.0) < 0.01:
            gain = 1.0 - np.exp(-1.0 / (self.settings.innovation_s * self.hz))
            self.innovation2[j] += gain * (min(square, 100.0 * self.sigma2[j]) - self.innovation2[j])
        self.block[j] += np.sign(e) * np.sqrt(square)
        self.block_count[j] += 1
        if self.block_count[j] >= max(2, round(self.BLOCK_S * self.hz)):
            if settled:
                long_run = self.block[j] ** 2 / self.block_count[j] / self.sigma2[j]
                self.inflation_sum[j] += min(long_run, 10.0 * self.white) - self.inflation_sum[j] / 100.0
                self.inflation_count[j] += 1.0 - self.inflation_count[j] / 100.0
            self.block[j] = self.block_count[j] = 0.0
            self._level(j)
