"""Objectives whose minima are known, and one that counts what it is asked."""

import numpy as np

from rt_core.optimise.problem import Problem


def sphere(X: np.ndarray) -> np.ndarray:
    """Minimum 0 at 0.3 in every component."""
    return ((X - 0.3) ** 2).sum(axis=1)


def rastrigin(X: np.ndarray) -> np.ndarray:
    """Minimum 0 at 0.5 in every component, local minima around the other half-integers."""
    Z = X - 0.5
    return (Z**2 - 10.0 * np.cos(2.0 * np.pi * Z) + 10.0).sum(axis=1)


def box(costs, d: int, low: float = -4.0, high: float = 5.0) -> Problem:
    return Problem(np.full(d, low), np.full(d, high), costs)


class Decay:
    """Sum of two exponentials, sampled with noise: a nonlinear least-squares problem of four parameters."""

    truth = np.array([2.0, 0.7, 1.0, 4.0])
    lower = np.array([0.0, 0.05, 0.0, 2.0])
    upper = np.array([10.0, 1.9, 10.0, 20.0])
    t = np.linspace(0.0, 4.0, 60)

    def __init__(self) -> None:
        noise = 0.01 * np.random.default_rng(7).normal(size=self.t.size)
        self.y = self.model(self.truth) + noise

    def model(self, x: np.ndarray) -> np.ndarray:
        return x[0] * np.exp(-x[1] * self.t) + x[2] * np.exp(-x[3] * self.t)

    def residual(self, x: np.ndarray) -> np.ndarray:
        return self.model(x) - self.y

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        e, f = np.exp(-x[1] * self.t), np.exp(-x[3] * self.t)
        return np.stack((e, -x[0] * self.t * e, f, -x[2] * self.t * f), axis=1)

    def costs(self, X: np.ndarray) -> np.ndarray:
        return np.array([self.residual(x) @ self.residual(x) for x in X])

    def rms(self, X: np.ndarray) -> np.ndarray:
        return np.sqrt(self.costs(X) / self.t.size)

    def normal_equations(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        J = self.jacobian(x)
        return J.T @ self.residual(x), J.T @ J

    def problem(self, lower: np.ndarray = lower, upper: np.ndarray = upper) -> Problem:
        return Problem(lower, upper, self.costs, self.normal_equations)


class Counted:
    """A problem that counts the points and the linearisations it is asked for."""

    def __init__(self, problem: Problem) -> None:
        self.points: list[np.ndarray] = []
        self.linearised = 0
        self._inner = problem
        normal = None if problem.normal_equations is None else self._normal
        self.problem = Problem(problem.lower, problem.upper, self._costs, normal)

    def _costs(self, X: np.ndarray) -> np.ndarray:
        self.points.append(X.copy())
        return self._inner.costs(X)

    def _normal(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.linearised += 1
        return self._inner.normal_equations(x)

    @property
    def evaluations(self) -> int:
        return sum(len(X) for X in self.points) + self.linearised
