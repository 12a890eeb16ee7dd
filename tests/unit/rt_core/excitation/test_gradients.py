"""Exact derivatives of every objective and every limit against differences, to 1e-6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rt_core.excitation.design import Designer
from rt_core.excitation.fourier import Basis
from rt_core.excitation.fused import FusedEvaluation
from rt_core.excitation.settings import Objective
from rt_core.types import FloatArray
from tests.unit.rt_core.excitation.test_fused import ARMS, EVERYTHING

#: Arms whose friction columns are so alike that rounding of the smallest eigenvalue would hide the difference: some
#: information that is there already keeps it from zero.
ILL_CONDITIONED = ("harmonic_drive", "stribeck")
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


@pytest.mark.parametrize(
    ("kind", "scaled", "order"),
    [("condition", True, None), ("condition", False, 4.0), ("d_optimal", True, None), ("e_optimal", False, 4.0)],
)
@pytest.mark.parametrize("name", ["slides", "harmonic_drive", "stribeck", "staubli_tx40"])
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


@pytest.mark.parametrize("name", ["slides", "coupled", "harmonic_drive", "stribeck"])
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


def test_without_smoothing_signs_count_as_constant() -> None:
    designer, _ = designer_of("two")
    fused = FusedEvaluation(designer.excitation, designer.constraints, Basis.grid(40, 0.2, 3))
    C = designer.space.stacked(designer._start(1))
    _, gradient = fused.value_and_gradient(C)
    D = np.random.default_rng(0).normal(size=C.shape)
    found = difference(lambda h: np.asarray(fused.value_and_gradient(C + h * D)[0]), 1e-5)  # steps over no jump
    assert (gradient * D).sum() == pytest.approx(float(found), rel=1e-6)
