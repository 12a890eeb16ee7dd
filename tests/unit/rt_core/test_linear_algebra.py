"""Singular values and least squares, also where LAPACK's first way does not converge."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg as la

from rt_core.linear_algebra import lstsq, singular_values, svd
from rt_core.types import FloatArray
from tests.lab.arms.commissioning import second_try_only


@pytest.fixture(params=["as it is", "divide and conquer fails"])
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the default drivers end as they do when they have not converged."""
    if request.param == "as it is":
        return
    for name in ("svd", "lstsq"):
        monkeypatch.setattr(la, name, partial(second_try_only, getattr(la, name)))


@pytest.fixture
def deficient() -> FloatArray:
    rng = np.random.default_rng(4)
    return np.asarray(rng.normal(size=(20, 3)) @ rng.normal(size=(3, 7)))


@pytest.mark.usefixtures("failing")
def test_a_matrix_is_the_product_of_its_factors(deficient: FloatArray) -> None:
    U, s, Vt = svd(deficient)
    assert (U.shape, s.shape, Vt.shape) == ((20, 7), (7,), (7, 7))
    np.testing.assert_allclose((U * s) @ Vt, deficient, atol=1e-12)
    np.testing.assert_allclose(singular_values(deficient), s, atol=1e-12)
    np.testing.assert_allclose(s[:3] ** 2, np.linalg.eigvalsh(deficient.T @ deficient)[::-1][:3])
    assert svd(deficient, full_matrices=True)[0].shape == (20, 20)


@pytest.mark.usefixtures("failing")
def test_the_solution_has_the_least_norm(deficient: FloatArray) -> None:
    x = np.arange(7.0)
    found = lstsq(deficient, deficient @ x)
    np.testing.assert_allclose(deficient @ found, deficient @ x, atol=1e-10)
    np.testing.assert_allclose(found, np.linalg.pinv(deficient, rcond=1e-10) @ deficient @ x, atol=1e-10)
    small = np.diag([1.0, 1e-6])
    np.testing.assert_allclose(lstsq(small, np.ones(2), rcond=1e-5), [1.0, 0.0])
    np.testing.assert_allclose(lstsq(small, np.ones(2)), [1.0, 1e6])
    assert lstsq(deficient, np.ones((20, 2))).shape == (7, 2)


def test_what_is_not_finite_has_no_singular_values() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        svd(np.full((3, 3), np.nan))
    with pytest.raises(np.linalg.LinAlgError):
        singular_values(np.full((3, 3), np.inf))
