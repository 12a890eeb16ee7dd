"""Placements between arms and stations, against errors drawn with a covariance that is known."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from rt_core.calibration.cell._base_network import Placement, Sighting, adjusted, groups, suspects, with_error_of_turns
from rt_core.types import FloatArray


def drawn_placement(rng: np.random.Generator, size: float = 2.0) -> Placement:
    return Placement(Rotation.random(random_state=int(rng.integers(2**31))).as_matrix(), rng.uniform(-size, size, 3))


def cell(
    layout: list[tuple[int, ...]], rng: np.random.Generator, size: float = 1e-4
) -> tuple[list[Placement], dict[int, Placement], list[FloatArray]]:
    """Arms, stations, and covariances of what each arm says of its stations, with different and correlated errors."""
    arms = [Placement(), *(drawn_placement(rng) for _ in layout[1:])]
    stations = {number: drawn_placement(rng) for number in sorted({n for one in layout for n in one})}
    covariances = []
    for seen in layout:
        A = size * rng.uniform(0.2, 2.0, 6 * len(seen))[:, None] * rng.normal(size=(6 * len(seen), 6 * len(seen) + 6))
        covariances.append(A @ A.T / A.shape[1])
    return arms, stations, covariances


def seen(
    layout: list[tuple[int, ...]], arms: list[Placement], stations: dict[int, Placement], covariances: list[FloatArray],
    rng: np.random.Generator | None,
) -> list[Sighting]:  # fmt: skip
    out = []
    for numbers, arm, C in zip(layout, arms, covariances, strict=True):
        error = np.zeros(len(C)) if rng is None else rng.multivariate_normal(np.zeros(len(C)), C)
        bases = tuple((stations[n] @ arm).moved(e) for n, e in zip(numbers, error.reshape(-1, 6), strict=True))
        out.append(Sighting(numbers, bases, C))
    return out


@pytest.mark.parametrize(
    "layout",
    [[(1,), (1,)], [(1, 2), (1, 2)], [(1, 2), (2, 3), (3,)], [(1, 2, 3), (1, 3), (2, 3)]],
    ids=["one station", "two", "a chain", "three arms"],
)
def test_placements_and_their_deviations(layout: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    truth = cell(layout, rng)
    exact = adjusted(seen(layout, *truth, None))
    loops = sum(map(len, layout)) - (len(layout) - 1 + len(truth[1]))
    assert exact.loops == loops
    assert exact.square == pytest.approx(0.0, abs=1e-9)
    pairs = [(i, j) for i in range(len(layout)) for j in range(len(layout)) if i != j]
    squares, scores, misses = [], [], 0
    for _ in range(100):
        found = adjusted(seen(layout, *truth, rng))
        squares.append(found.square)
        misses += not found.agrees
        for i, j in pairs:
            placement, covariance = found.between(i, j)
            e = (truth[0][i].inverse() @ truth[0][j]).error_of(placement)
            scores.append(e @ np.linalg.solve(covariance, e))
    if loops:
        assert np.mean(squares) == pytest.approx(6.0 * loops, rel=0.2)
        assert misses <= 5  # one of a hundred is expected
    else:
        assert max(squares) < 1e-9
        assert misses == 0
    assert np.mean(scores) == pytest.approx(6.0, rel=0.2)  # chi-squared of six degrees of freedom


def test_the_minimum_is_that_of_a_general_solver() -> None:
    layout, rng = [(1, 2, 4), (2, 1), (4, 2)], np.random.default_rng(3)
    truth = cell(layout, rng)
    sightings = seen(layout, *truth, rng)
    found = adjusted(sightings)
    numbers = sorted(truth[1])

    def residual(p: FloatArray) -> FloatArray:
        parts = p.reshape(-1, 6)
        arms = [Placement(), *(W.moved(e) for W, e in zip(truth[0][1:], parts[:2], strict=True))]
        stations = {n: truth[1][n].moved(e) for n, e in zip(numbers, parts[2:], strict=True)}
        out = []
        for s, W in zip(sightings, arms, strict=True):
            r = np.concatenate([(stations[n] @ W).error_of(B) for n, B in zip(s.stations, s.bases, strict=True)])
            out.append(np.linalg.solve(np.linalg.cholesky(s.covariance), r))
        return np.concatenate(out)

    other = least_squares(residual, np.zeros(6 * (2 + len(numbers))), x_scale=1e-4, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    assert found.square == pytest.approx(2.0 * other.cost, rel=1e-6)


def test_a_place_that_was_moved_is_reported() -> None:
    rng = np.random.default_rng(1)
    for layout, where, expected in (
        ([(1, 2), (1, 2)], (1, 2), {(0, 1), (0, 2), (1, 1), (1, 2)}),  # which of them nothing tells
        ([(1, 2, 3), (1, 2, 3)], (1, 3), {(0, 3), (1, 3)}),
        ([(1, 2), (1, 2), (1, 2)], (2, 1), {(2, 1), (2, 2)}),
        ([(1, 2, 3), (1, 2, 3), (1, 2, 3)], (1, 2), {(1, 2)}),
    ):
        truth = cell(layout, rng)
        sightings = seen(layout, *truth, rng)
        assert adjusted(sightings).agrees
        arm, station = where
        C = truth[2][arm]
        k = 6 * layout[arm].index(station)
        away = np.append([3e-3, -4e-3, 0.0], [0.0, 0.0, 2e-3])
        bases = list(sightings[arm].bases)
        bases[k // 6] = bases[k // 6].moved(away)
        sightings[arm] = Sighting(layout[arm], tuple(bases), C)
        assert not adjusted(sightings).agrees
        found = suspects(sightings)
        assert {(s.arm, s.station) for s in found} == expected
        own = next(s for s in found if (s.arm, s.station) == where)
        assert own.distance == pytest.approx(5e-3, rel=0.3)
        assert own.angle == pytest.approx(2e-3, rel=0.5)


def test_few_freedoms_let_chance_do_more() -> None:
    layout, rng = [(1, 2), (1, 2)], np.random.default_rng(2)
    truth = cell(layout, rng)
    sightings = seen(layout, *truth, rng)
    few = [Sighting(s.stations, s.bases, s.covariance, 9.0) for s in sightings]
    assert adjusted(sightings).limit == pytest.approx(16.81, abs=0.01)  # chi-squared, 1 %
    assert adjusted(few).limit == pytest.approx(6.0 * 5.80, abs=0.1)  # F of 6 and 9


def test_which_arms_stations_connect() -> None:
    assert groups([(1,), (2,), (1, 3), (3,)]) == [[0, 2, 3], [1]]
    assert groups([(1, 2), (2, 3), (3,)]) == [[0, 1, 2]]
    one = Sighting((1,), (Placement(),), np.eye(6))
    with pytest.raises(ValueError, match="share no station"):
        adjusted([one, Sighting((2,), (Placement(),), np.eye(6))])


def test_errors_of_angles_are_those_of_a_rotation_vector() -> None:
    angles, h = np.array([0.4, -0.7, 1.1]), 1e-6
    start = Rotation.from_euler("XYZ", angles)
    base = Placement(start.as_matrix())
    slope = np.eye(6)
    for k in range(3):
        moved = Rotation.from_euler("XYZ", angles + h * np.eye(3)[k])
        slope[3:, 3 + k] = base.error_of(Placement(moved.as_matrix()))[3:] / h
    C = np.diag([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = with_error_of_turns(Sighting((1,), (base,), C), [angles])
    np.testing.assert_allclose(found.covariance, slope @ C @ slope.T, atol=1e-4)
