"""The square-root kernels against NumPy, after every update of a long run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.online._state import padded
from rt_core.online.rls.square_root import add_variance, back_substitute, qr_update, scale_columns


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
