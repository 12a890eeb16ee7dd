"""Networks that learn torque from states, for comparison only; identification never uses them.

`bp_nn` is a back-propagation network, `kan` a Kolmogorov-Arnold network, as in Jing et al. 2025 (Actuators 14, 497).
Both learn `[q, dq, ddq] -> tau` from samples alone: no model, no parameters, no standard deviations.

Start with `fit`, which standardises inputs and outputs and holds out a fifth of the samples, drawn by the seed; the
state of the network that predicts these best is the result.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from rt_core.types import FloatArray
from service.operations.comparators import bp_nn, kan

__all__ = [
    "NAMES", "Callback", "ComparatorError", "ComparatorUnavailableError", "Network", "Predictor", "available", "bp_nn",
    "fit", "kan",
]  # fmt: skip

NAMES = ("bp_nn", "kan")

#: Takes the iterations done and the mean squared error on held-out samples, in shares of the torque's variance.
#: Returning False ends the training; the best network so far is kept.
Callback: TypeAlias = Callable[[int, float], bool | None]

_HELD_OUT = 5  # one sample in so many
_MIN_SAMPLES = 50
_PACKAGES = {"bp_nn": "sklearn"}  # besides the packages that are always installed


class ComparatorError(ValueError):
    """Samples that a network cannot use, or an unknown comparator."""


class ComparatorUnavailableError(ComparatorError, ImportError):
    """The optional package that a comparator needs is not installed."""


class Network(Protocol):
    """A trained network on standardised samples."""

    def predict(self, x: FloatArray) -> FloatArray:
        """Return the outputs (N, m) at inputs (N, d)."""


@dataclass(frozen=True)
class Predictor:
    """A trained comparator; `error` is mean squared on the held-out samples, in shares of the torque's variance."""

    name: str
    seed: int
    error: float
    network: Network
    x_mean: FloatArray
    x_scale: FloatArray
    tau_mean: FloatArray
    tau_scale: FloatArray

    def predict(self, x: FloatArray) -> FloatArray:
        """Return the torque (N, n) [N*m or N] at states `x` (N, 3n), columns `q, dq, ddq`.

        Raises `ComparatorError` if the shape is wrong or a value is not finite.
        """
        x = _checked(x, "x")
        if x.shape[1] != self.x_mean.size:
            raise ComparatorError(f"x has {x.shape[1]} columns, {self.name} was trained on {self.x_mean.size}")
        return np.asarray(self.tau_mean + self.tau_scale * self.network.predict((x - self.x_mean) / self.x_scale))


def available(name: str) -> str | None:
    """Return why comparator `name` cannot be used and the remedy, or None if it can; `ComparatorError` if unknown."""
    if name not in NAMES:
        raise ComparatorError(f"no comparator {name!r}; there are: {', '.join(NAMES)}")
    package = _PACKAGES.get(name)
    if package is None:
        return None
    try:
        found = importlib.util.find_spec(package) is not None
    except ValueError:  # a module of that name without a specification
        found = False
    return None if found else f"comparator {name} needs {package}: pip install 'thetad[comparators]'"


def fit(name: str, x: FloatArray, tau: FloatArray, seed: int, callback: Callback | None = None) -> Predictor:
    """Train comparator `name`: the same seed and samples give the same predictor on one machine.

    `x` (N, 3n) has the states, columns `q, dq, ddq`; `tau` (N, n) is the torque [N*m or N]. The seed draws the initial
    weights and the held-out samples.

    Raises `ComparatorUnavailableError` if an optional package is missing; `ComparatorError` if the name is unknown,
    shapes disagree, a value is not finite, there are fewer than 50 samples, or a joint's torque is constant.
    """
    reason = available(name)
    if reason is not None:
        raise ComparatorUnavailableError(reason)
    x, tau = _checked(x, "x"), _checked(tau, "tau")
    if x.shape[0] != tau.shape[0]:
        raise ComparatorError(f"x has {x.shape[0]} samples, tau has {tau.shape[0]}")
    if x.shape[1] != 3 * tau.shape[1]:
        raise ComparatorError(
            f"x has {x.shape[1]} columns for {tau.shape[1]} joints: it needs q, dq and ddq of each, {3 * tau.shape[1]}"
        )
    if x.shape[0] < _MIN_SAMPLES:
        raise ComparatorError(f"only {x.shape[0]} samples: a network needs at least {_MIN_SAMPLES}")
    flat = np.ptp(tau, axis=0) <= 1e-9 * np.maximum(np.abs(tau).max(axis=0), 1e-12)
    if flat.any():
        raise ComparatorError(f"the torque of joint {int(np.argmax(flat)) + 1} is constant: there is nothing to learn")
    rng = np.random.default_rng(seed)
    order = rng.permutation(x.shape[0])
    held, used = order[: x.shape[0] // _HELD_OUT], order[x.shape[0] // _HELD_OUT :]
    x_mean, x_scale = x[used].mean(axis=0), _scale(x[used])
    tau_mean, tau_scale = tau[used].mean(axis=0), _scale(tau[used])
    inputs, outputs = (x - x_mean) / x_scale, (tau - tau_mean) / tau_scale
    train = bp_nn.train if name == "bp_nn" else kan.train
    network, error = train(inputs[used], outputs[used], inputs[held], outputs[held], rng, callback)
    return Predictor(name, seed, error, network, x_mean, x_scale, tau_mean, tau_scale)


def _checked(values: FloatArray, what: str) -> FloatArray:
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ComparatorError(f"{what} must be (samples, columns), not of shape {values.shape}")
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ComparatorError(f"{what}: not a finite number at sample {row}, column {column}; leave such samples out")
    return values


def _scale(values: FloatArray) -> FloatArray:
    """Return the standard deviation of each column (d,), one where it is constant."""
    spread = values.std(axis=0)
    return np.asarray(np.where(spread > 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300), spread, 1.0))
