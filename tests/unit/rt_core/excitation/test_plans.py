"""Designs that follow others: after what is known, to validate on, with as many harmonics as it takes."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.excitation.design import Designer, InfeasibleError, design_excitation
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.harmonics import choose_harmonics
from rt_core.excitation.sequential import known_information
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.validation import design_validation, difference
from tests.lab.arms.excitation import arm, joint, series_on, three, two
from tests.unit.rt_core.excitation.test_design import keeps_all_limits
from tests.unit.rt_core.excitation.test_objective import stacked

SETTINGS = ExcitationSettings(f0_hz=0.2, harmonics=3, iterations=120)


def test_what_earlier_data_left_open_is_excited() -> None:
    """Earlier the second joint hardly moved; the next motion, of few rows, is made for what that left open."""
    model = two()
    designer = Designer(model, SETTINGS)
    names = designer.excitation.layout.names
    series = designer.space.series(designer._start(0))
    still = series.shrunk(np.array([1.0, 0.02]))
    states = Basis.grid(500, 0.2, 3).states(still)
    W0 = stacked(model, states)
    rows = 300
    known = known_information(names, names, rows, information=W0.T @ W0)
    np.testing.assert_allclose(known, known_information(names, names, rows, root=np.linalg.qr(W0, mode="r")), atol=1e-9)
    after = design_excitation(model, SETTINGS, "gradient", 1, known=known)
    blind = design_excitation(model, SETTINGS, "gradient", 1)
    assert keeps_all_limits(model, after)

    def together(design_series: FourierSeries) -> float:
        W = np.vstack((W0, np.sqrt(rows / 300) * stacked(model, Basis.grid(150, 0.2, 3).states(design_series))))
        return float(np.linalg.cond(W / np.linalg.norm(W, axis=0)))

    assert together(after.series) == pytest.approx(after.condition_number, rel=0.02)
    assert together(after.series) < together(blind.series)
    assert together(after.series) < 0.5 * float(np.linalg.cond(W0 / np.linalg.norm(W0, axis=0)))


def test_known_parameters_are_found_by_name() -> None:
    names = ("a", "b", "c")
    information = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])
    found = known_information(("c", "x", "a"), names, 10, information=information)
    np.testing.assert_allclose(found, 0.1 * np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 4.0]]))
    assert not known_information(("x",), names, 10, information=information).any()


@pytest.mark.parametrize(
    ("information", "rows", "what"),
    [(np.eye(2), 5, "shape"), (np.diag([1.0, 1.0, -1.0]), 5, "negative"),
     (np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 5, "symmetric"),
     (np.full((3, 3), np.nan), 5, "finite"), (None, 5, "either")],
)  # fmt: skip
def test_what_is_no_information(information: np.ndarray | None, rows: int, what: str) -> None:
    with pytest.raises(ExcitationError, match=what):
        known_information(("a",), ("a", "b", "c"), rows, information=information)


def test_a_root_of_other_columns() -> None:
    with pytest.raises(ExcitationError, match="as many columns"):
        known_information(("a",), ("a", "b", "c"), 5, root=np.eye(2))
    with pytest.raises(ExcitationError, match="shape"):
        Designer(two(), SETTINGS, np.eye(3))


def some(seed: int, harmonics: int = 3) -> FourierSeries:
    rng = np.random.default_rng(seed)
    return FourierSeries(0.2, rng.normal(size=2), *rng.normal(size=(2, 2, harmonics)))


def test_difference_against_samples() -> None:
    one, other = some(1), some(2, 4)
    size = np.array([0.7, 2.0])
    t = np.linspace(0.0, 5.0, 2001)[:-1]
    x, y = ((series_on(s.as_dict(), t)[0] - s.q0) / size for s in (one, other))
    scale = np.sqrt((x**2).mean(axis=0).sum() * (y**2).mean(axis=0).sum())
    rho = [(x * np.roll(z, k, axis=0)).mean(axis=0).sum() / scale for z in (y, y[::-1]) for k in range(2000)]
    assert difference(one, other, size) == pytest.approx(1.0 - np.abs(rho).max(), abs=1e-3)
    assert difference(other, one, size) == pytest.approx(difference(one, other, size), abs=1e-9)


def test_the_same_motion_is_not_different() -> None:
    one = some(3)
    size = np.ones(2)
    mirrored = FourierSeries(0.2, -one.q0, -one.a, -one.b)
    reversed_ = FourierSeries(0.2, one.q0, -one.a, one.b)
    w = 2.0 * np.pi * 0.2 * np.arange(1, 4) * (5.0 * 13 / 192)
    c, s = np.cos(w), np.sin(w)
    later = FourierSeries(0.2, one.q0, one.a * c + one.b * s, one.b * c - one.a * s)
    np.testing.assert_allclose(later.sample(0.0)[0], one.sample(5.0 * 13 / 192)[0])
    for other in (one, one.shrunk(0.4), mirrored, reversed_, later):
        assert difference(one, other, size) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ExcitationError, match="periods"):
        difference(one, replace(one, f0_hz=0.1), size)
    with pytest.raises(ExcitationError, match="does not move"):
        difference(one, one.shrunk(0.0), size)


def test_a_validation_trajectory_is_checked_and_different() -> None:
    model = three()
    first = design_excitation(model, SETTINGS, "gradient", 0)
    second = design_validation(model, SETTINGS, first)
    assert keeps_all_limits(model, second.design)
    size = 0.5 * 0.95 * np.array([one.upper - one.lower for one in model.joints])
    assert second.difference == pytest.approx(difference(first.series, second.design.series, size))
    assert second.difference >= 0.3
    with pytest.raises(ExcitationError, match="none of 1 trajectories within the limits, of 1 searches, differs"):
        design_validation(model, SETTINGS, first, seed=0, tries=1)


def test_the_number_of_harmonics_is_chosen() -> None:
    model = two()
    choice = choose_harmonics(model, SETTINGS, (2, 3, 4), seed=1)
    assert [one.harmonics for one in choice.tried] == [2, 3, 4]
    numbers = [one.condition_number for one in choice.tried]
    assert choice.design.condition_number == min(n for n in numbers if n is not None)
    assert choice.design.series.harmonics == choice.tried[int(np.argmin(numbers))].harmonics  # type: ignore[arg-type]
    single = design_excitation(model, replace(SETTINGS, harmonics=4), "gradient", 1)
    assert numbers[2] == single.condition_number


def test_harmonics_that_cannot_be_chosen_from() -> None:
    with pytest.raises(ExcitationError, match="different numbers"):
        choose_harmonics(two(), SETTINGS, ())
    with pytest.raises(ExcitationError, match="to be avoided"):
        choose_harmonics(two(), replace(SETTINGS, f_avoid_hz=0.7), (3, 4))
    hopeless = arm(joint("first"), joint("second", turned=True, along=0.3, effort=0.5))
    with pytest.raises(InfeasibleError, match="effort"):
        choose_harmonics(hopeless, replace(SETTINGS, iterations=16), (2, 3))
