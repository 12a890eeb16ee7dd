"""The Fourier series: its formula, its derivatives, rest at both ends, and what it does between samples."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rt_core.excitation._space import SearchSpace
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries, rest_basis
from rt_core.excitation.limits import Limits
from rt_core.excitation.settings import ExcitationSettings
from tests.lab.arms.excitation import series_at, series_on, three


def some_series(seed: int = 0, n: int = 3, harmonics: int = 4, f0_hz: float = 0.13) -> FourierSeries:
    rng = np.random.default_rng(seed)
    return FourierSeries(f0_hz, rng.normal(size=n), *rng.normal(size=(2, n, harmonics)))


def test_formula() -> None:
    series = some_series()
    for t in (0.0, 0.37, 5.0, 7.9):
        for found, expected in zip(series.sample(t), series_at(series.as_dict(), t), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_derivatives_by_differences() -> None:
    series = some_series(1)
    t = np.linspace(0.0, series.period_s, 23)
    h = 1e-3
    at = {k: series.sample(t + k * h) for k in (-2, -1, 1, 2)}
    for order in (0, 1):  # five-point stencils of q and dq
        slope = (at[-2][order] - 8.0 * at[-1][order] + 8.0 * at[1][order] - at[2][order]) / (12.0 * h)
        np.testing.assert_allclose(series.sample(t)[order + 1], slope, atol=1e-9)


def test_periodic_also_after_long() -> None:
    series = some_series(2, f0_hz=0.125)
    t = np.array([0.0, 1.3, 6.7])
    for now, later in zip(series.sample(t), series.sample(t + 10_000_000 * 8.0), strict=True):
        np.testing.assert_allclose(later, now, atol=1e-7)  # the time itself has this resolution


def test_scalar_and_array_agree() -> None:
    series = some_series()
    for one, many in zip(series.sample(0.7), series.sample(np.array([0.7])), strict=True):
        assert one.shape == (3,)
        np.testing.assert_array_equal(one, many[0])


def test_shrinking_is_about_the_mean() -> None:
    series = some_series()
    share = np.array([1.0, 0.5, 0.0])
    q, dq, ddq = series.sample(1.1)
    small = series.shrunk(share).sample(1.1)
    np.testing.assert_allclose(small[0], series.q0 + share * (q - series.q0), atol=1e-14)
    np.testing.assert_allclose(small[1], share * dq, atol=1e-14)
    np.testing.assert_allclose(small[2], share * ddq, atol=1e-14)


def test_plain_form_is_exact() -> None:
    series = some_series()
    again = FourierSeries.from_dict(json.loads(json.dumps(series.as_dict())))
    for name in ("f0_hz", "q0", "a", "b"):
        np.testing.assert_array_equal(getattr(again, name), getattr(series, name))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"a": None}, "must be"),
        ({"q0": [0.0, float("nan"), 0.0]}, "finite"),
        ({"b": [[1.0]]}, "must be"),
        ({"f0_hz": 0.0}, "f0_hz"),
        ({"f0_hz": "fast"}, "numbers"),
    ],
)
def test_plain_form_that_is_wrong(change: dict[str, object], what: str) -> None:
    with pytest.raises(ExcitationError, match=what):
        FourierSeries.from_dict(some_series().as_dict() | change)


def test_plain_form_that_lacks_a_key() -> None:
    plain = some_series().as_dict()
    del plain["q0"]
    with pytest.raises(ExcitationError, match="q0"):
        FourierSeries.from_dict(plain)


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=9))
def test_rest_basis(weights: list[float]) -> None:
    w = np.array(weights)
    N = rest_basis(w)
    np.testing.assert_allclose(N.T @ N, np.eye(w.size - 1), atol=1e-12)
    np.testing.assert_allclose(w @ N, 0.0, atol=1e-12 * np.linalg.norm(w))


@given(st.integers(0, 10_000), st.integers(2, 8), st.floats(0.01, 2.0))
def test_every_point_of_the_box_starts_and_ends_at_rest(seed: int, harmonics: int, f0_hz: float) -> None:
    settings = ExcitationSettings(f0_hz=f0_hz, harmonics=harmonics)
    space = SearchSpace(Limits.of(three(), settings), f0_hz, harmonics)
    x = space.lower + (space.upper - space.lower) * np.random.default_rng(seed).random(space.lower.size)
    series = space.series(x)
    plain = series.as_dict()
    order = np.arange(1, harmonics + 1)
    scale = np.abs(series.a).sum() + np.abs(series.b @ order).sum() + np.abs(series.b).sum()
    np.testing.assert_allclose(series.a.sum(axis=1), 0.0, atol=1e-13 * scale)
    np.testing.assert_allclose(series.b @ order, 0.0, atol=1e-13 * scale)
    for t in (0.0, 1.0 / f0_hz, 3.0 / f0_hz):
        _, dq, ddq = series_at(plain, t)
        np.testing.assert_allclose(dq, 0.0, atol=1e-11 * scale)
        np.testing.assert_allclose(ddq, 0.0, atol=1e-10 * scale * harmonics * max(f0_hz, 1.0) * 2.0 * np.pi)


def test_the_box_reaches_every_motion_from_rest_to_rest() -> None:
    """Two conditions on 2 H coefficients leave 2 H - 2 of them: the map from the box has that rank."""
    settings = ExcitationSettings(harmonics=5)
    space = SearchSpace(Limits.of(three(), settings), settings.f0_hz, 5)
    assert space.lower.size == 3 * (2 * 5 - 1)
    zero = space.coefficients(np.zeros(space.lower.size))
    columns = []
    for x in np.eye(space.lower.size):
        q0, ab = space.coefficients(x)
        columns.append(np.concatenate((q0 - zero[0], (ab - zero[1]).ravel())))
    assert np.linalg.matrix_rank(np.array(columns)) == space.lower.size


def test_shrinking_in_the_box() -> None:
    settings = ExcitationSettings()
    space = SearchSpace(Limits.of(three(), settings), settings.f0_hz, settings.harmonics)
    x = np.random.default_rng(0).uniform(space.lower, space.upper)
    share = np.array([0.2, 1.0, 0.7])
    small, expected = space.series(space.shrunk(x, share)), space.series(x).shrunk(share)
    np.testing.assert_allclose(small.q0, expected.q0)
    np.testing.assert_allclose(small.a, expected.a)
    np.testing.assert_allclose(small.b, expected.b)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(3, 40))
def test_overshoot_bounds_what_happens_between_samples(seed: int, harmonics: int, per_harmonic: int) -> None:
    series = some_series(seed, 2, harmonics, 1.0)
    grid = Basis.grid(per_harmonic * harmonics, 1.0, harmonics)
    _, dq, ddq = grid.states(series)
    fine = series_on(series.as_dict(), np.linspace(0.0, 1.0, 3001))
    for coarse, true in ((dq, fine[1]), (ddq, fine[2])):
        assert (np.abs(true).max(axis=0) <= grid.overshoot * np.abs(coarse).max(axis=0) * (1 + 1e-12)).all()


def test_overshoot_of_the_usual_grid_is_small_and_needed() -> None:
    grid = Basis.grid(100, 1.0, 5)
    assert 1.0 < grid.overshoot < 1.013
    # cos(5 wt) sampled at the points furthest from its extremes
    lone = FourierSeries(1.0, np.zeros(1), np.array([[0.0, 0.0, 0.0, 0.0, 1.0]]), np.zeros((1, 5)))
    seen = np.abs(grid.states(lone)[1]).max()
    assert seen < 1.0
    np.testing.assert_allclose(seen * grid.overshoot, 1.0, rtol=1e-12)


def test_a_grid_that_does_not_resolve_the_harmonics() -> None:
    with pytest.raises(ExcitationError, match="10 samples"):
        _ = Basis.grid(10, 1.0, 5).overshoot


def test_one_harmonic_cannot_rest() -> None:
    with pytest.raises(ExcitationError, match="at least 2"):
        SearchSpace(Limits.of(three(), ExcitationSettings()), 0.1, 1)
