"""The fused evaluation against the clear one, and exact derivatives of all of it against differences, to 1e-6."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.design import Designer
from rt_core.excitation.fourier import Basis
from rt_core.excitation.fused import FusedEvaluation
from rt_core.excitation.settings import ExcitationSettings, Objective
from rt_core.excitation.shapes import Box, Capsule, Sphere
from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel, Transmission
from rt_core.types import FloatArray
from tests.lab.arms.excitation import three, two

EVERYTHING = ExcitationSettings(
    f0_hz=0.2, harmonics=3, workspace=((-0.3, 0.3), (-0.3, 0.2), (0.0, 0.2)),
    regions=(
        Sphere((0.1, 0.0, 0.1), 0.3, link=0, point=(0.2, 0.1, 0.3), name="elbow"),
        Sphere((0.3, 0.1, 0.2), 0.25, "outside", name="post"),
        Box((-0.1, -0.1, -0.1), (0.4, 0.4, 0.15), link=1, point=(0.1, 0.2, 0.1), name="second"),
    ),
    bodies=(
        Capsule("foot", -1, (0.0, 0.0, 0.0), (0.0, 0.0, 0.1), 0.1, base=True),
        Capsule("upper", 0, (0.0, 0.0, 0.0), (0.3, 0.0, 0.1), 0.05),
        Capsule("hand", 1, (0.1, 0.1, 0.0), (0.2, 0.1, 0.1), 0.06),
        Capsule("ball", 1, (0.2, 0.1, 0.0), (0.2, 0.1, 0.0), 0.08),
    ),
    clearance_m=0.02, slow_share=0.3,
)  # fmt: skip


def coupled() -> RobotModel:
    """The second motor turns with the first joint."""
    matrix = np.array([[100.0, 0.0], [40.0, 80.0]])
    return replace(two(), transmission=Transmission(matrix, np.zeros(2), np.ones(2)))


def harmonic_drive() -> RobotModel:
    """Every friction term that has a slope of its own, smoothed."""
    model = two()
    some = np.array([0.7, 0.4])
    known = replace(
        model.dynamics, tanh_torque=some, tanh_velocity=np.full(2, 1.0), decaying_viscous=some, decay_velocity=some,
        load_friction=0.1 * some, cyclic_sine=some, cyclic_cosine=-some,
    )  # fmt: skip
    friction = Friction("harmonic_drive_input", delta=1.3, smoothing=0.2, load=True, cyclic=True)
    return replace(model, dynamics=known, friction=friction)


def stribeck() -> RobotModel:
    model = three()
    known = replace(
        model.dynamics, breakaway=2.0 * model.dynamics.coulomb, stribeck_velocity=np.full(3, 0.4),
        quadratic_friction=np.array([0.2, 0.1, 0.3]), cubic_friction=np.array([0.05, 0.02, 0.1]),
    )  # fmt: skip
    return replace(model, dynamics=known, friction=Friction("stribeck"))


ARMS = {
    "two": two, "slides": three, "coupled": coupled, "harmonic_drive": harmonic_drive, "stribeck": stribeck,
    **{name: (lambda name=name: load_robot(name).model) for name in ("arm9", "staubli_tx40")},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "scaled"), [*zip(get_args(Objective), (True, False, True), strict=True)])
@pytest.mark.parametrize("name", ARMS)
def test_objective_and_excess(name: str, kind: Objective, scaled: bool) -> None:
    designer = Designer(ARMS[name](), replace(EVERYTHING, objective=kind, scaled=scaled, samples=70))
    for seed in range(2):
        x = 1.2 * designer._start(seed)
        states = designer._grid.evaluate(*designer.space.coefficients(x))
        value, excess = designer.fused.evaluate(designer.space.stacked(x))
        number = np.linalg.cond(designer.excitation.information(states))  # what rounding of it is multiplied with
        assert value == pytest.approx(designer.excitation.value(states), rel=1e-9 + 1e-14 * number)
        expected = designer.constraints.excess(states, designer._grid.overshoot)
        assert expected > 0.1
        assert excess == pytest.approx(expected, rel=1e-10)


def test_samples_inside_their_shares_keep_positions_between_them() -> None:
    designer = Designer(replace(two(), inertial=None), ExcitationSettings(f0_hz=0.2, harmonics=3, samples=14))
    for seed in range(20):
        C = designer.space.stacked(designer._start(seed))
        low, high = designer.constraints.limits.lower, designer.constraints.limits.upper
        C[:, 0] = 0.5 * (low + high)
        states = designer._grid.evaluate(C[:, 0], C[:, 1:].T)
        half = 0.5 * (high - low)
        over = designer._grid.overshoot
        size = np.abs(states[0] - C[:, 0]).max(axis=0)
        C[:, 1:] *= ((2.0 - over) * half / size)[:, None]  # just at the limits of the shares
        assert designer.fused.forward(C).shares.reshape(2, 8, -1)[:, :2].max() == pytest.approx(0.0, abs=1e-9)
        t = np.linspace(0.0, 5.0, 5001)
        w = 2.0 * np.pi * 0.2 * np.arange(1, 4)
        s, c = np.sin(t[:, None] * w) / w, -np.cos(t[:, None] * w) / w
        q = C[:, 0] + np.hstack((s, c)) @ C[:, 1:].T
        assert (q >= low).all()
        assert (q <= high).all()


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
