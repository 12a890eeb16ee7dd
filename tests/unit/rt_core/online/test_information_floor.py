"""The information floor: forgetting keeps it, and it adds nothing to what is known."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online._state import padded
from rt_core.online.rls.information_floor import renew_information_floor, row_inflation
from tests.lab.arms.simulated import random_arm

RATE = 200.0
MEMORY_S = 5.0
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=MEMORY_S)
MODEL = random_arm(3, 21, prismatic=0.0)
BASE = OnlineEstimator(MODEL, SETTINGS, RATE).base


def motion(seconds: float, stop_s: float) -> tuple[np.ndarray, ...]:
    """Sums of sines; the second joint comes to rest within a second from `stop_s` on."""
    t = np.arange(round(seconds * RATE)) / RATE
    late = np.clip(t - stop_s, 0.0, 1.0)
    own = np.minimum(t, stop_s) + late - 0.5 * late**2  # the second joint's own time, its rate and the change of that
    rate = 1.0 - late
    slowing = np.where((late > 0.0) & (late < 1.0), -1.0, 0.0)
    w = 2.0 * np.pi * np.array([[0.31, 0.83], [0.43, 0.67], [0.37, 0.71]])
    a = np.array([[0.7, 0.15], [0.6, 0.2], [0.6, 0.2]])
    q, dq, ddq = (np.empty((t.size, 3)) for _ in range(3))
    for j in range(3):
        s, ds, dds = (own, rate, slowing) if j == 1 else (t, np.ones_like(t), np.zeros_like(t))
        phase = w[j] * s[:, None] + j
        slope = (a[j] * w[j] * np.cos(phase)).sum(axis=1)
        q[:, j] = (a[j] * np.sin(phase)).sum(axis=1)
        dq[:, j] = slope * ds
        ddq[:, j] = slope * dds - (a[j] * w[j] ** 2 * np.sin(phase)).sum(axis=1) * ds**2
    return t, q, dq, ddq


def test_what_is_known_of_a_joint_at_rest_stays_known_for_twenty_memories() -> None:
    stop_s = 20.0
    t, q, dq, ddq = motion(stop_s + 20.0 * MEMORY_S + 2.0, stop_s)
    truth = BASE.theta(standard_parameters(MODEL, BASE.standard))
    noise = 0.05 * np.random.default_rng(0).standard_normal(q.shape)
    tau = regressor(MODEL, BASE.layout, q, dq, ddq) @ truth + noise
    estimator = OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE)
    own = [k for k, name in enumerate(BASE.names) if name in ("fv2", "fc2")]
    assert len(own) == 2
    at_stop = level = estimator.theta
    for k, time_s in enumerate(t):
        estimator.step(round(time_s * 1e9), k, q[k], tau[k])
        if k == round((stop_s + 1.0) * RATE):
            at_stop = estimator.theta
            # what moves the torque by 0.3 of the noise
            level = 0.3 / np.sqrt(estimator._state["power"] * row_inflation(estimator._state))
            assert (estimator.report().std[own] < level[own]).all()
    report = estimator.report()
    # within a round the rows of the floor are slightly ahead of or behind what they replace
    assert (report.std[own] <= 1.1 * level[own]).all()
    assert (np.abs(report.theta[own] - at_stop[own]) <= level[own]).all()
    assert not report.excited[own].any()


@pytest.mark.parametrize("seed", range(6))
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
