"""The information floor: forgetting keeps it, and it adds nothing to what is known."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online._state import padded
from rt_core.online.rls.information_floor import renew_information_floor, row_inflation
from tests.lab.arms.simulated import random_arm

RATE = 200.0
MEMORY_S = 5.0
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=MEMORY_S)
MODEL = random_arm(3, 21, prismatic=0.0)
BASE = OnlineEstimator(MODEL, SETTINGS, RATE).base


@pytest.mark.parametrize("seed", range(2))
def test_the_floor_is_at_most_what_is_known_and_at_most_the_limit(seed: int) -> None:
    """`L'L` below both `R'R` and the limit, as matrices; all of either where the other is far above it."""
    rng = np.random.default_rng(seed)
    estimator = OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE)
    state, p = estimator._state, len(BASE)
    spread = 10.0 ** rng.uniform(-3.0, 3.0, p)
    R = np.triu(rng.standard_normal((p, p))) * spread[:, None]
    R[np.diag_indices(p)] += np.sign(np.diag(R)) * 1e-3
    state["R"][:] = np.zeros((p, padded(p)))
    state["R"][:, :p] = R
    state["power"][:] = 10.0 ** rng.uniform(-4.0, 4.0, p)
    renew_information_floor(state, estimator._start)
    unit = np.maximum(np.sqrt(state["power"] * row_inflation(estimator._state)) / 0.3, estimator._start)
    floor = state["leak"] / unit
    held, known = floor.T @ floor, (R / unit).T @ (R / unit)
    eps = 1e-12 * np.linalg.norm(known, 2)
    assert np.linalg.eigvalsh(known - held).min() >= -eps
    assert np.linalg.eigvalsh(np.eye(p) - held).min() >= -1e-12
    assert np.linalg.norm(held) > 0.5
    values, vectors = np.linalg.eigh(known)
    expected = np.minimum(values, 1.0)
    assert np.abs(((held @ vectors) * vectors).sum(axis=0) - expected).max() <= eps
