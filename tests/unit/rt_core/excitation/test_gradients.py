"""Exact derivatives of every objective and every limit against differences, to 1e-6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rt_core.excitation.design import Designer
from rt_core.excitation.fourier import Basis
from rt_core.excitation.fused import FusedEvaluation
from rt_core.excitation.settings import OBJECTIVES, Objective
from rt_core.model import friction
from rt_core.model.base import random_states
from rt_core.model.regressor import BLOCK, link_columns
from rt_core.model.regressor_adjoint import adjoint_work, link_columns_adjoint
from rt_core.types import FloatArray
from tests.unit.rt_core.excitation.test_fused import ARMS, EVERYTHING

#: Arms whose friction columns are so alike that rounding of the smallest eigenvalue would hide the difference: some
#: information that is there already keeps it from zero.
ILL_CONDITIONED = ("harmonic_drive", "stribeck", "space6_dyn")
#: Long ones for little rounding, short ones that reach over no corner of `v|v|`.
STEPS = (2e-3, 1e-3, 5e-4, 2e-4, 5e-5, 2e-5)
#: Velocity of the smooth stand-in of a sign: with signs themselves a difference may step over a jump.
SMOOTH = 0.1


def difference(function: Callable[[float], FloatArray], h: float) -> FloatArray:
    by = [function(k * h) - function(-k * h) for k in (1, 2, 3)]
    return np.asarray((45.0 * by[0] - 9.0 * by[1] + by[2]) / (60.0 * h))


def designer_of(name: str, kind: Objective = "condition", scaled: bool = True) -> tuple[Designer, FusedEvaluation]:
    designer = Designer(ARMS[name](), replace(EVERYTHING, objective=kind, scaled=scaled, samples=40))
    grid = Basis.grid(40, EVERYTHING.f0_hz, EVERYTHING.harmonics)
    return designer, FusedEvaluation(designer.excitation, designer.constraints, grid, SMOOTH)


@pytest.mark.parametrize("order", [None, 4.0])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", ARMS)
def test_objectives(name: str, kind: Objective, scaled: bool, order: float | None) -> None:
    designer, fused = designer_of(name, kind, scaled)
    C = designer.space.stacked(designer._start(1))
    if name in ILL_CONDITIONED:
        fused.excitation.known = 1e-3 * np.diag(np.diag(fused.forward(C).information))
    _, gradient = fused.value_and_gradient(C, order)
    rng = np.random.default_rng(0)
    for _ in range(3):
        D = rng.normal(size=C.shape)
        D *= np.linalg.norm(gradient) / abs((gradient * D).sum())  # along the gradient enough to be seen

        def along(h: float, D: FloatArray = D) -> FloatArray:
            value = fused.value_and_gradient(C + h * D, order)[0]
            # The logarithm of a condition number, whose size sets how exact a difference can be.
            return np.log(value) if kind == "condition" and order is None else np.asarray(value)

        value = fused.value_and_gradient(C, order)[0]
        exact = (gradient * D).sum() / (value if kind == "condition" and order is None else 1.0)
        errors = [abs(difference(along, h / np.linalg.norm(D)) - exact) for h in STEPS]
        assert min(errors) <= 1e-6 * np.abs(exact)


@pytest.mark.parametrize("name", ARMS)
def test_every_limit_at_some_samples(name: str) -> None:
    designer, fused = designer_of(name)
    C = designer.space.stacked(designer._start(2))
    rng = np.random.default_rng(1)
    D = rng.normal(size=C.shape)
    expected = difference(lambda h: fused.forward(C + h * D).shares.copy(), 1e-4)
    slow = difference(lambda h: fused.forward(C + h * D).slow, 1e-4)
    base = fused.forward(C).shares.copy()
    size = np.abs(expected).max(axis=1)
    assert (size > 0.0).mean() > 0.9  # all but points on an axis move
    for row in range(fused.rows):
        for at in rng.integers(0, 40, 3):
            bar = np.zeros_like(base)
            bar[row, at] = 1.0
            fused.forward(C)
            found = (fused.adjoint(None, bar, None) * D).sum()
            assert found == pytest.approx(expected[row, at], rel=1e-6, abs=1e-6 * size[row])
    for i in range(designer.model.n):
        fused.forward(C)
        found = (fused.adjoint(None, None, np.eye(designer.model.n)[i]) * D).sum()
        assert found == pytest.approx(slow[i], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["slides", "ur10"])
def test_all_coefficients_of_all_together(name: str) -> None:
    """The derivative of a sum of everything, by each coefficient alone, and by each coordinate of the search."""
    designer, fused = designer_of(name)
    x = designer._start(3)
    rng = np.random.default_rng(2)
    first = fused.forward(designer.space.stacked(x))
    weights = rng.normal(size=first.shares.shape)
    on_slow = rng.normal(size=designer.model.n)
    p = first.information.shape[0]
    on_information = rng.normal(size=(p, p))
    on_information += on_information.T

    def total(C: FloatArray) -> float:
        found = fused.forward(C)
        return float((on_information * found.information).sum() + (weights * found.shares).sum() + on_slow @ found.slow)

    C = designer.space.stacked(x)
    fused.forward(C)
    gradient = fused.adjoint(on_information, weights, on_slow)
    for at in np.ndindex(*C.shape):
        unit = np.zeros_like(C)
        unit[at] = 1.0
        found = difference(lambda h, unit=unit: np.asarray(total(C + h * unit)), 3e-4)
        assert gradient[at] == pytest.approx(float(found), rel=1e-6, abs=1e-6 * np.abs(gradient).max())
    by_point = designer.space.adjoint(gradient)
    for k in range(x.size):
        unit = np.eye(x.size)[k]
        found = difference(lambda h, unit=unit: np.asarray(total(designer.space.stacked(x + h * unit))), 3e-4)
        assert by_point[k] == pytest.approx(float(found), rel=1e-6, abs=1e-6 * np.abs(by_point).max())


def test_without_smoothing_signs_count_as_constant() -> None:
    designer, _ = designer_of("two")
    fused = FusedEvaluation(designer.excitation, designer.constraints, Basis.grid(40, 0.2, 3))
    C = designer.space.stacked(designer._start(1))
    _, gradient = fused.value_and_gradient(C)
    D = np.random.default_rng(0).normal(size=C.shape)
    found = difference(lambda h: np.asarray(fused.value_and_gradient(C + h * D)[0]), 1e-5)  # steps over no jump
    assert (gradient * D).sum() == pytest.approx(float(found), rel=1e-6)


@pytest.mark.parametrize("name", ["slides", "arm9"])
def test_adjoint_of_the_link_columns(name: str) -> None:
    model = ARMS[name]()
    n = model.n
    states = [np.ascontiguousarray(s.T) for s in random_states(model, BLOCK, seed=3)]
    rng = np.random.default_rng(0)
    bar = rng.normal(size=(n, n, 10 * BLOCK))
    bar[np.triu_indices(n, 1)] = 0.0  # bar[k, j] with j <= k is what counts
    directions = rng.normal(size=(3, n, BLOCK))

    def lanes(h: float) -> FloatArray:
        out = np.zeros((n, n, 10 * BLOCK))
        link_columns(
            model.geometry, model.gravity, *(s + h * d for s, d in zip(states, directions, strict=True)), BLOCK, out
        )
        return (bar * out).reshape(n, n, 10, BLOCK).sum(axis=(0, 1, 2))

    found = np.zeros((3, n, BLOCK))
    link_columns_adjoint(model.geometry, model.gravity, *states, bar, *found, *adjoint_work(n))
    np.testing.assert_allclose((found * directions).sum(axis=(0, 1)), difference(lanes, 1e-3), rtol=1e-8, atol=1e-7)


LAWS = [getattr(friction, name) for name in dir(friction) if name.startswith("LAW_")]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("constant", [0.0, 0.3])
@pytest.mark.parametrize("law", [law for law in LAWS if law not in (friction.LAW_LINK, friction.LAW_ARMATURE)])
def test_slopes_of_friction(law: int, constant: float, smoothing: float) -> None:
    for exponent in (1.0, 1.4, 2.0):
        for q, v, load in ((0.4, 0.35, -2.0), (-1.0, -0.2, 3.0), (0.1, 1.5, 0.5)):
            found = friction.friction_slopes(law, constant, exponent, smoothing, q, v, load)
            for k in range(3):

                def along(
                    h: float, k: int = k, at: tuple[float, ...] = (q, v, load), e: float = exponent
                ) -> FloatArray:
                    moved = [x + h * (k == i) for i, x in enumerate(at)]
                    return np.asarray(friction.friction_effect(law, constant, e, smoothing, *moved))

                assert found[k] == pytest.approx(float(difference(along, 1e-3)), rel=1e-7, abs=1e-8)
