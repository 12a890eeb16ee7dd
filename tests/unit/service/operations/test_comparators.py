"""Comparator networks: they learn, they repeat themselves, they refuse what they cannot use."""

import importlib.util
import sys

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.optimize import approx_fprime

from service.operations.comparators import ComparatorError, ComparatorUnavailableError, available, fit, kan

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="the extra thetad[comparators] is not installed"
)
EACH = [pytest.param("bp_nn", marks=needs_extra), "kan"]


def samples(count: int, seed: int, joints: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """States of a made-up arm and a smooth torque that is far from linear in them."""
    x = np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 3 * joints))
    q, dq, ddq = x[:, :joints], 2.0 * x[:, joints : 2 * joints], 3.0 * x[:, 2 * joints :]
    tau = 20.0 * np.cos(2.0 * q) + 3.0 * ddq * (1.0 + 0.5 * np.cos(q[:, ::-1])) + dq * dq[:, ::-1] + 4.0
    return np.hstack((q, dq, ddq)), tau


@pytest.mark.parametrize("name", EACH)
def test_learns_what_no_linear_function_can(name: str) -> None:
    x, tau = samples(1200, 1)
    x_new, tau_new = samples(500, 2)
    predictor = fit(name, x, tau, seed=3)
    network = np.sqrt(np.mean((predictor.predict(x_new) - tau_new) ** 2, axis=0))
    coefficients = np.linalg.lstsq(np.column_stack((x, np.ones(1200))), tau, rcond=None)[0]
    linear = np.sqrt(np.mean((np.column_stack((x_new, np.ones(500))) @ coefficients - tau_new) ** 2, axis=0))
    assert (network < 0.2 * linear).all()
    # The held-out error is in shares of the variance, and tells how it does on new samples.
    fresh = np.mean((predictor.predict(x_new) - tau_new) ** 2 / tau_new.var(axis=0))
    assert 0.3 * fresh < predictor.error < 3.0 * fresh


@pytest.mark.parametrize("name", EACH)
def test_same_seed_same_network_whatever_the_units_are(name: str) -> None:
    x, tau = samples(150, 1)
    whole = fit(name, x, tau, seed=5)
    first, second, other = (found.predict(x) for found in (whole, *(fit(name, x, tau, seed=s) for s in (5, 6))))
    assert fit(name, x, tau, 5, lambda done, error: False).error > whole.error  # the callback ends the training
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    scaled = fit(name, 1024.0 * x, 0.25 * tau, seed=5).predict(1024.0 * x)  # powers of two: no rounding
    assert np.array_equal(scaled, 0.25 * first)


def test_without_the_extra_the_error_has_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    assert "pip install 'thetad[comparators]'" in str(available("bp_nn"))
    with pytest.raises(ComparatorUnavailableError, match=r"bp_nn needs sklearn: pip install 'thetad\[comparators\]'"):
        fit("bp_nn", *samples(100, 1), 0)
    assert available("kan") is None


def test_what_cannot_be_learned_or_predicted_is_refused() -> None:
    x, tau = samples(100, 1)

    def refused(message: str, x: np.ndarray, tau: np.ndarray) -> None:
        with pytest.raises(ComparatorError, match=message):
            fit("kan", x, tau, 0)

    hole = tau.copy()
    hole[3, 1] = np.inf
    refused("tau: not a finite number at sample 3, column 1", x, hole)
    refused("x has 100 samples, tau has 99", x, tau[:99])
    refused("x has 5 columns for 2 joints: it needs q, dq and ddq of each, 6", x[:, :5], tau)
    refused("only 49 samples: a network needs at least 50", x[:49], tau[:49])
    still = tau.copy()
    still[:, 1] = 7.0
    refused("the torque of joint 2 is constant", x, still)
    with pytest.raises(ComparatorError, match="no comparator 'svm'; there are: bp_nn, kan"):
        available("svm")
    predictor = fit("kan", x, tau, 0, lambda done, error: False)
    with pytest.raises(ComparatorError, match="x has 3 columns, kan was trained on 6"):
        predictor.predict(x[:, :3])
    x[2, 0] = np.nan
    with pytest.raises(ComparatorError, match="not a finite number at sample 2, column 0"):
        predictor.predict(x)


def test_spline_basis_against_scipy() -> None:
    half = 1.7
    step = 2.0 * half / kan.INTERVALS
    knots = -half + step * np.arange(-3, kan.INTERVALS + 4)
    x = np.linspace(-half, half, 101)[1:-1]
    values, derivatives = kan.basis(x, half)
    for k in range(values.shape[1]):
        spline = BSpline(knots, np.eye(values.shape[1])[k], 3)
        np.testing.assert_allclose(values[:, k], spline(x), atol=1e-14)
        np.testing.assert_allclose(derivatives[:, k], spline.derivative()(x), atol=1e-12)
    outside, flat = kan.basis(np.array([-9.0, 9.0]), half)
    np.testing.assert_allclose(outside, kan.basis(np.array([-half, half]), half)[0], atol=1e-14)
    assert not flat.any()


def test_gradient_against_differences() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    A = kan.edges(x, 2.5)[0].reshape(20, -1)
    weights = rng.normal(0.0, 0.5, A.shape[1] * kan.HIDDEN + kan.HIDDEN * (kan.INTERVALS + 4) * 2)
    gradient = kan.cost(weights, A, y)[1]
    numeric = approx_fprime(weights, lambda w: kan.cost(w, A, y)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)
