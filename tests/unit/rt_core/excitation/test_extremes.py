"""Extreme eigenvalues and determinant against LAPACK, and the measures made of them against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.excitation._extremes import extremes
from rt_core.excitation._measure import measure, measure_gradient
from rt_core.types import FloatArray


def some_information(p: int, spread: float, seed: int = 0) -> FloatArray:
    """Symmetric matrix whose eigenvalues lie between 1 and `spread` squared."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(p, p)))[0]
    values = np.exp(rng.uniform(0.0, 2.0 * np.log(spread), p))
    found = (vectors * values) @ vectors.T
    return np.asarray(0.5 * (found + found.T))


@pytest.mark.parametrize("spread", [1.5, 1e4])
@pytest.mark.parametrize("p", [1, 2, 91])
def test_extremes_are_those_of_lapack(p: int, spread: float) -> None:
    M = some_information(p, spread, p)
    values = np.linalg.eigvalsh(M)
    low, high, logarithm = extremes(M.copy())
    assert low == pytest.approx(values[0], rel=1e-13 * spread**2)
    assert high == pytest.approx(values[-1], rel=1e-12)
    assert logarithm == pytest.approx(np.linalg.slogdet(M)[1], rel=1e-9, abs=1e-13 * spread**2)


def test_a_diagonal_and_a_singular_matrix() -> None:
    assert extremes(np.diag([4.0, 2.0, 9.0]))[:2] == pytest.approx((2.0, 9.0))
    low, high, logarithm = extremes(np.ones((3, 3)))
    assert abs(low) < 1e-15
    assert high == pytest.approx(3.0)
    assert logarithm < -30.0
    assert extremes(np.zeros((3, 3)))[:2] == (0.0, 0.0)


def test_the_smooth_form_bounds_the_measure() -> None:
    M = some_information(20, 40.0)
    for kind in ("condition", "e_optimal"):
        sharp = measure(M.copy(), kind, False)  # type: ignore[arg-type]
        sharp = np.log(sharp) if kind == "condition" else sharp
        before = np.inf
        for order in (1.0, 4.0, 16.0, 64.0):
            smooth = measure_gradient(M, kind, False, order)[0]  # type: ignore[arg-type]
            assert sharp <= smooth <= sharp + np.log(20) / order
            assert smooth < before
            before = smooth


def test_a_direction_that_is_not_determined_stays_finite() -> None:
    M = np.diag([1.0, 4.0, 0.0])
    assert measure(M.copy(), "condition", False) == pytest.approx(1e7 * np.sqrt(10.0), rel=1e-6)
    assert np.isfinite(measure_gradient(M, "condition", True, 4.0)[1]).all()
    assert measure(np.zeros((3, 3)), "condition", False) == np.inf
