"""The square-root kernels against NumPy, and the information floor: forgetting keeps it, and it adds nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online._state import padded
from rt_core.online.rls.information_floor import renew_information_floor, row_inflation
from rt_core.online.rls.square_root import add_variance, back_substitute, qr_update, scale_columns
from tests.lab.arms.simulated import random_arm


def staircase(rng: np.random.Generator, rows: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with their right-hand side, row `r` zero before column `first[r]`."""
    first = np.sort(rng.integers(0, p, rows))
    D = np.zeros((rows, padded(p)))
    D[:, : p + 1] = rng.normal(size=(rows, p + 1))
    for r in range(rows):
        D[r, : first[r]] = 0.0
    return D, first.astype(np.int64)


@pytest.mark.parametrize(("p", "rows"), [(1, 1), (5, 2), (58, 7)])
def test_each_update_equals_the_normal_equations(p: int, rows: int) -> None:
    rng = np.random.default_rng(p)
    padding = np.zeros((p, padded(p) - p))
    R = np.hstack((np.diag(rng.uniform(0.5, 2.0, p)), padding))
    information = R[:, :p].T @ R[:, :p]
    work, step = np.zeros((3, padded(p))), np.zeros(padded(p))
    for _ in range(60):
        D, first = staircase(rng, rows, p)
        Phi, e = D[:, :p].copy(), D[:, p].copy()
        roots = rng.uniform(0.95, 1.0, p)
        scale_columns(R, np.concatenate((roots, np.zeros(padded(p) - p))))
        information = roots[:, None] * information * roots + Phi.T @ Phi
        qr_update(R, D, first, rows, work)
        back_substitute(R, work[0], step)
        assert not np.tril(R[:, :p], -1).any()
        np.testing.assert_array_equal(R[:, p:], padding)
        root = R[:, :p]
        np.testing.assert_allclose(root.T @ root, information, rtol=0, atol=1e-11 * np.abs(information).max())
        expected = np.linalg.solve(information, Phi.T @ e)
        np.testing.assert_allclose(step[:p], expected, rtol=0, atol=1e-9 * max(1.0, np.abs(expected).max()))


@given(p=st.integers(1, 30), seed=st.integers(0, 10_000), exponent=st.floats(-6.0, 6.0))
@hypothesis_settings(max_examples=30)
def test_added_variance_adds_to_one_entry_of_the_covariance(p: int, seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    R = np.triu(rng.normal(size=(p, p))) * 0.3 + np.diag(rng.uniform(0.5, 2.0, p) * rng.choice([-1, 1], p))
    k = int(rng.integers(p))
    variance = 10.0**exponent
    expected = np.linalg.inv(R.T @ R)
    expected[k, k] += variance
    add_variance(R, k, variance)
    assert not np.tril(R, -1).any()
    found = np.linalg.inv(R)
    found = found @ found.T
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_a_column_without_information_stays_where_it_is() -> None:
    R = np.zeros((3, padded(3)))
    D = np.zeros((1, padded(3)))
    D[0, :4] = 1.0, 0.0, 2.0, 3.0
    work, step = np.zeros((3, padded(3))), np.zeros(padded(3))
    qr_update(R, D, np.array([0]), 1, work)
    back_substitute(R, work[0], step)
    assert np.isfinite(R).all()
    assert step[1] == 0.0
    assert step[0] + 2.0 * step[2] == pytest.approx(3.0)


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
