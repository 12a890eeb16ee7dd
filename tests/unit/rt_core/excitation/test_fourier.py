"""The Fourier series: its formula, its derivatives, rest at both ends, and what it does between samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rt_core.excitation._space import SearchSpace
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries
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


@pytest.mark.parametrize(
    ("change", "what"),
    [({"a": None}, "must be"), ({"q0": [0.0, float("nan"), 0.0]}, "finite"), ({"b": [[1.0]]}, "must be"),
     ({"f0_hz": 0.0}, "f0_hz"), ({"f0_hz": "fast"}, "numbers")],
)  # fmt: skip
def test_plain_form_that_is_wrong(change: dict[str, object], what: str) -> None:
    with pytest.raises(ExcitationError, match=what):
        FourierSeries.from_dict(some_series().as_dict() | change)


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


def test_shrinking_is_about_the_mean_in_the_box_too() -> None:
    settings = ExcitationSettings()
    space = SearchSpace(Limits.of(three(), settings), settings.f0_hz, settings.harmonics)
    x = np.random.default_rng(0).uniform(space.lower, space.upper)
    share = np.array([0.2, 1.0, 0.0])
    series = space.series(x)
    q, dq, ddq = series.sample(1.1)
    for small in (space.series(space.shrunk(x, share)).sample(1.1), series.shrunk(share).sample(1.1)):
        np.testing.assert_allclose(small[0], series.q0 + share * (q - series.q0), atol=1e-13)
        np.testing.assert_allclose(small[1], share * dq, atol=1e-13)
        np.testing.assert_allclose(small[2], share * ddq, atol=1e-13)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(3, 40))
def test_overshoot_bounds_what_happens_between_samples(seed: int, harmonics: int, per_harmonic: int) -> None:
    series = some_series(seed, 2, harmonics, 1.0)
    grid = Basis.grid(per_harmonic * harmonics, 1.0, harmonics)
    _, dq, ddq = grid.states(series)
    fine = series_on(series.as_dict(), np.linspace(0.0, 1.0, 3001))
    for coarse, true in ((dq, fine[1]), (ddq, fine[2])):
        assert (np.abs(true).max(axis=0) <= grid.overshoot * np.abs(coarse).max(axis=0) * (1 + 1e-12)).all()


def test_a_grid_that_does_not_resolve_the_harmonics() -> None:
    with pytest.raises(ExcitationError, match="10 samples"):
        _ = Basis.grid(10, 1.0, 5).overshoot
