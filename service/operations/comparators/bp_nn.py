"""Back-propagation network: two hidden layers of tanh, weight decay, trained by L-BFGS on all samples at once."""

import importlib
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.types import FloatArray
from service.operations.comparators._stopping import EarlyStopping

HIDDEN = (40, 40)
ITERATIONS = 300
_CHUNK = 20  # iterations between two evaluations of the held-out samples
_PATIENCE = 4  # evaluations without progress before training ends
_WEIGHT_DECAY = 1e-3


@dataclass(frozen=True)
class BackPropagationNetwork:
    """A trained `MLPRegressor` of scikit-learn."""

    regressor: Any

    def predict(self, x: FloatArray) -> FloatArray:
        """Return the outputs (N, m) at inputs (N, d)."""
        return np.asarray(self.regressor.predict(x)).reshape(x.shape[0], -1)


def train(
    x: FloatArray, y: FloatArray, x_held: FloatArray, y_held: FloatArray, rng: np.random.Generator,
    callback: Callable[[int, float], bool | None] | None,
) -> tuple[BackPropagationNetwork, float]:  # fmt: skip
    """Train on `x` (N, d), `y` (N, m); return the network with the least held-out error, and that error."""
    library = importlib.import_module("sklearn.neural_network")
    regressor = library.MLPRegressor(
        hidden_layer_sizes=HIDDEN, activation="tanh", solver="lbfgs", alpha=_WEIGHT_DECAY, max_iter=_CHUNK,
        warm_start=True, random_state=int(rng.integers(2**31)),
    )  # fmt: skip
    stopping = EarlyStopping[Any](_PATIENCE, callback)
    for done in range(_CHUNK, ITERATIONS + 1, _CHUNK):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each chunk ends before convergence, with a warning
            regressor.fit(x, y if y.shape[1] > 1 else y[:, 0])
        error = float(np.mean((BackPropagationNetwork(regressor).predict(x_held) - y_held) ** 2))
        if not stopping.look(done, error, lambda: deepcopy(regressor)) or regressor.n_iter_ < _CHUNK:
            break
    if stopping.best is None:
        raise FloatingPointError("the network's error is not a finite number after the first iterations")
    return BackPropagationNetwork(stopping.best), stopping.least
